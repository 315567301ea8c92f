r"""Token layouts of published models by name, each number with the file that it is from.

`pi0`, `pi0.5`: github.com/Physical-Intelligence/openpi at 15a9616

- 256 tokens per camera: SigLIP `So400m/14` (`src/openpi/models/pi0.py`, `Pi0.__init__`) of pictures
  of 224 x 224 (`IMAGE_RESOLUTION` in `src/openpi/models/model.py`), 16 x 16 patches, no pooling
- 3 camera slots, each computed whether masked or not: `IMAGE_KEYS` in `model.py`, `embed_prefix`
  in `pi0.py`
- text padded to 48 and 200, 50 action steps: `Pi0Config` in `src/openpi/models/pi0_config.py`
- pi0: the state is one token beside the actions (`embed_suffix` in `pi0.py`); pi0.5: it is text
- the prompts, begin token, the newline encoded by itself in pi0, 256 bins, strip, underscores and
  newlines to spaces: `PaligemmaTokenizer.tokenize` in `src/openpi/models/tokenizer.py`
- there is no prompt without an instruction: `TokenizePrompt` in `src/openpi/transforms.py`
- quantile normalisation in pi0.5: `create_base_config` in `src/openpi/training/config.py`

`gr00t-n1.5`: github.com/NVIDIA/Isaac-GR00T, release n1.5

- 256 tokens per view: `tokens_per_tile` of `Eagle2_5_VLProcessor`, and `<image 1><img>...</img>`
  around them: `replace_media_placeholder` in
  `gr00t/model/backbone/eagle2_hg_model/processing_eagle2_5_vl.py`. A picture of 224 x 224 is one
  tile; larger ones are cut into more
- the chat around the text: `py_apply_chat_template` there, with `add_generation_prompt=True`, and
  the text for episodes without one: `gr00t/model/transforms.py`
- one state token and 32 future tokens beside the actions: `num_target_vision_tokens` and `forward`
  in `gr00t/model/action_head/flow_matching_action_head.py`
- 16 action steps: the checkpoint's `action_horizon`, and `gr00t/experiment/data_config.py`

`gr00t-n1.7`: the same repository, release n1.7

- 64 tokens per view: pictures of 256 x 256 (`image_target_size` in
  `gr00t/configs/model/gr00t_n1d7.py`) in patches of 16, merged 2 x 2 (Qwen3-VL). A processor with
  `shortest_image_edge` 256 (`gr00t/model/gr00t_n1d7/image_augmentations.py`) keeps the shape of a
  picture, which Qwen3-VL rounds to multiples of 32: one of 4:3 becomes 256 x 352, 88 tokens
- 40 action steps: `action_horizon` there; one state token and none else beside the actions:
  `forward` in `gr00t/model/gr00t_n1d7/gr00t_n1d7.py`
- lower case without punctuation, the chat without generation prompt: `formalize_language` and
  `_apply_vlm_processing` in `gr00t/model/gr00t_n1d7/processing_gr00t_n1d7.py`; the chat's text is
  Qwen3-VL's template, which writes no system turn of its own

GR00T pads the text to the longest of a batch and shows every view of an embodiment.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from packing.errors import LayoutError
from packing.layout import PaddedRow, TokenLayout
from packing.prompt import IMAGES, PromptTemplate
from packing.prompt_encoder import PromptEncoder
from packing.tokenizer import UTF8_BYTES, Tokenizer, find_tokenizer

_PALIGEMMA: Final = (
    "PaliGemma's paligemma_tokenizer.model, from the public bucket of Google's big_vision:"
    " gs://big_vision/paligemma_tokenizer.model"
)
_EAGLE_SYSTEM: Final = "<|im_start|>system\nYou are a helpful assistant.\n<|im_end|>\n"
_OPENPI_CLEANING: Final = ("strip", "underscores-to-spaces", "newlines-to-spaces")


@dataclass(frozen=True)
class KnownLayout:
    """A layout, and where its model's tokenizer is found ("" for a built-in one)."""

    layout: TokenLayout
    tokenizer_source: str = ""


KNOWN_LAYOUTS: Final[Mapping[str, KnownLayout]] = {
    "compact": KnownLayout(TokenLayout()),
    "pi0": KnownLayout(
        TokenLayout(
            name="pi0",
            image_tokens=256,
            state_tokens=1,
            tokenizer="",
            prompt=PromptTemplate(
                pieces=(IMAGES, "{text}", "\n"),
                cleaning=_OPENPI_CLEANING,
                end=False,
                image_slot="<image>",
            ),
            padded=PaddedRow(cameras=3, text_tokens=48, horizon=50),
        ),
        _PALIGEMMA,
    ),
    "pi0.5": KnownLayout(
        TokenLayout(
            name="pi0.5",
            image_tokens=256,
            state_tokens=0,
            tokenizer="",
            prompt=PromptTemplate(
                pieces=(IMAGES, "Task: {text}, State: {state};\nAction: "),
                cleaning=_OPENPI_CLEANING,
                end=False,
                image_slot="<image>",
            ),
            padded=PaddedRow(cameras=3, text_tokens=200, horizon=50),
        ),
        _PALIGEMMA,
    ),
    "gr00t-n1.5": KnownLayout(
        TokenLayout(
            name="gr00t-n1.5",
            image_tokens=256,
            state_tokens=1,
            extra_tokens=32,
            tokenizer="",
            prompt=PromptTemplate(
                pieces=(
                    _EAGLE_SYSTEM + "<|im_start|>user\n",
                    IMAGES,
                    "{text}<|im_end|>\n<|im_start|>assistant\n",
                ),
                image_frame=("<image {number}><img>", "</img>"),
                default_text="Perform the default behavior.",
                begin=False,
                end=False,
                image_slot="<IMG_CONTEXT>",
            ),
            padded=PaddedRow(horizon=16),
        ),
        "the tokenizer.json of the Eagle 2.5 backbone of nvidia/GR00T-N1.5-3B (its processor is"
        " cached by Isaac-GR00T as eagle2_hg_model; save it with `save_pretrained`)",
    ),
    "gr00t-n1.7": KnownLayout(
        TokenLayout(
            name="gr00t-n1.7",
            image_tokens=64,
            state_tokens=1,
            tokenizer="",
            prompt=PromptTemplate(
                pieces=("<|im_start|>user\n", IMAGES, "{text}<|im_end|>\n"),
                image_frame=("<|vision_start|>", "<|vision_end|>"),
                cleaning=("lowercase", "no-punctuation"),
                begin=False,
                end=False,
                image_slot="<|image_pad|>",
            ),
            padded=PaddedRow(horizon=40),
        ),
        "the tokenizer.json of nvidia/Cosmos-Reason2-2B on Hugging Face",
    ),
}


def find_layout(name: str) -> TokenLayout:
    """The known layout of this name, or that of a JSON file.

    The file has fields of `TokenLayout`; with `"base": "pi0.5"` it changes a known one. Its
    `tokenizer` is a path, relative to the file, or `utf8-bytes`.

    Raises:
        LayoutError: there is neither, or the file is no layout.
    """
    if name in KNOWN_LAYOUTS:
        return KNOWN_LAYOUTS[name].layout
    path = Path(name)
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise LayoutError(
            f"layout {name}: cannot be read: {error}; give a JSON file or one of"
            f" {', '.join(KNOWN_LAYOUTS)}"
        ) from error
    except ValueError as error:
        raise LayoutError(f"layout {name}: is not JSON: {error}") from error
    try:
        return _written(path, raw)
    except LayoutError as error:
        raise LayoutError(f"layout {name}: {error}") from error


def choose_prompt(
    layout: TokenLayout | str, tokenizer: Tokenizer | str | Path | None = None
) -> PromptEncoder:
    """What encodes the prompts of a layout, and completes the layout.

    Args:
        layout: a layout, or the name or file of one.
        tokenizer: a tokenizer, the path of one, `utf8-bytes`, or None for the layout's.

    Raises:
        LayoutError: there is no such layout; no tokenizer is given and the layout has none (says
            where to get it); or the tokenizer cannot be used with the layout.
    """
    if isinstance(layout, str):
        layout = find_layout(layout)
    chosen = tokenizer or layout.tokenizer
    if not chosen:
        known = KNOWN_LAYOUTS.get(layout.name)
        source = known.tokenizer_source if known else "the tokenizer.json or .model of the model"
        raise LayoutError(
            f"layout {layout.name} needs the tokenizer of its model: {source}; pass the file with"
            f" --tokenizer FILE, or plan without a vocabulary by --tokenizer {UTF8_BYTES}"
        )
    if isinstance(chosen, str | Path):
        chosen = find_tokenizer(chosen)
    return PromptEncoder(layout, chosen)


def _written(path: Path, raw: Any) -> TokenLayout:  # noqa: ANN401 - whatever the JSON holds
    """The layout that a file describes."""
    if not isinstance(raw, dict):
        return TokenLayout.from_dict(raw)
    named = raw.get("name", TokenLayout.name)
    own: dict[str, Any] = {} if named == TokenLayout.name else {"tokenizer": ""}
    if (base := raw.pop("base", None)) is not None:
        if not isinstance(base, str) or base not in KNOWN_LAYOUTS:
            raise LayoutError(f"base {base!r} is none of {', '.join(KNOWN_LAYOUTS)}")
        own = {**asdict(KNOWN_LAYOUTS[base].layout), "name": path.stem}
    for name, value in raw.items():
        nested = isinstance(value, dict) and isinstance(own.get(name), dict)
        own[name] = {**own[name], **value} if nested else value
    layout = TokenLayout.from_dict(own)
    if layout.tokenizer in {"", UTF8_BYTES}:
        return layout
    return replace(layout, tokenizer=str(path.parent / layout.tokenizer))

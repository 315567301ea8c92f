"""LIBERO-like windows of pi0.5, as openpi pads them.

`pi05_libero` of github.com/Physical-Intelligence/openpi (`src/openpi/training/config.py`): horizon
10, no state in the text (`discrete_state_input=False`), so the prompt is that of pi0 (instruction,
then a line end by itself; `PaligemmaTokenizer.tokenize`), padded to the default 200 tokens of
`Pi0Config`; `src/openpi/policies/libero_policy.py` fills the third camera with black and masks it.
"""

from pathlib import Path
from typing import Final

from packing.known_layouts import KNOWN_LAYOUTS
from packing.layout import TokenLayout
from packing.prompt import PromptTemplate
from packing.window_spans import WindowSpans
from tools.bench.training_packs import Batches, Packs, Words, load_packs
from tools.bench.training_windows import PIXELS, Robot, make_window_lake
from training.padded import PadTo, padded_batches

HORIZON: Final = 10
OPENPI: Final = "as openpi pads: 3 pictures, 200 text tokens"
_PAD_TO: Final = PadTo(pictures=3, text_tokens=200, action_steps=HORIZON)
_ROBOT: Final = Robot(name="panda", cameras=("agent", "wrist"), steps=HORIZON, state=8, action=7)
# As long as LIBERO's, which have 6 to 19 words.
_INSTRUCTIONS: Final = (
    "switch the lamp on the desk",
    "push the plate to the stove",
    "open the upper drawer of the cabinet",
    "place the wine bottle on the high shelf",
    "take the tomato can and put it into the basket",
    "lift the milk carton and lay it down in the basket",
    "put the yellow mug on the left plate and the white mug on the right one",
    "grasp the black bowl beside the small oven and set it down on the plate",
    "grasp the black bowl between the cup and the spoon and set it down on the plate",
    "grasp the black bowl in the lower drawer of the wooden cabinet and set it down on the plate",
)


def load_libero(folder: Path, *, windows: int, budget_tokens: int) -> Packs:
    """Two pictures of 256 tokens, an instruction, ten actions."""
    pi05, pi0 = (KNOWN_LAYOUTS[name].layout for name in ("pi0.5", "pi0"))
    layout = TokenLayout(
        name="pi0.5-libero",
        image_tokens=pi05.image_tokens,
        state_tokens=0,
        tokenizer="",
        prompt=PromptTemplate(pieces=pi0.prompt.pieces, cleaning=pi0.prompt.cleaning, end=False),
    )
    return load_packs(
        make_window_lake(folder, [_ROBOT], _INSTRUCTIONS, windows=windows),
        spans=WindowSpans(horizon=HORIZON, stride=HORIZON, tail="drop"),
        layout=layout,
        budget_tokens=budget_tokens,
        image_size=PIXELS,
        tokenizer=Words(),
    )


def as_openpi(packs: Packs, batch_size: int) -> Batches:
    """Padded batches of the sizes that openpi computes."""
    return list(padded_batches(packs.whole, batch_size, _PAD_TO))

"""Token ids of prompts: those of the originals, and composable where the state is text."""

from dataclasses import replace
from pathlib import Path

import pytest
import sentencepiece
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.errors import LayoutError
from packing.known_layouts import KNOWN_LAYOUTS, choose_prompt
from packing.layout import TokenLayout
from packing.prompt import IMAGES, PromptTemplate
from packing.prompt_encoder import Prompt, PromptEncoder
from packing.tokenizer import Tokenizer, Utf8Bytes, find_tokenizer
from tests.packing.small_tokenizers import (
    EAGLE_TOKENS,
    gemma_like,
    llama_like,
    merging,
    qwen_like,
    write,
)

STATES = st.lists(st.integers(-1, 255), min_size=1, max_size=9)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizers")
    write(path, "gemma.model", gemma_like())
    write(path, "qwen.json", qwen_like())
    write(path, "eagle.json", qwen_like(EAGLE_TOKENS))
    write(path, "llama.json", llama_like())
    write(path, "merging.json", merging())
    return path


@pytest.fixture(scope="module")
def gemma() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=gemma_like())


def with_state(encoder: PromptEncoder, prompt: Prompt, bins: list[int]) -> list[int]:
    """The ids as a loader writes them."""
    text = encoder.ids.state_text
    assert text is not None
    ids = list(prompt.token_ids)
    ids[prompt.state_at : prompt.state_at] = text.ids(bins)
    return ids


def test_pi0_prompt(folder: Path, gemma: sentencepiece.SentencePieceProcessor) -> None:
    encoder = choose_prompt("pi0", folder / "gemma.model")
    prompt = encoder.encode(" pick_up the\nblock ")
    # `PaligemmaTokenizer.tokenize` without a state: the newline by itself.
    want = [gemma.bos_id(), *gemma.encode("pick up the block"), *gemma.encode("\n")]
    assert list(prompt.token_ids) == want
    assert (prompt.images_at, prompt.state_at) == (0, -1)
    assert list(encoder.encode("").token_ids) == [gemma.bos_id(), *gemma.encode("\n")]
    assert encoder.layout.frame_tokens == 0
    assert encoder.ids.state_text is None


@settings(max_examples=60)
@given(text=WORDS, bins=STATES)
@pytest.mark.parametrize("tokenizer", ["gemma.model", "utf8-bytes"])
def test_pi05_prompt_composes(folder: Path, tokenizer: str, text: str, bins: list[int]) -> None:
    found: Tokenizer = find_tokenizer(folder / tokenizer if "." in tokenizer else tokenizer)
    encoder = _pi05(found)
    cleaned = text.strip().replace("_", " ").replace("\n", " ")
    state = " ".join(map(str, bins))
    whole = found.encode(f"Task: {cleaned}, State: {state};\nAction: ")
    assert found.begin_id is not None
    assert with_state(encoder, encoder.encode(text), bins) == [found.begin_id, *whole]
    numbers = encoder.ids.state_text
    assert numbers is not None
    assert len(list(numbers.ids(bins))) <= numbers.max_tokens(len(bins))


_ENCODERS: dict[str, PromptEncoder] = {}


def _pi05(tokenizer: Tokenizer) -> PromptEncoder:
    if tokenizer.name not in _ENCODERS:
        _ENCODERS[tokenizer.name] = PromptEncoder(KNOWN_LAYOUTS["pi0.5"].layout, tokenizer)
    return _ENCODERS[tokenizer.name]


def test_pi05_state_costs_what_its_digits_cost(folder: Path) -> None:
    text = _pi05(find_tokenizer(folder / "gemma.model")).ids.state_text
    assert text is not None
    # A space and one token per digit: at most four tokens per element, 3.57 in the mean.
    assert [len(list(text.ids([number]))) for number in (7, 42, 255)] == [2, 3, 4]
    assert [len(list(text.ids([0, number]))) - 2 for number in (7, 42, 255)] == [2, 3, 4]
    assert text.max_tokens(7) == 28
    mean = 1 + (10 * 1 + 90 * 2 + 156 * 3) / 256
    assert text.expected_unused(7) == pytest.approx(28 - 7 * mean)


def test_gr00t_n15_prompt(folder: Path) -> None:
    encoder = choose_prompt("gr00t-n1.5", folder / "eagle.json")
    prompt = encoder.encode("Lift the cup.")
    frames = encoder.ids.frames
    eagle = tokenizers.Tokenizer.from_str(qwen_like(EAGLE_TOKENS))
    eagle.no_truncation()
    eagle.no_padding()
    context = encoder.ids.image
    assert context == eagle.token_to_id("<IMG_CONTEXT>")
    ids = list(prompt.token_ids[: prompt.images_at])
    for number in range(3):
        ids += [*frames[number].before, *[context] * 4, *frames[number].after]
    ids += prompt.token_ids[prompt.images_at :]
    # `py_apply_chat_template` and `replace_media_placeholder`, with four tokens in place of 256.
    images = "".join(f"<image {n}><img>{'<IMG_CONTEXT>' * 4}</img>" for n in (1, 2, 3))
    chat = (
        "<|im_start|>system\nYou are a helpful assistant.\n<|im_end|>\n<|im_start|>user\n"
        f"{images}Lift the cup.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids == eagle.encode(chat, add_special_tokens=False).ids
    assert encoder.layout.frame_tokens == len(frames[0]) == len(frames[8])


def test_gr00t_n17_prompt(folder: Path) -> None:
    encoder = choose_prompt("gr00t-n1.7", folder / "qwen.json")
    prompt = encoder.encode("Lift the cup.")
    qwen = tokenizers.Tokenizer.from_str(qwen_like())
    qwen.no_truncation()
    qwen.no_padding()
    pad = encoder.ids.image
    (frame,) = encoder.ids.frames
    ids = list(prompt.token_ids[: prompt.images_at])
    ids += [*frame.before, pad, pad, *frame.after] * 2
    ids += prompt.token_ids[prompt.images_at :]
    image = "<|vision_start|><|image_pad|><|image_pad|><|vision_end|>"
    chat = f"<|im_start|>user\n{image * 2}lift the cup<|im_end|>\n"
    assert ids == qwen.encode(chat, add_special_tokens=False).ids
    assert pad == qwen.token_to_id("<|image_pad|>")


def test_images_are_numbered_up_to_nine(folder: Path) -> None:
    encoder = choose_prompt("gr00t-n1.5", folder / "eagle.json")
    encoder.require_frames(9)
    with pytest.raises(LayoutError, match=r"one has 10: at most 9 can be; take fewer cameras"):
        encoder.require_frames(10)
    choose_prompt("gr00t-n1.7", folder / "qwen.json").require_frames(10_000)


def test_compact_is_begin_bytes_end_and_nothing_for_nothing() -> None:
    encoder = choose_prompt("compact")
    assert encoder.encode("ab") == Prompt((1, 8 + 97, 8 + 98, 2), images_at=0)
    assert encoder.encode("") == Prompt()
    assert encoder.ids.slots == (0, 3, 4)
    assert encoder.vocab_size == Utf8Bytes.vocab_size
    assert encoder.layout == TokenLayout()


def test_begin_stands_before_the_images_where_an_empty_piece_does(folder: Path) -> None:
    template = PromptTemplate(pieces=("", IMAGES, "{text}"))
    encoder = choose_prompt(TokenLayout(prompt=template), folder / "llama.json")
    prompt = encoder.encode("lift")
    assert prompt.images_at == 1
    assert (prompt.token_ids[0], prompt.token_ids[-1]) == (0, 1)


@pytest.mark.parametrize(
    ("layout", "file", "slots"),
    [
        ("pi0", "gemma.model", (0, 420, 421)),  # its own padding, the next ids past 420 pieces
        ("compact", "llama.json", (2, 376, 377)),
        ("gr00t-n1.7", "qwen.json", (0, 5, 379)),
    ],
)
def test_slots_are_no_ids_of_words(
    folder: Path, layout: str, file: str, slots: tuple[int, int, int]
) -> None:
    encoder = choose_prompt(layout, folder / file)
    assert encoder.ids.slots == slots
    assert encoder.vocab_size == max(slots) + 1
    assert len(set(slots)) == 3
    assert not set(slots).intersection(encoder.encode("pick up the block 12").token_ids)


def test_a_text_that_says_a_slot_is_refused(folder: Path) -> None:
    encoder = choose_prompt("gr00t-n1.7", folder / "qwen.json")
    # Its cleaning removes the brackets; without it the special token would be read as one.
    assert encoder.encode("lift <|image_pad|>").token_ids
    layout = encoder.layout
    raw = replace(layout, prompt=replace(layout.prompt, cleaning=()))
    with pytest.raises(LayoutError, match="token id 5, which stands for a slot"):
        choose_prompt(raw, folder / "qwen.json").encode("lift <|image_pad|>")


@pytest.mark.parametrize(
    ("layout", "file", "missing"),
    [
        ("gr00t-n1.5", "qwen.json", "<IMG_CONTEXT>"),
        ("gr00t-n1.7", "eagle.json", r"<\|vision_start\|>, <\|vision_end\|>, <\|image_pad\|>"),
        ("gr00t-n1.7", "gemma.model", r"<\|im_start\|>, <\|im_end\|>"),
    ],
)
def test_the_tokenizer_of_another_model_is_refused(
    folder: Path, layout: str, file: str, missing: str
) -> None:
    with pytest.raises(LayoutError, match=rf"{file} does not have {missing}.*{layout}; use the"):
        choose_prompt(layout, folder / file)
    # Without special tokens in the prompt any tokenizer will do, the slots past its vocabulary.
    plain = replace(KNOWN_LAYOUTS[layout].layout, prompt=PromptTemplate(begin=False, end=False))
    assert choose_prompt(plain, folder / file).encode("lift").token_ids


def test_numbers_that_look_alike_are_refused() -> None:
    class Unknown(Utf8Bytes):
        def encode(self, text: str) -> tuple[int, ...]:
            return super().encode(text.replace("99", "9"))

    with pytest.raises(LayoutError, match="gives several numbers the same ids"):
        choose_prompt("pi0.5", Unknown())
    assert choose_prompt("pi0", Unknown()).encode("99").token_ids


def test_a_tokenizer_that_merges_numbers_is_refused(folder: Path) -> None:
    layout = KNOWN_LAYOUTS["pi0.5"].layout
    with pytest.raises(LayoutError, match=r"merging.json has no begin token.* begin .* to false"):
        choose_prompt(layout, folder / "merging.json")
    without = replace(layout, prompt=replace(layout.prompt, begin=False))
    with pytest.raises(LayoutError, match=r"merging.json: the ids of .*laid end to end"):
        choose_prompt(without, folder / "merging.json")
    plain = replace(layout, prompt=PromptTemplate(begin=False, end=False))
    assert choose_prompt(plain, folder / "merging.json").encode("0 0 0").token_ids


@pytest.mark.parametrize("pair", ["200 17", "17 200", "-1 -1", "255;", " 0 255"])
def test_a_single_merged_pair_of_numbers_is_found(pair: str) -> None:
    class Merging(Utf8Bytes):
        def encode(self, text: str) -> tuple[int, ...]:
            return super().encode(text.replace(pair, "@"))

    layout = KNOWN_LAYOUTS["pi0.5"].layout
    assert choose_prompt(layout, Utf8Bytes()).ids.state_text
    with pytest.raises(LayoutError, match="are not those of its parts laid end to end"):
        choose_prompt(layout, Merging())


def test_a_text_that_moves_the_state_is_refused() -> None:
    class Merging(Utf8Bytes):
        def encode(self, text: str) -> tuple[int, ...]:
            return super().encode(text.replace("cup, State: 255", "@"))

    encoder = choose_prompt(KNOWN_LAYOUTS["pi0.5"].layout, Merging())
    assert encoder.encode("lift the block").token_ids
    with pytest.raises(LayoutError, match=r"lift the cup.* are not those of its parts"):
        encoder.encode("lift the cup")


def test_frames_of_unequal_length_are_refused() -> None:
    class Short(Utf8Bytes):
        def encode(self, text: str) -> tuple[int, ...]:
            return super().encode(text)[: 3 if "7" in text else None]

    layout = TokenLayout(prompt=PromptTemplate(image_frame=("<{number}>", "")))
    assert choose_prompt(layout).layout.frame_tokens == 3
    wide = replace(layout, prompt=replace(layout.prompt, image_frame=("<image {number}>", "")))
    with pytest.raises(LayoutError, match="images 1 to 9 has not the same number of tokens"):
        choose_prompt(wide, Short())

"""Layouts by name and by file; what a sample costs in them, counted by hand."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.errors import LayoutError
from packing.known_layouts import KNOWN_LAYOUTS, choose_prompt, find_layout
from packing.layout import PaddedRow, TokenLayout
from packing.padded_rows import padded_row
from packing.prompt_encoder import PromptEncoder
from packing.spans import Spans, cost_spans
from packing.tokenizer import UTF8_BYTES
from tests.packing.small_tokenizers import gemma_like, write
from tests.packing.synthetic import episode_steps

NAMES = tuple(KNOWN_LAYOUTS)


def windows(
    encoder: PromptEncoder, *, text: str, state_size: int, frames: int, horizon: int
) -> Spans:
    """The window at the first step of an episode as long as the horizon."""
    ids = encoder.ids
    tokens = len(encoder.encode(text).token_ids) + int(ids.most_state_text([state_size])[0])
    steps = episode_steps([horizon], frames=[[frames] * horizon], text_tokens=[tokens])
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    return cost_spans(
        steps,
        encoder.layout,
        episode=zero,
        start=zero,
        stop=one,
        stride=1,
        action_start=zero,
        action_stop=one * horizon,
    )


def test_pi05_with_two_of_three_cameras(tmp_path: Path) -> None:
    encoder = choose_prompt("pi0.5", write(tmp_path, "gemma.model", gemma_like()))
    words = len(encoder.tokenizer.encode("lift the cup"))
    around = len(encoder.encode("lift the cup").token_ids) - words
    spans = windows(encoder, text="lift the cup", state_size=7, frames=2, horizon=50)
    # 256 per camera that is there; the words, what is around them, 7 numbers of at most a space and
    # three digits; 50 action queries.
    assert spans.tokens.tolist() == [2 * 256 + words + around + 7 * 4 + 50]
    assert padded_row(spans, encoder.layout, 2) == (3 * 256 + 200 + 50, 3)


def test_pi0_with_one_of_three_cameras(tmp_path: Path) -> None:
    encoder = choose_prompt("pi0", write(tmp_path, "gemma.model", gemma_like()))
    words = len(encoder.tokenizer.encode("lift the cup"))
    spans = windows(encoder, text="lift the cup", state_size=7, frames=1, horizon=50)
    # Begin, words, newline; a token of the state; 50 action queries.
    assert spans.tokens.tolist() == [256 + 1 + words + 1 + 1 + 50]
    assert padded_row(spans, encoder.layout, 1) == (3 * 256 + 48 + 1 + 50, 3)


@pytest.mark.parametrize(
    ("name", "image", "head"), [("gr00t-n1.5", 256, 1 + 32 + 16), ("gr00t-n1.7", 64, 1 + 40)]
)
def test_gr00t(name: str, image: int, head: int) -> None:
    encoder = choose_prompt(name, UTF8_BYTES)
    text = len(encoder.encode("lift the cup").token_ids)
    frame = encoder.layout.frame_tokens
    horizon = encoder.layout.padded.horizon
    assert horizon is not None
    spans = windows(encoder, text="lift the cup", state_size=7, frames=2, horizon=horizon)
    assert spans.tokens.tolist() == [2 * (image + frame) + text + head]
    # It pads to the longest text and every view: of one sample nothing is padded.
    assert padded_row(spans, encoder.layout, 2) == (int(spans.tokens[0]), 2)
    assert padded_row(spans, encoder.layout, 3)[0] == int(spans.tokens[0]) + image + frame


@given(
    name=st.sampled_from(NAMES),
    frames=st.integers(0, 3),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    state_size=st.integers(1, 9),
    horizon=st.integers(1, 60),
)
def test_what_is_absent_costs_nothing(
    name: str, frames: int, text: str, state_size: int, horizon: int
) -> None:
    encoder = _encoder(name)
    layout = encoder.layout
    spans = windows(encoder, text=text, state_size=state_size, frames=frames, horizon=horizon)
    bare = windows(encoder, text="x", state_size=state_size, frames=0, horizon=1)
    words = len(encoder.encode(text).token_ids) - len(encoder.encode("x").token_ids)
    more = frames * layout.tokens_per_image + words + layout.action_tokens * (horizon - 1)
    assert int(spans.tokens[0]) - int(bare.tokens[0]) == more
    tokens, images = padded_row(spans, layout, 3)
    assert tokens >= int(spans.tokens[0]), "no span is longer than the padded row"
    assert images == 3
    assert horizon > 1 or padded_row(bare, layout, 0)[1] == (layout.padded.cameras or 0)


_ENCODERS = {name: choose_prompt(name, UTF8_BYTES) for name in NAMES}


def _encoder(name: str) -> PromptEncoder:
    return _ENCODERS[name]


def test_a_row_is_never_shorter_than_its_spans_need(tmp_path: Path) -> None:
    encoder = choose_prompt("pi0", write(tmp_path, "gemma.model", gemma_like()))
    long = windows(encoder, text="lift " * 60, state_size=7, frames=4, horizon=70)
    words = len(encoder.encode("lift " * 60).token_ids)
    assert words > 48
    assert padded_row(long, encoder.layout, 4) == (4 * 256 + words + 1 + 70, 4)


def test_find_by_name() -> None:
    assert find_layout("compact") == TokenLayout()
    assert find_layout("pi0.5").padded == PaddedRow(cameras=3, text_tokens=200, horizon=50)
    assert find_layout("gr00t-n1.5").extra_tokens == 32


@pytest.mark.parametrize("name", [name for name in NAMES if name != "compact"])
def test_a_model_needs_its_tokenizer(name: str) -> None:
    with pytest.raises(
        LayoutError, match=rf"{name} needs the tokenizer of its model: .*--tokenizer"
    ):
        choose_prompt(name)
    assert choose_prompt(name, UTF8_BYTES).layout.tokenizer == UTF8_BYTES


def written(tmp_path: Path, **fields: Any) -> str:
    return str(write(tmp_path, "mine.json", json.dumps(fields)))


def test_a_file_may_change_a_known_layout(tmp_path: Path) -> None:
    layout = find_layout(written(tmp_path, base="pi0.5", image_tokens=64, padded={"cameras": 2}))
    known = find_layout("pi0.5")
    assert (layout.name, layout.image_tokens, layout.prompt) == ("mine", 64, known.prompt)
    assert layout.padded == PaddedRow(cameras=2, text_tokens=200, horizon=50)
    other = find_layout(written(tmp_path, base="pi0", name="x", prompt={"cleaning": ["strip"]}))
    assert other.prompt.cleaning == ("strip",)
    assert other.prompt.pieces == ("{images}", "{text}", "\n")


def test_pi05_without_a_state_in_its_text(tmp_path: Path) -> None:
    file = written(tmp_path, base="pi0.5", prompt={"pieces": ["{images}", "{text}", "\n"]})
    model = write(tmp_path, "gemma.model", gemma_like())
    encoder, pi0 = choose_prompt(file, model), choose_prompt("pi0", model)
    assert encoder.encode(" lift_it ") == pi0.encode(" lift_it ")
    assert (encoder.ids.state_text, encoder.layout.state_tokens) == (None, 0)
    assert encoder.layout.padded.text_tokens == 200


def test_a_file_of_its_own(tmp_path: Path) -> None:
    assert find_layout(written(tmp_path, image_tokens=4)) == TokenLayout(image_tokens=4)
    named = find_layout(written(tmp_path, name="own", image_tokens=4))
    assert named.tokenizer == ""
    with pytest.raises(LayoutError, match=r"own needs the tokenizer .*tokenizer.json or .model"):
        choose_prompt(named)


def test_a_tokenizer_named_in_a_file_lies_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "gemma.model", gemma_like())
    encoder = choose_prompt(written(tmp_path, base="pi0", tokenizer="gemma.model"))
    assert encoder.layout.tokenizer == "gemma.model"
    assert choose_prompt(written(tmp_path, base="pi0", tokenizer=UTF8_BYTES)).vocab_size == 264


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{", "mine.json: is not JSON"),
        ("[]", "mine.json: token layout: .*its fields are: name, image_tokens"),
        ('{"base": "pi1"}', "mine.json: base 'pi1' is none of compact, pi0"),
        ('{"pixels": 3}', "mine.json: token layout: .*pixels.*those of padded: cameras"),
        ('{"padded": {"width": 3}}', "width"),
        ('{"padded": {"cameras": 0}}', "padded cameras is 0, expected a whole number 1..65536"),
        ('{"prompt": {"pieces": ["{text}"]}}', "{images} must be one piece"),
        ('{"image_tokens": "many"}', "image_tokens is 'many', expected a whole number"),
        ('{"base": ["pi0"]}', "base .'pi0'. is none of compact"),
        ('{"padded": {"cameras": 2.5}}', "padded cameras is 2.5, expected a whole number"),
        ('{"tokenizer": 5}', "tokenizer is 5, expected a text"),
        ('{"name": null}', "name is None, expected a text"),
    ],
)
def test_files_that_are_no_layout(tmp_path: Path, content: str, match: str) -> None:
    path = write(tmp_path, "mine.json", content)
    with pytest.raises(LayoutError, match=match):
        find_layout(str(path))


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(LayoutError, match=r"pi0.6: cannot be read: .*compact, pi0, pi0.5, gr00t"):
        find_layout("pi0.6")


@pytest.mark.parametrize("name", NAMES)
def test_json_and_back(name: str) -> None:
    layout = _encoder(name).layout
    assert TokenLayout.from_json(json.dumps(asdict(layout))) == layout

"""The cost model: what it adds up, its integers, and the file it travels in."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.cost import CostModel, MeasuredCost
from packing.errors import PlanError

weights = st.integers(0, 1 << 30)


def units(cost: CostModel, tokens: int, sum_sq: int, images: int, spans: int) -> int:
    columns = (np.array([value], np.int64) for value in (tokens, sum_sq, images, spans))
    return int(cost.units(*columns)[0])


@given(
    st.builds(
        CostModel,
        per_token=st.integers(1, 1 << 30),
        per_square=weights,
        per_image=weights,
        per_span=weights,
        per_pack=weights,
    ),
    st.lists(
        st.tuples(
            st.integers(0, 1 << 24),
            st.integers(0, 1 << 48),
            st.integers(0, 1 << 20),
            st.integers(0, 1 << 20),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_cost_is_exact_or_refused_for_its_size(
    cost: CostModel, packs: list[tuple[int, int, int, int]]
) -> None:
    expected = [
        cost.per_pack
        + cost.per_token * tokens
        + cost.per_square * squares
        + cost.per_image * images
        + cost.per_span * spans
        for tokens, squares, images, spans in packs
    ]
    columns = [np.array(column, np.int64) for column in zip(*packs, strict=True)]
    if sum(expected) > (1 << 62) * 1.001:
        with pytest.raises(PlanError, match="int64 cannot hold"):
            cost.units(*columns)
    elif sum(expected) < (1 << 62) * 0.999:
        got = cost.units(*columns)
        assert got.dtype == np.int64
        assert got.tolist() == expected


def test_narrow_columns_do_not_wrap() -> None:
    tokens, images = np.array([1 << 24], np.int32), np.array([1 << 20], np.int32)
    cost = CostModel(per_token=1 << 20, per_square=1, per_image=1 << 20)
    got = cost.units(tokens, np.array([7]), images, np.array([3]))
    assert got.tolist() == [(1 << 44) + 7 + (1 << 40)]


def test_width_gives_linear_plus_quadratic_in_whole_units() -> None:
    assert CostModel.of_width(10) == CostModel(per_token=60, per_square=1)
    assert units(CostModel.of_width(10), 100, 600, 3, 2) == 100 * 60 + 600


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"per_token": -1}, "per_token must be a whole number"),
        ({"per_square": 0.5}, r"per_square must be a whole number, at least 0, is 0\.5"),
        ({"per_image": True}, "per_image"),
        ({"per_token": 0, "per_square": 0}, "both 0"),
    ],
)
def test_nonsense_is_refused_by_name(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(PlanError, match=match):
        CostModel(**{"per_token": 1, "per_square": 1, **changes})


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (CostModel.of_width(1024), "tokens + squared lengths / 6144"),
        (
            CostModel(per_token=100, per_square=0, per_image=250, per_span=50, per_pack=7),
            "tokens + 2.5 per image + 0.5 per span + 0.07 per pack",
        ),
        (
            CostModel(per_token=0, per_square=3),
            "per_token 0, per_square 3, per_image 0, per_span 0, per_pack 0",
        ),
    ],
)
def test_in_words(cost: CostModel, words: str) -> None:
    assert str(cost) == words


def test_width_below_one_is_refused() -> None:
    with pytest.raises(PlanError, match="d_model must be at least 1, is 0"):
        CostModel.of_width(0)


@given(
    st.floats(1e-9, 1e-5),
    st.floats(0, 1e-9),
    st.floats(0, 1e-2),
    st.floats(0, 1e-2),
    st.floats(0, 1e-2),
    st.integers(10, 15),
)
def test_whole_weights_keep_the_cost_of_measured_ones(
    token: float, square: float, image: float, span: float, pack: float, power: int
) -> None:
    tokens = 1 << power

    def seconds(length: int, images: int) -> float:
        linear = pack + token * tokens + span * (tokens // length)
        return linear + square * tokens * length + image * images

    cost, unit_s = CostModel.of_seconds(
        per_token=token,
        per_square=square,
        per_image=image,
        per_span=span,
        per_pack=pack,
        reference_s=seconds(tokens // 4, 0),
    )
    for length in (1, 64, tokens):
        for images in (0, 100):
            got = units(cost, tokens, tokens * length, images, tokens // length) * unit_s
            assert got == pytest.approx(seconds(length, images), rel=1e-2)
    packs = np.full(1 << 16, tokens, np.int64)
    assert (cost.units(packs, packs * (tokens // 4), packs * 0, packs * 0 + 4) > 0).all()


MEASURED = MeasuredCost(
    cost=CostModel(per_token=6000, per_square=3, per_image=7, per_pack=90000),
    unit_s=1.25e-12,
    relative_error=0.02,
    check_error=0.03,
    measured={"device": "a device", "dtype": "bfloat16", "d_model": 1024},
)


def test_file_comes_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    MEASURED.write(path)
    assert MeasuredCost.read(path) == MEASURED
    assert [entry.name for entry in tmp_path.iterdir()] == ["cost.json"]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda raw: raw.pop("kind"), "not a cost file; make one with `headrace bench cost"),
        (lambda raw: raw.update(version=2), "version 2, this Headrace reads 1"),
        (lambda raw: raw["cost"].pop("per_token"), "not a cost file .*per_token"),
        (lambda raw: raw["cost"].update(per_token=1.5), "not a cost file .*whole number"),
        (lambda raw: raw.pop("cost"), "not a cost file .*cost"),
        (lambda raw: raw.update(cost=3), "not a cost file"),
    ],
)
def test_file_of_something_else_is_refused_by_name(tmp_path: Path, change: Any, match: str) -> None:
    path = tmp_path / "cost.json"
    MEASURED.write(path)
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))
    with pytest.raises(PlanError, match=f"cost.json: {match}"):
        MeasuredCost.read(path)


@pytest.mark.parametrize("content", [None, "{", "[]", b"\xff"])
def test_file_that_is_no_json_object_is_refused_by_name(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "cost.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(PlanError, match=r"cost\.json: (cannot be read|not a cost file)"):
        MeasuredCost.read(path)


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"cost\.json: cannot be written"):
        MEASURED.write(tmp_path / "no" / "cost.json")

"""Compiled and plain shuffle-fill make the same packs; either is chosen without a word."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing import shuffle_fill as module
from packing.packs import Load, Packing
from packing.seeded import permutation
from packing.shuffle_fill import plain_fill, shuffle_fill
from tests.packing.synthetic import lognormal_lengths


def tokens(values: Any, limit: int) -> Load:
    return Load(name="tokens", per_span=np.asarray(values, np.int32), limit=limit)


@pytest.fixture(scope="module")
def compiled() -> Callable[..., Packing]:
    pytest.importorskip("numba")
    from packing.compiled_fill import compiled_fill

    compiled_fill(np.zeros(1, np.int32), [tokens([1], 1)], 1)  # compiled once, or loaded
    return compiled_fill


def assert_equal(one: Packing, other: Packing) -> None:
    assert one.items.tolist() == other.items.tolist()
    assert one.offsets.tolist() == other.offsets.tolist()


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[int], list[Load], int]:
    """An order with repeats, its loads with some caps, and a look-ahead."""
    # Budgets around powers of 32, where a level of the set of sizes is added.
    budget = draw(st.sampled_from([1, 7, 31, 32, 33, 1023, 1024, 1025, 40_000]))
    n = draw(st.integers(1, 40))

    def column(least: int, most: int) -> list[int]:
        return draw(st.lists(st.integers(least, most), min_size=n, max_size=n))

    loads = [tokens(column(1, draw(st.sampled_from([budget, max(1, budget // 5)]))), budget)]
    if draw(st.booleans()):
        loads.append(Load(name="images", per_span=np.array(column(0, 3), np.int32), limit=4))
        loads.append(Load(name="spans", per_span=np.ones(n, np.int32), limit=draw(st.just(3))))
    order = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=80))
    return order, loads, draw(st.integers(1, 50))


@given(stream=streams())
@settings(deadline=None)
def test_equals_the_plain_packing(
    compiled: Callable[..., Packing], stream: tuple[list[int], list[Load], int]
) -> None:
    order, loads, look_ahead = stream
    indices = np.array(order, np.int32)
    packing = compiled(indices, loads, look_ahead)
    assert packing.items.dtype == np.int32
    assert_equal(packing, plain_fill(indices, loads, look_ahead))


@pytest.mark.parametrize("step", [1, 4, 16])
def test_equals_the_plain_packing_of_a_long_stream(
    compiled: Callable[..., Packing], step: int
) -> None:
    load = tokens(lognormal_lengths(20_000, step=step), 8192)
    order = permutation(20_000, 0)
    assert_equal(compiled(order, [load], 1024), plain_fill(order, [load], 1024))


def test_long_streams_are_packed_by_the_compiled_one(
    compiled: Callable[..., Packing], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def spy(order: Any, loads: Any, look_ahead: int) -> Packing:
        calls.append(len(order))
        return compiled(order, loads, look_ahead)

    monkeypatch.setattr("packing.compiled_fill.compiled_fill", spy)
    monkeypatch.setattr(module, "WORTH_COMPILING", 10)
    for n in (9, 10):
        shuffle_fill(np.arange(n, dtype=np.int32), [tokens([3] * n, 10)], 4)
    assert calls == [10]


def test_without_numba_the_packs_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTH_COMPILING", 1)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "packing.compiled_fill", raising=False)
    load = tokens(lognormal_lengths(500), 8192)
    order = permutation(500, 0)
    assert_equal(shuffle_fill(order, [load], 64), plain_fill(order, [load], 64))
    assert "packing.compiled_fill" not in sys.modules


def test_where_nothing_can_be_kept_on_disk_it_compiles_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numba = pytest.importorskip("numba")
    from packing import compiled_fill

    njit, asked = numba.njit, []

    def read_only(function: Any, *, cache: bool = False, **options: Any) -> Any:
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(function, **options)

    monkeypatch.setattr(numba, "njit", read_only)
    assert compiled_fill._jit(_sum)(2, 3) == 5
    assert asked == [True, False]


def _sum(a: int, b: int) -> int:
    return a + b

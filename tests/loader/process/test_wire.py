"""A batch survives its buffer; a damaged buffer is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake import Lake
from loader import PackLoader
from loader.batch import NumpyBatch
from loader.errors import BatchError
from loader.process.wire import Frame, read_batch
from packing.plan import Plan
from tests.loader.scenes import digest, written

_DTYPES = ["int64", "int32", "int16", "uint8", "bool", "float32"]


@pytest.fixture(scope="module")
def batch(scene: Lake, plan: Plan) -> NumpyBatch:
    with PackLoader(scene, plan, process="inline", framework="numpy") as loader:
        return next(iter(loader))


def test_a_batch_is_the_same_after_the_buffer(batch: NumpyBatch) -> None:
    again = read_batch(written(batch))
    assert digest(again) == digest(batch)
    assert again.scalars() == batch.scalars()


def test_arrays_are_views_of_the_buffer(batch: NumpyBatch) -> None:
    buffer = written(batch)
    assert all(
        np.shares_memory(array, buffer) for _, array in read_batch(buffer).arrays() if array.size
    )


@given(
    arrays=st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.tuples(
            st.sampled_from(_DTYPES),
            st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple),
        ),
        max_size=12,
    ),
    slack=st.integers(0, 100),
)
def test_any_layout_parses_back_aligned_and_without_overlap(
    arrays: dict[str, tuple[str, tuple[int, ...]]], slack: int
) -> None:
    frame = Frame.plan({"step": 3, "text": "\u00e9"}, arrays)
    buffer = np.zeros(frame.nbytes + slack, np.uint8)
    views = frame.views(buffer)
    for number, view in enumerate(views.values()):
        view[...] = number % 2 if view.dtype == np.bool_ else number
    parsed = Frame.parse(buffer)
    assert parsed.places == frame.places
    assert parsed.scalars == frame.scalars
    assert all(place.offset % 64 == 0 for place in parsed.places)
    for number, view in enumerate(views.values()):
        assert (view == (number % 2 if view.dtype == np.bool_ else number)).all()


def test_every_cut_of_a_buffer_is_refused(batch: NumpyBatch) -> None:
    buffer = written(batch)
    frame = Frame.parse(buffer)
    last = max(place.offset + place.nbytes for place in frame.places)
    for cut in [0, 1, 15, 16, 100, len(frame.header), last - 1]:
        with pytest.raises(BatchError):
            read_batch(buffer[:cut].copy())


@pytest.mark.parametrize("byte", [0, 4])
def test_another_magic_or_version_is_refused(batch: NumpyBatch, byte: int) -> None:
    buffer = written(batch)
    buffer[byte] += 1
    with pytest.raises(BatchError, match="layout 1"):
        read_batch(buffer)


def test_a_buffer_that_is_too_small_is_refused(batch: NumpyBatch) -> None:
    buffer = written(batch)
    with pytest.raises(BatchError, match="in a buffer of"):
        Frame.parse(buffer).views(buffer[:-1])


def test_a_frame_of_other_arrays_is_no_batch() -> None:
    frame = Frame.plan({"step": 1}, {"input_ids": ("int64", (3,))})
    buffer = np.zeros(frame.nbytes, np.uint8)
    frame.views(buffer)
    with pytest.raises(BatchError, match="lacks position_ids"):
        read_batch(buffer)

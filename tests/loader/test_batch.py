"""PackedBatch: checks, trimming, adapters."""

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lake import Lake
from loader import PackLoader
from loader.batch import ARRAY_FIELDS, NumpyBatch, PackedBatch
from loader.errors import BatchError
from packing.plan import Plan
from tests.loader.scenes import as_numpy


@pytest.fixture(scope="module")
def batch(scene: Lake, plan: Plan) -> NumpyBatch:
    with PackLoader(scene, plan, process="inline", framework="numpy") as loader:
        return next(batch for batch in loader if batch.images and batch.num_tokens < 250)


@pytest.fixture(scope="module")
def empty(scene: Lake, plan: Plan) -> NumpyBatch:
    """The pack of a rank without a slot."""
    slots = plan.header.slots_per_step
    with PackLoader(
        scene, plan, slots - 2, slots - 1, process="inline", framework="numpy"
    ) as loader:
        return next(batch for batch in loader if batch.slot >= slots)


@pytest.mark.parametrize("name", list(ARRAY_FIELDS))
def test_a_wrong_shape_or_dtype_is_refused(batch: NumpyBatch, name: str) -> None:
    array: Any = getattr(batch, name)
    longer = np.concatenate([array, array[:1]]) if len(array) else np.zeros((3, *array.shape[1:]))
    for wrong in (longer.astype(array.dtype), array.astype(np.float64), array[None]):
        change: Any = {name: wrong}
        with pytest.raises(BatchError):
            replace(batch, **change)


def test_wrong_pictures_and_counts_are_refused(batch: NumpyBatch) -> None:
    with pytest.raises(BatchError, match="in buckets"):
        replace(batch, images=())
    with pytest.raises(BatchError, match="float32"):
        replace(batch, images=tuple(b.astype(np.float32) for b in batch.images))
    with pytest.raises(BatchError, match="yuv"):
        replace(batch, image_format="yuv")
    with pytest.raises(BatchError, match="segments"):
        replace(batch, num_spans=len(batch.span_ids) + 1)


@pytest.mark.parametrize("multiple", [1, 16, 64])
def test_trimmed_drops_pads_alone(batch: NumpyBatch, multiple: int) -> None:
    short = batch.trimmed(multiple)
    tokens = len(short.input_ids)
    assert tokens == -(-batch.num_tokens // multiple) * multiple
    for name, axes in ARRAY_FIELDS.items():
        if axes.shape == "T":
            assert np.array_equal(getattr(short, name), getattr(batch, name)[:tokens])
    assert short.cu_seqlens.tolist() == np.minimum(batch.cu_seqlens, tokens).tolist()
    assert len(short.cu_seqlens) == len(batch.cu_seqlens)
    queries, before = len(batch.actions), len(batch.input_ids)
    keys = np.arange(before + queries)[batch.kv_index]
    kept = keys[(keys < tokens) | (keys >= before)]
    expected = np.where(kept >= before, kept - before + tokens, kept)
    assert short.kv_index.tolist() == expected.tolist()
    assert short.cu_seqlens_kv[-1] == tokens + queries
    spans = slice(0, batch.num_spans + 1)
    assert short.cu_seqlens_kv[spans].tolist() == batch.cu_seqlens_kv[spans].tolist()


def test_trimmed_leaves_an_empty_pack_one_segment(empty: NumpyBatch) -> None:
    assert empty.num_spans == empty.num_tokens == 0
    assert empty.pack == -1
    assert len(empty.trimmed().input_ids) == 1
    assert len(empty.trimmed(32).input_ids) == 32
    assert empty.trimmed(32).cu_seqlens[-1] == 32


def test_trimmed_refuses_nonsense(batch: NumpyBatch) -> None:
    with pytest.raises(BatchError, match="at least 1"):
        batch.trimmed(0)


def test_trimmed_is_the_same_in_torch(scene: Lake, plan: Plan, batch: NumpyBatch) -> None:
    with PackLoader(scene, plan, process="inline") as loader:
        same = next(b for b in loader if (b.step, b.slot) == (batch.step, batch.slot)).trimmed(8)
    for name, array in batch.trimmed(8).arrays():
        assert np.array_equal(as_numpy(dict(same.arrays())[name]), array), name


def test_to_and_nbytes(scene: Lake, plan: Plan) -> None:
    with PackLoader(scene, plan, process="inline") as loader:
        batch: PackedBatch[Any] = next(iter(loader))
    there = batch.to("meta", non_blocking=True)
    assert all(tensor.is_meta for _, tensor in there.arrays())
    assert there.scalars() == batch.scalars()
    assert there.nbytes == batch.nbytes == sum(t.nbytes for _, t in batch.arrays())


def test_adapters_name_what_each_library_takes(batch: NumpyBatch) -> None:
    from torch.nn.attention.varlen import varlen_attn

    assert set(batch.torch()) <= set(inspect.signature(varlen_attn).parameters)
    assert batch.flash() == {
        "cu_seqlens_q": batch.cu_seqlens,
        "cu_seqlens_k": batch.cu_seqlens,
        "max_seqlen_q": batch.max_seqlen,
        "max_seqlen_k": batch.max_seqlen,
    }
    action = batch.te("action")
    assert action["qkv_format"] == "thd"
    assert action["cu_seqlens_q"] is batch.cu_seqlens_action
    assert action["cu_seqlens_kv"] is batch.cu_seqlens_kv
    assert action["max_seqlen_kv"] == batch.max_seqlen_kv
    assert batch.torch("cross")["cu_seq_k"] is batch.cu_seqlens
    assert batch.hf()["position_ids"].shape == (1, len(batch.input_ids))
    assert batch.hf()["cu_seq_lens_q"] is batch.cu_seqlens
    with pytest.raises(BatchError, match="unknown stream"):
        batch.flash("prefx")  # type: ignore[arg-type]  # a caller's slip


def test_scalars_are_named_once(batch: NumpyBatch) -> None:
    assert set(batch.scalars()) | set(ARRAY_FIELDS) | {"images"} == set(
        PackedBatch.__dataclass_fields__
    )

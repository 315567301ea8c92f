"""Tensors over the batch's memory, and the dataset face."""

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from lake import Lake
from loader import LoaderError, PackDataset, PackLoader, torch_face
from loader.batch import NumpyBatch
from loader.torch_face import torch_batch
from packing.plan import Plan
from tests.loader.scenes import digest, written


@pytest.fixture(scope="module")
def batch(scene: Lake, plan: Plan) -> NumpyBatch:
    with PackLoader(scene, plan, process="inline", framework="numpy") as loader:
        return next(iter(loader))


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "loader.torch_face")
    with pytest.raises(LoaderError, match=r"headrace\[torch\].*framework='numpy'"):
        importlib.import_module("loader.torch_face")


def test_tensors_share_the_buffer_s_memory(batch: NumpyBatch) -> None:
    buffer = written(batch)
    tensors = torch_batch(buffer)
    assert digest(tensors) == digest(batch)
    begin = buffer.ctypes.data
    for name, tensor in tensors.arrays():
        if tensor.numel():
            assert begin <= tensor.data_ptr() < begin + len(buffer), name
    before = int(tensors.input_ids[0])
    tensors.input_ids[0] += 7
    assert int(torch_batch(buffer).input_ids[0]) == before + 7


def test_dtypes_are_torch_s(batch: NumpyBatch) -> None:
    buffer = written(batch)
    tensors = torch_batch(buffer)
    assert tensors.cu_seqlens.dtype == torch.int32
    assert tensors.action_dim_mask.dtype == torch.bool
    assert tensors.images[0].dtype == torch.uint8
    assert tensors.state.dtype == torch.float32


@pytest.mark.parametrize("process", ["inline", "child"])
def test_a_data_loader_passes_batches_on(scene: Lake, plan: Plan, process: Any) -> None:
    with PackLoader(scene, plan, process="inline", framework="numpy") as loader:
        expected = [digest(batch) for batch in loader]
    with PackLoader(scene, plan, process=process) as loader:
        dataset = PackDataset(loader)
        assert [digest(b) for b in DataLoader(dataset, batch_size=None)] == expected
        assert dataset.state_dict()["next_step"] == plan.num_steps
        dataset.load_state_dict({**dataset.state_dict(), "next_step": 2})
        resumed = [digest(b) for b in DataLoader(dataset, batch_size=None)]
    assert resumed == expected[2 * plan.header.slots_per_step :]


def test_a_worker_of_torch_may_start_the_decode_process(scene: Lake, plan: Plan) -> None:
    loader = PackLoader(scene, plan)
    steps = [
        batch.step
        for batch in DataLoader(
            PackDataset(loader), batch_size=None, num_workers=1, multiprocessing_context="spawn"
        )
    ]
    assert steps == [step for step in range(plan.num_steps) for _ in range(3)]


def test_several_workers_of_torch_are_refused(
    scene: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_face, "get_worker_info", lambda: SimpleNamespace(num_workers=2))
    with pytest.raises(LoaderError, match="num_workers=0"):
        iter(PackDataset(PackLoader(scene, plan, process="inline")))


def test_a_numpy_loader_is_no_torch_dataset(scene: Lake, plan: Plan) -> None:
    with pytest.raises(LoaderError, match="framework='torch'"):
        PackDataset(PackLoader(scene, plan, framework="numpy"))

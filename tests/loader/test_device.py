"""Batches copied ahead: the same batches, the same position, nothing overwritten too early."""

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

from lake import Lake
from lake.errors import LakeError
from loader import LoaderError, PackLoader, on_device
from loader.device import CudaCopier, PlainCopier, copied_ahead
from loader.pack_loader import Process
from loader.process.received import Received
from loader.torch_face import Batch, torch_batch
from packing.plan import Plan
from tests.loader.scenes import digest, written

CPU = torch.device("cpu")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def _loader(scene: Lake, plan: Plan, **options: Any) -> PackLoader:
    return PackLoader(scene, plan, **{"process": "inline", **options})


def _moments(loader: PackLoader, batches: Iterator[Batch]) -> list[tuple[str, int]]:
    """Of each batch its content and the position saved while it is used."""
    return [(digest(batch), loader.state_dict()["next_step"]) for batch in batches]


@pytest.fixture(scope="module")
def expected(scene: Lake, plan: Plan) -> list[tuple[str, int]]:
    with _loader(scene, plan) as loader:
        return _moments(loader, iter(loader))


@pytest.mark.parametrize(
    ("ahead", "process"),
    [(0, "inline"), (1, "inline"), (4, "inline"), (1000, "inline"), (1, "child")],
)
def test_the_position_is_that_of_the_batch_in_use(
    scene: Lake,
    plan: Plan,
    expected: list[tuple[str, int]],
    ahead: int,
    process: Process,
) -> None:
    with _loader(scene, plan, process=process) as loader:
        assert _moments(loader, on_device(loader, "cpu", ahead=ahead)) == expected


@pytest.mark.parametrize(("rank", "world_size"), [(0, 2), (1, 2), (2, 3)])
def test_ranks_with_and_without_a_last_slot(
    scene: Lake, plan: Plan, rank: int, world_size: int
) -> None:
    with _loader(scene, plan, rank=rank, world_size=world_size) as loader:
        plain = _moments(loader, iter(loader))
        loader.load_state_dict({**loader.state_dict(), "next_step": 0})
        assert _moments(loader, on_device(loader, "cpu")) == plain


def test_resumes_again_and_again(scene: Lake, plan: Plan, expected: list[tuple[str, int]]) -> None:
    """Stopped within a step, a step is begun anew: its earlier packs have changed no weights."""
    seen: dict[int, str] = {}
    state: dict[str, Any] | None = None
    for stop in (4, 7, 2, 1000):
        with _loader(scene, plan) as loader:
            if state is not None:
                loader.load_state_dict(state)
            position = loader.next_step * loader.packs_per_step
            for number, batch in enumerate(on_device(loader, "cpu", ahead=2)):
                seen[position + number] = digest(batch)
                state = loader.state_dict()
                if number == stop:
                    break
    assert [seen[number] for number in range(len(expected))] == [each for each, _ in expected]


def test_leaving_early_ends_the_decode_process(
    scene: Lake, plan: Plan, open_fds: Callable[[], int]
) -> None:
    before = open_fds()
    loader = _loader(scene, plan, process="child")
    batches = on_device(loader, "cpu")
    next(batches)
    loader.close()
    assert list(batches) == []
    assert loader.next_step == 0
    assert open_fds() <= before


def _received(scene: Lake, plan: Plan, count: int) -> list[Received]:
    with PackLoader(scene, plan, process="inline", framework="numpy") as loader:
        buffers = [written(batch) for batch, _ in zip(loader, range(count), strict=False)]
    return [
        Received(position=number, memory=memory, spans=1, steps=1)
        for number, memory in enumerate(buffers)
    ]


def test_an_error_comes_after_the_batches_before_it(scene: Lake, plan: Plan) -> None:
    received = _received(scene, plan, 3)

    def failing() -> Iterator[Received]:
        yield from received
        raise LakeError("no such block")

    batches = copied_ahead(failing(), copier=PlainCopier(CPU), ahead=2)
    assert [batch.slot for batch in (next(batches), next(batches), next(batches))] == [0, 1, 2]
    with pytest.raises(LakeError, match="no such block"):
        next(batches)


def test_unusable_requests(scene: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LoaderError, match=r"ahead=-1"):
        on_device(_loader(scene, plan), "cpu", ahead=-1)
    with pytest.raises(LoaderError, match="framework='torch'"):
        on_device(_loader(scene, plan, framework="numpy"), "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(LoaderError, match="sees no CUDA device; use device='cpu'"):
        on_device(_loader(scene, plan), "cuda")
    with pytest.raises(LoaderError, match=r"device='gpu'.*no device of torch"):
        on_device(_loader(scene, plan), "gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(LoaderError, match=r"device='cuda:2'.*2 CUDA devices, 0 to 1"):
        on_device(_loader(scene, plan), torch.device("cuda:2"))


def test_a_second_iteration_or_another_position_ends_the_first(
    scene: Lake, plan: Plan, expected: list[tuple[str, int]]
) -> None:
    with _loader(scene, plan) as loader:
        first = on_device(loader, "cpu", ahead=3)
        next(first)
        second = on_device(loader, "cpu", ahead=3)
        assert next(first, None) is None
        begun = _moments(loader, itertools.islice(second, 4))
        assert begun == expected[:4]
        loader.load_state_dict(loader.state_dict())  # within the second step
        assert next(second, None) is None
        assert _moments(loader, on_device(loader, "cpu", ahead=3)) == expected[3:]


class FakeCuda:
    """Stands in for CUDA's streams: a copy happens when the host waits for it.

    That is as late as the real one may be, so what is overwritten too early shows.
    """

    def __init__(self) -> None:
        self.pending: list[Callable[[], object]] = []
        self.pinned: list[torch.Tensor] = []
        self.ordered: list[str] = []

    def catch_up(self) -> None:
        while self.pending:
            self.pending.pop(0)()


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    real_empty, real_copy = torch.empty, torch.Tensor.copy_

    class Event:
        def record(self, _stream: object) -> None:
            pass

        def synchronize(self) -> None:
            fake.catch_up()

    class Stream:
        def __init__(self, _device: object) -> None:
            pass

        def wait_event(self, _event: Event) -> None:  # the device waits, the host does not
            fake.ordered.append("wait_event")

    def empty(*args: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        made = real_empty(*args, **options)
        if pin_memory:
            fake.pinned.append(made)
        return made

    def copy_(self: torch.Tensor, source: torch.Tensor, *, non_blocking: bool = False) -> Any:
        if not non_blocking:
            return real_copy(self, source)
        fake.pending.append(lambda: real_copy(self, source))
        return self

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.Tensor, "copy_", copy_)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda *_: fake.ordered.append("record_stream")
    )
    return fake


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_staging_memory_is_used_again_when_it_has_been_read(
    scene: Lake,
    plan: Plan,
    expected: list[tuple[str, int]],
    fake_cuda: FakeCuda,
    ahead: int,
) -> None:
    copier = CudaCopier(CPU, staging=ahead + 1)
    with _loader(scene, plan) as loader:
        batches = list(loader.hand_out(partial(copied_ahead, copier=copier, ahead=ahead)))
    fake_cuda.catch_up()
    assert [digest(batch) for batch in batches] == [each for each, _ in expected]
    assert ahead + 1 <= len(fake_cuda.pinned) < len(expected) / 2
    assert fake_cuda.ordered == ["wait_event", "record_stream"] * len(expected)


def test_memory_that_was_copied_is_free_at_once(
    scene: Lake, plan: Plan, fake_cuda: FakeCuda
) -> None:
    (received,) = _received(scene, plan, 1)
    gone = weakref.ref(received.memory)
    before = digest(torch_batch(received.memory))
    under_way = CudaCopier(CPU, staging=1).begin(received)
    received.memory[:] = 0
    del received
    assert gone() is None
    fake_cuda.catch_up()
    assert digest(under_way.arrive()) == before


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_on_a_gpu(scene: Lake, plan: Plan, expected: list[tuple[str, int]], ahead: int) -> None:
    """With work queued on the current stream, so that memory freed too early would be refilled."""
    busy = torch.randn(2048, 2048, device="cuda")
    seen = []
    with _loader(scene, plan, process="child") as loader:
        for batch in on_device(loader, "cuda", ahead=ahead):
            assert batch.input_ids.is_cuda
            for _ in range(20):
                busy = (busy @ busy).clamp(-1, 1)
            copied = batch.with_arrays({name: a.clone() for name, a in batch.arrays()})
            seen.append((copied, loader.state_dict()["next_step"]))
            del batch
    assert [(digest(batch.to("cpu")), step) for batch, step in seen] == expected


@pytest.mark.gpu
@needs_cuda
def test_pinned_batches_cross_without_waiting(scene: Lake, plan: Plan) -> None:
    with _loader(scene, plan) as loader:
        batch = next(iter(loader))
        pinned = batch.pin_memory()
        assert all(array.is_pinned() for _, array in pinned.arrays() if array.numel())
        crossed = pinned.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        assert digest(crossed.to("cpu")) == digest(batch)

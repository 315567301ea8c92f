"""Batches on the training device, each copied while the one before is used."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch

from lake.errors import HeadraceError
from loader.errors import LoaderError
from loader.process.received import Received
from loader.process.wire import Frame
from loader.torch_face import Batch, tensor_batch, torch_views

if TYPE_CHECKING:
    from loader.pack_loader import PackLoader


def on_device(
    loader: "PackLoader", device: torch.device | str, *, ahead: int = 1
) -> Iterator[Batch]:
    """Iterate over a loader as `iter(loader)` does, with batches on a device.

    On a CUDA device a batch crosses in one copy, from page-locked memory on a stream of its own;
    the current stream waits for that copy, the host does not. Nothing else changes: the loader's
    position follows the batches handed out, not those under way, and an error is raised after the
    batches before it. On the CPU nothing is copied.

    Args:
        loader: with `framework="torch"`.
        device: such as `cuda`, `cuda:1`, `cpu`.
        ahead: batches under way while one is used; 1 hides the copy behind a step.

    Raises:
        LoaderError: `ahead` is negative, the loader gives numpy arrays, or there is no such device.
    """
    if ahead < 0:
        raise LoaderError(f"on_device(ahead={ahead}): at least 0")
    if loader.framework != "torch":
        raise LoaderError("on_device needs PackLoader(..., framework='torch')")
    try:
        target = torch.device(device)
    except RuntimeError as error:
        raise LoaderError(
            f"on_device(device={device!r}): no device of torch; use 'cuda' or 'cpu'"
        ) from error
    if target.type != "cuda":
        return loader.hand_out(partial(copied_ahead, copier=PlainCopier(target), ahead=ahead))
    if not torch.cuda.is_available():
        raise LoaderError(
            f"on_device(device={str(device)!r}): torch {torch.__version__} sees no CUDA device;"
            " use device='cpu', or install a torch with CUDA"
        )
    if (target.index or 0) >= (count := torch.cuda.device_count()):
        raise LoaderError(
            f"on_device(device={str(device)!r}): torch sees {count} CUDA devices, 0 to {count - 1}"
        )
    copier = CudaCopier(target, staging=ahead + 1)
    return loader.hand_out(partial(copied_ahead, copier=copier, ahead=ahead))


class UnderWay(Protocol):
    """A batch on its way to a device."""

    def arrive(self) -> Batch:
        """The batch, safe to use on the current stream from now on."""
        ...


class Copier(Protocol):
    """Sends batches to a device."""

    def begin(self, received: Received) -> UnderWay:
        """Start to copy a batch."""
        ...


def copied_ahead(received: Iterator[Received], *, copier: Copier, ahead: int) -> Iterator[Batch]:
    """Batches in order, with `ahead` further ones under way when one is handed out."""
    under_way: deque[UnderWay] = deque()
    failure: HeadraceError | None = None
    try:
        for each in received:
            under_way.append(copier.begin(each))
            del each  # what has been copied may be filled again
            if len(under_way) > ahead:
                yield under_way.popleft().arrive()
    except HeadraceError as error:
        failure = error
    while under_way:
        yield under_way.popleft().arrive()
    if failure is not None:
        raise failure


class PlainCopier:
    """Copies at once, where that is all there is to do; on the CPU not even that."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def begin(self, received: Received) -> "_Here":
        """See `Copier`."""
        return _Here(tensor_batch(received).to(self._device))


@dataclass(frozen=True)
class _Here:
    batch: Batch

    def arrive(self) -> Batch:
        return self.batch


class CudaCopier:
    """Copies through page-locked staging memory, on a stream of its own.

    Args:
        device: a CUDA device.
        staging: buffers of page-locked memory, one for each batch that may be under way.
    """

    def __init__(self, device: torch.device, *, staging: int) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own
        self._staging = deque(_Staging() for _ in range(staging))

    def begin(self, received: Received) -> "_Crossing":
        """See `Copier`; waits only where the copy out of the staging memory is not yet over."""
        frame = Frame.parse(received.memory)
        staging = self._staging[0]
        self._staging.rotate(-1)
        source = staging.take(torch.from_numpy(received.memory[: frame.nbytes]))
        with torch.cuda.stream(self._stream):
            buffer = torch.empty(frame.nbytes, dtype=torch.uint8, device=self._device)
            buffer.copy_(source, non_blocking=True)
            pictures = tuple(bucket.to(self._device) for bucket in received.pictures)
            staging.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's own
            staging.copied.record(self._stream)
        return _Crossing(frame, buffer, pictures, staging.copied)


@dataclass
class _Staging:
    """Page-locked memory, and the copy out of it that was started last."""

    pinned: torch.Tensor | None = None
    copied: torch.cuda.Event | None = None

    def take(self, source: torch.Tensor) -> torch.Tensor:
        """The bytes of `source` in page-locked memory, once the last ones have left it."""
        if self.copied is not None:
            self.copied.synchronize()
        if self.pinned is None or len(self.pinned) < len(source):
            self.pinned = torch.empty(len(source), dtype=torch.uint8, pin_memory=True)
        return self.pinned[: len(source)].copy_(source)


@dataclass(frozen=True)
class _Crossing:
    frame: Frame
    buffer: torch.Tensor
    pictures: tuple[torch.Tensor, ...]
    copied: torch.cuda.Event

    def arrive(self) -> Batch:
        stream = torch.cuda.current_stream(self.buffer.device)
        stream.wait_event(self.copied)
        # Its memory is of the copying stream: without this it would be given to the next copy as
        # soon as the last reference is gone, while kernels of this stream still read it.
        for tensor in (self.buffer, *self.pictures):
            tensor.record_stream(stream)
        return torch_views(self.frame, self.buffer, self.pictures)

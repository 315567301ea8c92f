"""The consumer's face towards torch: tensors that share the batch's memory, and a dataset."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loader.batch import PackedBatch
from loader.errors import LoaderError
from loader.process.received import Received
from loader.process.wire import ArrayPlace, Frame, batch_of

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ModuleNotFoundError as error:
    raise LoaderError(
        "batches of tensors need torch, which is not installed: pip install 'headrace[torch]', or"
        " take arrays: PackLoader(..., framework='numpy')"
    ) from error

if TYPE_CHECKING:
    from loader.pack_loader import PackLoader


Batch = PackedBatch[torch.Tensor]


def tensor_batch(received: Received) -> Batch:
    """The batch as tensors that keep its memory alive; pictures decoded elsewhere stay there.

    Raises:
        BatchError: see `loader.process.wire.Frame.parse`.
    """
    return torch_batch(received.memory, received.pictures)


def torch_batch(memory: NDArray[np.uint8], pictures: Sequence[torch.Tensor] = ()) -> Batch:
    """The batch in a buffer as tensors that keep the buffer alive; nothing is copied.

    Args:
        memory: uint8, as `loader.process.wire` lays it out.
        pictures: the buckets, where the buffer holds none.

    Raises:
        BatchError: see `loader.process.wire.Frame.parse`.
    """
    frame = Frame.parse(memory)
    arrays = {place.name: _tensor(memory, place) for place in frame.places}
    return batch_of(frame, {**arrays, **_named(pictures)})


def _named(pictures: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"images.{number}": bucket for number, bucket in enumerate(pictures)}


def _tensor(memory: NDArray[np.uint8], place: ArrayPlace) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, place.dtype)
    if place.nbytes == 0:  # torch.frombuffer refuses an empty range
        return torch.empty(place.shape, dtype=dtype)
    count = place.nbytes // dtype.itemsize
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=place.offset).reshape(
        place.shape
    )


def torch_views(frame: Frame, buffer: torch.Tensor, pictures: Sequence[torch.Tensor] = ()) -> Batch:
    """The batch in a uint8 tensor of any device, as views that share its storage.

    Args:
        frame: the layout of what the buffer holds.
        buffer: uint8 [at least frame.nbytes].
        pictures: the buckets, where the buffer holds none.
    """
    arrays = {
        place.name: buffer[place.offset : place.offset + place.nbytes]
        .view(getattr(torch, place.dtype))
        .reshape(place.shape)
        for place in frame.places
    }
    return batch_of(frame, {**arrays, **_named(pictures)})


class PackDataset(IterableDataset[Batch]):
    """A `PackLoader` as a torch dataset, for trainers that want a DataLoader.

    Use it with `DataLoader(dataset, batch_size=None)`: every item is a whole batch. It follows the
    contract of torchdata's `StatefulDataLoader` (`state_dict`, `load_state_dict`): a state taken
    between the packs of a step goes on at that step's begin. Decoding has
    its own process, so `num_workers=0` is right. With 1 the position lives in torch's worker: take
    it from `StatefulDataLoader.state_dict()`; this object's does not move. More would each stream
    the whole plan and are refused.

    Raises:
        LoaderError: the loader gives numpy arrays; or, when iterated, there are several workers.
    """

    def __init__(self, loader: "PackLoader") -> None:
        super().__init__()
        if loader.framework != "torch":
            raise LoaderError("PackDataset needs PackLoader(..., framework='torch')")
        self._loader = loader

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        if info is not None and info.num_workers > 1:
            raise LoaderError(
                f"DataLoader(num_workers={info.num_workers}): every worker would stream the whole"
                " plan; use num_workers=0 and PackLoader(num_workers=...) for more decode processes"
            )
        return iter(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """See `PackLoader.state_dict`."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `PackLoader.load_state_dict`."""
        self._loader.load_state_dict(state)

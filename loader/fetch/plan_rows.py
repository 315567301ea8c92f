"""A plan's tables as the numpy arrays that batches are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loader.cursor import Place
from loader.errors import LoaderError
from packing.stored_plan import AnyPlan

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

_SPAN_COLUMNS: Final = (
    "occurrence",
    "episode",
    "start",
    "stop",
    "stride",
    "action_start",
    "action_stop",
    "text",
    "images",
    "prefix_tokens",
)


@dataclass(frozen=True, kw_only=True)
class PackRow:
    """One pack: its spans as columns (see `packing.plan` for their meaning), n may be 0.

    `pack` is -1 where the rank has no slot in this step.
    """

    place: Place
    pack: int
    epoch: int
    span_id: Int64s
    occurrence: Int32s
    episode: Int32s
    start: Int32s
    stop: Int32s
    stride: Int32s
    action_start: Int32s
    action_stop: Int32s
    text: Int32s
    images: Int32s
    prefix_tokens: Int32s

    def __len__(self) -> int:
        return len(self.span_id)

    @property
    def observed(self) -> Int32s:
        """int32 [n]: observed steps of each span."""
        return -((self.start - self.stop) // self.stride)


class PlanRows:
    """Random access to packs, episodes and texts of a plan.

    It holds about 110 bytes per episode and the texts, and of the packs what the plan holds.

    Attributes:
        plan: the plan, in memory or in the lake.
        episode_id, content_sha256: Arrow columns [E].
        address: uint64 [E], row address of each episode at the pinned version.
        spec, dataset, embodiment: int32 [E], indices into the header's tuples.
        images_at, state_at: int32 [texts], where images and state stand in each text.
        num_steps: int32 [E].
    """

    def __init__(self, plan: AnyPlan) -> None:
        self.plan = plan
        episodes = plan.episodes.combine_chunks()
        self.episode_id = episodes["episode_id"]
        self.content_sha256 = episodes["content_sha256"]
        self.address: NDArray[np.uint64] = _numpy(episodes["address"])
        self.spec: Int32s = _numpy(episodes["spec"])
        self.dataset: Int32s = _numpy(episodes["dataset"])
        self.embodiment: Int32s = _numpy(episodes["embodiment"])
        self.num_steps: Int32s = _numpy(episodes["num_steps"])
        self._cameras = _Lists(episodes["cameras"])
        self._invalid_actions = _Lists(episodes["invalid_action_steps"])
        self._invalid_states = _Lists(episodes["invalid_state_steps"])
        texts = plan.texts
        self._texts = _Lists(texts["token_ids"])
        self.images_at: Int32s = _numpy(texts["images_at"])
        self.state_at: Int32s = _numpy(texts["state_at"])

    def content_key(self, address: int) -> bytes:
        """SHA-256 of the content of the episode at a row address.

        Raises:
            LoaderError: the plan has no episode there.
        """
        at = int(np.searchsorted(self.address, np.uint64(address), sorter=self._by_address))
        row = int(self._by_address[at]) if at < len(self.address) else -1
        if row < 0 or self.address[row] != address:
            raise LoaderError(
                f"plan {self.plan.plan_hash}: it has no episode at address {address}; please report"
                " this"
            )
        content: bytes = self.content_sha256[row].as_py()
        return content

    @cached_property
    def _by_address(self) -> NDArray[np.int64]:
        """int64 [E]: episodes by ascending address; a dict would take ten times as much."""
        order: NDArray[np.int64] = np.argsort(self.address, kind="stable")
        return order

    def cameras(self, episode: int) -> NDArray[np.int16]:
        """Cameras present in an episode, ascending indices into the header's cameras."""
        return np.sort(self._cameras[episode])

    def invalid_action_steps(self, episode: int) -> Int32s:
        """Steps of an episode that the loss leaves out."""
        return self._invalid_actions[episode]

    def invalid_state_steps(self, episode: int) -> Int32s:
        """Steps of an episode that spans cross without a state."""
        return self._invalid_states[episode]

    def text_ids(self, text: int) -> Int32s:
        """Token ids of a text."""
        return self._texts[text]

    @cached_property
    def state_quantiles(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """float32 [specs, Ds]: the plan's q01 and q99 of each spec's state, features in order."""
        header = self.plan.header
        size = max((spec.state_size for spec in header.specs), default=0)
        q01 = np.zeros((len(header.specs), size), np.float32)
        q99 = np.ones_like(q01)
        for row, spec in enumerate(header.specs):
            stats = [header.stats_of(spec.spec_id, name) for name in spec.state]
            q01[row, : spec.state_size] = [value for each in stats for value in each.q01]
            q99[row, : spec.state_size] = [value for each in stats for value in each.q99]
        return q01, q99

    def read(self, places: Sequence[Place]) -> list[PackRow]:
        """The packs at some places, in their order.

        Raises:
            LoaderError: the plan's rows are not in the order that its layout promises.
            PlanError: they cannot be read, or are not what was saved.
        """
        slots = self.plan.header.slots_per_step
        # Where the rank has no slot, the step's first row tells the epoch.
        planned = [place.slot if place.slot < slots else 0 for place in places]
        table = self.plan.take_packs(
            [place.step * slots + slot for place, slot in zip(places, planned, strict=True)]
        )
        pack, epoch = _numpy(table["pack"]), _numpy(table["epoch"])
        found = list(
            zip(_numpy(table["step"]).tolist(), _numpy(table["slot"]).tolist(), strict=True)
        )
        if found != [(place.step, slot) for place, slot in zip(places, planned, strict=True)]:
            raise LoaderError(
                f"plan {self.plan.plan_hash}: packs are not ordered by step and slot; make the"
                " plan again"
            )
        span_id = _Lists(table["span_id"])
        columns = {name: _Lists(table[name]) for name in _SPAN_COLUMNS}
        return [
            PackRow(
                place=place,
                pack=int(pack[row]),
                epoch=int(epoch[row]),
                span_id=span_id[row],
                **{name: column[row] for name, column in columns.items()},
            )
            if place.slot < slots
            else _without_slot(place, int(epoch[row]))
            for row, place in enumerate(places)
        ]


def _without_slot(place: Place, epoch: int) -> PackRow:
    empty = np.empty(0, np.int32)
    return PackRow(
        place=place,
        pack=-1,
        epoch=epoch,
        span_id=np.empty(0, np.int64),
        **dict.fromkeys(_SPAN_COLUMNS, empty),
    )


class _Lists:
    """Rows of a list column as numpy views."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        array = column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # what zero chunks combine to
            array = pa.array([], column.type)
        self._values = array.values.to_numpy(zero_copy_only=False)
        self._offsets = array.offsets.to_numpy()

    def __getitem__(self, row: int) -> NDArray[Any]:
        rows: NDArray[Any] = self._values[self._offsets[row] : self._offsets[row + 1]]
        return rows


def _numpy(column: pa.ChunkedArray) -> NDArray[Any]:
    array: NDArray[Any] = column.to_numpy()
    return array

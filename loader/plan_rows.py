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
from packing.plan import Plan

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

    Attributes:
        plan: the plan.
        episode_id, content_sha256: Arrow columns [E].
        address: uint64 [E], row address of each episode at the pinned version.
        spec, dataset, embodiment: int32 [E], indices into the header's tuples.
        images_at, state_at: int32 [texts], where images and state stand in each text.
        num_steps: int32 [E].
    """

    def __init__(self, plan: Plan) -> None:
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
        self._episode_at: dict[int, int] | None = None
        self._invalid_actions = _Lists(episodes["invalid_action_steps"])
        self._invalid_states = _Lists(episodes["invalid_state_steps"])
        self._texts = _Lists(plan.texts["token_ids"])
        self.images_at: Int32s = _numpy(plan.texts["images_at"])
        self.state_at: Int32s = _numpy(plan.texts["state_at"])

    def content_key(self, address: int) -> bytes:
        """SHA-256 of the content of the episode at a row address."""
        if self._episode_at is None:
            self._episode_at = {at: row for row, at in enumerate(self.address.tolist())}
        content: bytes = self.content_sha256[self._episode_at[address]].as_py()
        return content

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
        """
        slots = self.plan.header.slots_per_step
        ours = [place for place in places if place.slot < slots]
        table = self.plan.packs.take(
            pa.array([place.step * slots + place.slot for place in ours], pa.int64())
        ).combine_chunks()
        pack, epoch = _numpy(table["pack"]), _numpy(table["epoch"])
        found = list(
            zip(_numpy(table["step"]).tolist(), _numpy(table["slot"]).tolist(), strict=True)
        )
        if found != [(place.step, place.slot) for place in ours]:
            raise LoaderError(
                f"plan {self.plan.plan_hash}: packs are not ordered by step and slot; make the"
                " plan again"
            )
        span_id = _Lists(table["span_id"])
        columns = {name: _Lists(table[name]) for name in _SPAN_COLUMNS}
        rows = {
            place.position: PackRow(
                place=place,
                pack=int(pack[row]),
                epoch=int(epoch[row]),
                span_id=span_id[row],
                **{name: column[row] for name, column in columns.items()},
            )
            for row, place in enumerate(ours)
        }
        # Asked by key: a planned slot may be empty, and an empty row is falsy.
        return [
            rows[place.position] if place.position in rows else self._without_slot(place)
            for place in places
        ]

    def _without_slot(self, place: Place) -> PackRow:
        slots = self.plan.header.slots_per_step
        epoch = self.plan.packs["epoch"][place.step * slots].as_py()
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

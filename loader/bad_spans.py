"""Spans that the lake can no longer give: which they are, why, and how many are too many."""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final, Self

import pyarrow.compute as pc

from loader.cursor import Cursor
from loader.errors import BadDataError
from loader.observe.metrics import LoaderMetrics
from packing.stored_plan import AnyPlan

_LOG: Final = logging.getLogger("headrace.loader")
_ROWS_AT_ONCE: Final = 256  # of a plan that is left in the lake, few chunks are held at a time


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What of an episode does not match its checksum, in the lake itself.

    Attributes:
        camera: name of the camera whose packets they are; "" where it is the episode's row.
        reason: what does not match.
    """

    camera: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class BadSpan:
    """A span that was handed out as padding, since what it shows is damaged in the lake.

    Attributes:
        span_id, occurrence, epoch: which planned occurrence.
        step, slot: of its pack.
        episode_id: its episode.
        camera: see `Damage`.
        reason: see `Damage`.
    """

    span_id: int
    occurrence: int
    epoch: int
    step: int
    slot: int
    episode_id: str
    camera: str
    reason: str

    @property
    def where(self) -> str:
        """Episode and, where it is one camera's, camera."""
        return f"episode {self.episode_id}" + (f", camera {self.camera}" if self.camera else "")

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`."""
        return cls(**raw)


class BadSpans:
    """The bad spans that a rank has received and handed out, and their ceiling.

    Attributes:
        handed_out: those of batches that were handed out.

    Args:
        plan: what is streamed.
        cursor: which packs of it are the rank's.
        max_share: the most bad spans, as a share of those that the plan has for this rank.
        metrics: where to count.
    """

    def __init__(
        self, plan: AnyPlan, cursor: Cursor, max_share: float, metrics: LoaderMetrics
    ) -> None:
        self.handed_out: Final[list[BadSpan]] = []
        self._received: deque[BadSpan] = deque()
        self._plan = plan
        self._cursor = cursor
        self._max_share = max_share
        self._metrics = metrics
        self._total: int | None = None
        self._warned: set[tuple[str, str]] = set()

    def receive(self, bad: Sequence[BadSpan]) -> None:
        """A batch with these is here; warns once of each episode and camera.

        Raises:
            BadDataError: they are too many.
        """
        if not bad:
            return
        self._received += bad
        count, total = len(self.handed_out) + len(self._received), self._spans_of_rank()
        allowed = int(self._max_share * total * (1 + 1e-12))  # 3e-4 of 10,000 are 3
        if count > allowed:
            raise BadDataError(self._too_many(bad[-1], count, allowed))
        self._metrics.add(bad_spans=len(bad))
        for span in bad:
            if (key := (span.episode_id, span.camera)) in self._warned:
                continue
            self._warned.add(key)
            _LOG.warning(
                "%s is damaged in the lake (%s): span %d and others that show it are handed out as"
                " padding without loss; `headrace doctor` lists what is damaged",
                span.where,
                span.reason,
                span.span_id,
            )

    def hand_out(self, step: int, slot: int) -> None:
        """The batch of this step and slot is handed out."""
        while self._received and (self._received[0].step, self._received[0].slot) == (step, slot):
            self.handed_out.append(self._received.popleft())

    def _spans_of_rank(self) -> int:
        """Spans that the whole plan has for this rank, counted once it matters."""
        if self._total is None:
            slots, ours = self._cursor.slots_per_step, self._cursor
            rows = (
                step * slots + slot
                for step in range(ours.num_steps)
                for slot in range(ours.rank, slots, ours.world_size)
            )
            total = 0
            while part := list(islice(rows, _ROWS_AT_ONCE)):
                lengths = pc.list_value_length(self._plan.take_packs(part)["span_id"])
                total += int(pc.sum(lengths).as_py() or 0)
            self._total = total
        return self._total

    def _too_many(self, span: BadSpan, count: int, allowed: int) -> str:
        return (
            f"span {span.span_id} (step {span.step}, slot {span.slot}) shows what is damaged in the"
            f" lake, {span.where}: {span.reason}; {count} of this rank's {self._spans_of_rank()}"
            f" spans are bad so far, and max_bad_share={self._max_share:g} allows {allowed}."
            " `headrace doctor` lists what is damaged: restore the lake's files from a copy, make a"
            " plan without these episodes, or raise max_bad_share to train without these spans"
        )

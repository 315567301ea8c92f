"""Spans that the lake can no longer give: which they are, why, and how many are too many."""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from loader.errors import BadDataError
from loader.observe.metrics import LoaderMetrics

_LOG: Final = logging.getLogger("headrace.loader")


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

    The ceiling is a share of the whole plan, not of the rank's part of it: what streams on one rank
    streams on any number of them.

    Args:
        planned: occurrences of spans in the plan.
        max_share: the most bad spans that a rank may hand out, as a share of them.
        metrics: where to count.
    """

    def __init__(self, planned: int, max_share: float, metrics: LoaderMetrics) -> None:
        self.handed_out: Final[list[BadSpan]] = []
        self._received: deque[BadSpan] = deque()
        self._planned = planned
        self._max_share = max_share
        self._allowed = int(max_share * planned * (1 + 1e-12))  # 3e-4 of 10,000 are 3
        self._metrics = metrics
        self._warned: set[tuple[str, str]] = set()

    def receive(self, bad: Sequence[BadSpan]) -> None:
        """A batch with these is here; warns once of each episode and camera.

        Raises:
            BadDataError: they are too many.
        """
        if not bad:
            return
        self._received += bad
        count = len(self.handed_out) + len(self._received)
        if count > self._allowed:
            raise BadDataError(self._too_many(bad[-1], count))
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

    def _too_many(self, span: BadSpan, count: int) -> str:
        return (
            f"span {span.span_id} (step {span.step}, slot {span.slot}) shows what is damaged in the"
            f" lake, {span.where}: {span.reason}; {count} spans of this rank are bad so far, and"
            f" max_bad_share={self._max_share:g} of the plan's {self._planned} allows"
            f" {self._allowed}."
            " `headrace doctor` lists what is damaged: restore the lake's files from a copy, make a"
            " plan without these episodes, or raise max_bad_share to train without these spans"
        )

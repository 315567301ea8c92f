"""Where a recording is cut into episodes, as the user says."""

from dataclasses import dataclass

from ingest.errors import IngestError


@dataclass(frozen=True, kw_only=True)
class EpisodeCuts:
    """How a log of messages becomes episodes; without a rule it is one.

    Attributes:
        marker: a topic each of whose messages begins an episode, which lasts to the next one;
            False, 0, `stop`, `end` and the like end it. What lies outside is left out and told.
        gap_s: seconds without any message that end an episode.

    Raises:
        IngestError: both rules, or a gap that is none.
    """

    marker: str | None = None
    gap_s: float | None = None

    def __post_init__(self) -> None:
        if self.marker is not None and self.gap_s is not None:
            raise IngestError("episodes are cut by a marker topic or by gaps: give one of them")
        if self.gap_s is not None and not 0 < self.gap_s < 1e9:
            raise IngestError(f"a gap of {self.gap_s:g} s: give seconds, more than 0")

"""What an ingest did: counts per source, and findings grouped by their reason."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ingest.source import Finding


@dataclass(kw_only=True)
class FindingGroup:
    """Findings of one severity, reason and stream: how many, and the first of them."""

    first: Finding
    count: int = 1


@dataclass(kw_only=True)
class SourceIngest:
    """Counts of one source, filled while it is ingested.

    Attributes:
        source: path as given or found.
        format: format with version, "" where the source could not be opened.
        dataset: name of the dataset.
        written: episodes written by this run.
        present: episodes that were in the lake already and were not read again.
        quarantined: episodes (or whole sources) refused.
        streams_quarantined: streams left out of episodes that went in.
        steps, frames, video_bytes: of the episodes written.
        seconds: wall time spent on the source.
        groups: findings by (severity, reason, stream).
    """

    source: str
    format: str = ""
    dataset: str = ""
    written: int = 0
    present: int = 0
    quarantined: int = 0
    streams_quarantined: int = 0
    steps: int = 0
    frames: int = 0
    video_bytes: int = 0
    seconds: float = 0.0
    groups: dict[tuple[str, str, str], FindingGroup] = field(default_factory=dict)

    def note(self, findings: Iterable[Finding]) -> None:
        """Count findings."""
        for finding in findings:
            key = (finding.severity, finding.reason, finding.stream)
            if key in self.groups:
                self.groups[key].count += 1
            else:
                self.groups[key] = FindingGroup(first=finding)


@dataclass(kw_only=True)
class IngestReport:
    """Everything an ingest did.

    Attributes:
        sources: one entry per recording, in the order in which they were ingested.
        unrecognised: files found beside them that no reader takes.
        adopted: episodes an earlier writer had left uncommitted when it died; they are counted as
            present.
        raced: of the episodes counted as written, those that another ingest of the same recordings
            committed first; they are in the lake once.
    """

    sources: list[SourceIngest] = field(default_factory=list)
    unrecognised: list[str] = field(default_factory=list)
    adopted: int = 0
    raced: int = 0

    @property
    def quarantined(self) -> int:
        """Episodes, sources and streams refused, in total."""
        return sum(s.quarantined + s.streams_quarantined for s in self.sources)


@dataclass(frozen=True, kw_only=True)
class IngestProgress:
    """State of a running ingest, given to the progress callback after every episode.

    Attributes:
        source: counts of the source in work so far.
        done: episodes of it dealt with.
        total: episodes listed in it.
        number: number of the source, 1 for the first.
        sources: how many sources there are.
    """

    source: SourceIngest
    done: int
    total: int
    number: int
    sources: int

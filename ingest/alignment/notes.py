"""What is found while an episode is aligned."""

from dataclasses import dataclass, field
from typing import Literal

from ingest.errors import EpisodeError
from ingest.source import Finding


@dataclass(kw_only=True)
class Notes:
    """Findings of one episode, in the order in which they are met.

    Attributes:
        where: the recording.
        locator: the episode.
        findings: so far.
    """

    where: str
    locator: str
    findings: list[Finding] = field(default_factory=list)

    def add(
        self, severity: Literal["error", "warning", "info"], reason: str, stream: str, detail: str
    ) -> None:
        """Take in a finding."""
        self.findings.append(
            Finding(
                severity=severity,
                reason=reason,
                where=self.where,
                detail=detail,
                episode=self.locator,
                stream=stream,
            )
        )

    def lost(self, stream: str, error: EpisodeError) -> None:
        """Take in that a stream is left out."""
        detail = f"{error}; the episode goes in without it"
        self.add("error", error.reason, stream, detail)

    def losses(self) -> str:
        """The streams left out so far, for an error that ends the episode; "" for none."""
        lost = [f"{f.stream} ({f.reason})" for f in self.findings if f.severity == "error"]
        return f"; left out: {', '.join(lost)}" if lost else ""

"""Verifying a recording without writing anything: the same reading as an ingest, kept nowhere."""

from collections.abc import Callable
from pathlib import Path

from ingest.errors import EpisodeError, SourceError
from ingest.formats import FoundSource, discover
from ingest.pipeline import read_episode
from ingest.source import Finding, SourceOptions


def _no_progress(source: str, done: int, total: int) -> None:
    del source, done, total


def check_recordings(
    path: Path,
    options: SourceOptions | None = None,
    *,
    progress: Callable[[str, int, int], None] = _no_progress,
) -> dict[str, list[Finding]]:
    """Findings for every recording at or below `path`, by its path; an empty list is a clean one.

    Every episode is read: rows, frame supply of every camera, step grid, task mapping. What an
    ingest would put into quarantine has severity `error`.

    Args:
        path: a recording, or a folder of them.
        options: as for an ingest.
        progress: called with recording, episodes done and episodes listed.

    Raises:
        UnknownFormatError: nothing of a known format is there.
    """
    discovery = discover(path)
    found = {
        str(source.path): _check_source(source, options or SourceOptions(), progress)
        for source in discovery.sources
    }
    for file in discovery.unrecognised:
        found.setdefault(str(path), []).append(
            Finding(
                severity="info",
                reason="not-recognised",
                where=str(file.relative_to(path)),
                detail="no known recording format; an ingest of this folder leaves it out",
            )
        )
    return found


def _check_source(
    found: FoundSource, options: SourceOptions, progress: Callable[[str, int, int], None]
) -> list[Finding]:
    try:
        source = found.format.open(found.path, options)
    except SourceError as error:
        return [
            Finding(severity="error", reason=error.reason, where=str(found.path), detail=str(error))
        ]
    findings: list[Finding] = []
    try:
        entries = source.entries()
        for done, entry in enumerate(entries, 1):
            try:
                findings += read_episode(source, entry).findings
            except EpisodeError as error:
                findings.append(Finding.refused(entry.locator, error))
            progress(str(found.path), done, len(entries))
        return [*source.findings(), *findings]
    finally:
        source.close()

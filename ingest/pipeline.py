"""From recordings to the lake: one episode at a time, each once, nothing lost without a record.

An episode whose key the lake knows is not read again, so an ingest that was killed is finished by
giving the same command again.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import pyarrow.compute as pc

from ingest.checks import check_episode
from ingest.errors import EpisodeError, SourceError
from ingest.formats import FoundSource, discover
from ingest.report import IngestProgress, IngestReport, SourceIngest
from ingest.source import EpisodeEntry, EpisodeReading, Finding, Source, SourceOptions
from lake.episode import Episode
from lake.errors import SpecError, VideoError
from lake.quarantine import QuarantineEntry
from lake.store import Lake
from lake.visible import visible_episodes
from lake.writer import EpisodeWriter

_COMMIT_EPISODES: Final = 1024

OnError = Literal["quarantine", "fail"]


def _no_progress(progress: IngestProgress) -> None:
    del progress


@dataclass(kw_only=True)
class _Run:
    """What one call of `ingest_sources` carries along."""

    sources: Sequence[FoundSource]
    lake: Lake
    writer: EpisodeWriter
    on_error: OnError
    options: SourceOptions
    progress: Callable[[IngestProgress], None]
    known: dict[str, dict[str, str]] = field(default_factory=dict)

    def older(self, dataset: str, locator: str) -> str | None:
        """Id of the episode that the lake already had at this place of the dataset, if any."""
        if dataset not in self.known:
            rows = visible_episodes(self.lake, ("episode_id", "dataset", "locator"))
            rows = rows.filter(pc.equal(rows["dataset"], dataset))
            ids = zip(rows["locator"].to_pylist(), rows["episode_id"].to_pylist(), strict=True)
            self.known[dataset] = dict(ids)
        return self.known[dataset].get(locator)

    def refuse(self, counts: SourceIngest, error: SourceError | EpisodeError, episode: str) -> None:
        if self.on_error == "fail":
            raise error
        stream = error.stream if isinstance(error, EpisodeError) else ""
        self.writer.refuse(
            QuarantineEntry(
                source=counts.source,
                dataset=counts.dataset,
                episode=episode,
                stream=stream,
                reason=error.reason,
                detail=str(error),
            )
        )


def ingest_sources(
    paths: Sequence[Path],
    lake: Lake,
    *,
    on_error: OnError = "quarantine",
    options: SourceOptions | None = None,
    commit_episodes: int = _COMMIT_EPISODES,
    progress: Callable[[IngestProgress], None] = _no_progress,
) -> IngestReport:
    """Ingest every recording at or below `paths`.

    Args:
        paths: files or folders; a folder of recordings expands into them.
        lake: where to.
        on_error: `quarantine` records what cannot be read, with its reason, and goes on; `fail`
            stops at the first (what was committed until then stays).
        options: choices for all sources.
        commit_episodes: episodes per commit. Each commit adds a file and a manifest to the lake,
            so many small ones slow it down; a killed ingest repeats at most this many.
        progress: called after every episode.

    Raises:
        UnknownFormatError: a path holds nothing of a known format; raised before anything is
            written.
        MissingReaderError: an optional dependency is not installed.
        SourceError, EpisodeError: with `on_error="fail"`.
        LakeError: the lake cannot be written.
    """
    discoveries = [discover(path) for path in paths]
    report = IngestReport(unrecognised=[str(p) for d in discoveries for p in d.unrecognised])
    with EpisodeWriter(lake, batch_episodes=commit_episodes) as writer:
        run = _Run(
            sources=[source for discovery in discoveries for source in discovery.sources],
            lake=lake,
            writer=writer,
            on_error=on_error,
            options=options or SourceOptions(),
            progress=progress,
        )
        for found in run.sources:
            counts = SourceIngest(source=str(found.path))
            report.sources.append(counts)
            started = time.perf_counter()
            _ingest_source(run, found, counts, len(report.sources))
            counts.seconds = time.perf_counter() - started
    report.adopted = writer.report.adopted
    report.raced = sum(source.written for source in report.sources) - writer.report.written
    return report


def _ingest_source(run: _Run, found: FoundSource, counts: SourceIngest, number: int) -> None:
    try:
        source = found.format.open(found.path, run.options)
    except SourceError as error:
        run.refuse(counts, error, "")
        counts.quarantined += 1
        return
    try:
        counts.format, counts.dataset = source.format, source.dataset
        known = source.findings()
        _refuse_lost_parts(run, counts, known)
        entries = source.entries()
        for done, entry in enumerate(entries, 1):
            _ingest_episode(run, source, entry, counts)
            run.progress(
                IngestProgress(
                    source=counts,
                    done=done,
                    total=len(entries),
                    number=number,
                    sources=len(run.sources),
                )
            )
        found_late = source.findings()
        _refuse_lost_parts(run, counts, [f for f in found_late if f not in known])
        counts.note(found_late)
    finally:
        source.close()


def _refuse_lost_parts(run: _Run, counts: SourceIngest, findings: Sequence[Finding]) -> None:
    """Quarantine what a source lost as a whole, such as a damaged part of its episode list."""
    for finding in findings:
        if finding.severity == "error":
            detail = f"{counts.source}: {finding.where}: {finding.detail}"
            run.refuse(counts, SourceError(detail, reason=finding.reason), finding.episode)
            counts.quarantined += 1


def _ingest_episode(run: _Run, source: Source, entry: EpisodeEntry, counts: SourceIngest) -> None:
    if run.writer.has(entry.ingest_key):
        counts.present += 1
        return
    try:
        reading = read_episode(source, entry)
    except EpisodeError as error:
        run.refuse(counts, error, entry.locator)
        counts.quarantined += 1
        return
    for finding in reading.findings:
        if finding.severity == "error":
            lost = EpisodeError(finding.detail, reason=finding.reason, stream=finding.stream)
            run.refuse(counts, lost, entry.locator)
            counts.streams_quarantined += 1
    older = run.older(source.dataset, entry.locator)
    try:
        run.writer.add(reading.episode)
    except SpecError as error:
        refused = EpisodeError(f"{source.root}: {error}", reason="bad-spec")
        run.refuse(counts, refused, entry.locator)
        counts.quarantined += 1
        return
    counts.note(reading.findings)
    counts.note(_changed(entry, older))
    _count(counts, reading.episode)


def _changed(entry: EpisodeEntry, older: str | None) -> list[Finding]:
    if older is None:
        return []
    return [
        Finding(
            severity="warning",
            reason="changed-episode",
            where=entry.locator,
            detail=f"the lake holds {older}, the same place of the dataset with other files; both"
            " are kept: select the one you want, or give --dataset another name",
            episode=entry.locator,
        )
    ]


def read_episode(source: Source, entry: EpisodeEntry) -> EpisodeReading:
    """Read one episode, check it, and write all findings into its provenance.

    Raises:
        EpisodeError: it cannot be read, or does not make a valid episode.
    """
    try:
        reading = source.read(entry)
    except (SpecError, VideoError) as error:
        reason = "bad-spec" if isinstance(error, SpecError) else "bad-video"
        raise EpisodeError(f"{source.root}: {entry.locator}: {error}", reason=reason) from error
    findings = (*reading.findings, *check_episode(reading.episode))
    provenance = replace(reading.episode.provenance, findings=_lines(findings))
    return EpisodeReading(
        episode=replace(reading.episode, provenance=provenance), findings=findings
    )


def _lines(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(str(finding) for finding in findings)


def _count(counts: SourceIngest, episode: Episode) -> None:
    counts.written += 1
    counts.steps += episode.num_steps
    for video in episode.cameras.values():
        counts.frames += video.index.num_frames
        counts.video_bytes += len(video.payload)

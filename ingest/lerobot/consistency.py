"""What the metadata of a dataset claims, checked against itself and against the files present.

Nothing here reads rows or frames, so it is quick on datasets of any size.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from ingest.lerobot.episodes import EpisodeRecord
from ingest.lerobot.info import DatasetInfo
from ingest.lerobot.video_files import VideoFiles
from ingest.source import Finding

_INFO: Final = "meta/info.json"
_EXAMPLES: Final = 3


def check_metadata(
    info: DatasetInfo, records: Sequence[EpisodeRecord], tasks: Mapping[int, str]
) -> list[Finding]:
    """What `meta/info.json` counts, its rate and splits, and the ranges of the episode list."""
    return [
        *_check_info(info, records, tasks),
        *_check_row_ranges(records),
        *_check_video_ranges(info, records),
    ]


def check_files(
    root: Path, info: DatasetInfo, records: Sequence[EpisodeRecord], videos: VideoFiles
) -> list[Finding]:
    """Declared cameras without any file, data files that are missing, files nothing refers to."""
    found = [
        _finding(
            "camera-without-files",
            "declared, but there is no video file for it; episodes go in without it",
            stream=camera.key,
        )
        for camera in info.cameras
        if camera.dtype == "video" and not videos.has_any(camera.key)
    ]
    listed = {record.data_file for record in records}
    missing = sorted(name for name in listed if not (root / name).is_file())
    if missing:
        found.append(
            _finding(
                "missing-data-file",
                f"{len(missing)} of {len(listed)} data files are not there, {_some(missing)};"
                " their episodes cannot be read",
                where="data",
            )
        )
    present = {path.relative_to(root).as_posix() for path in root.glob("data/**/*.parquet")}
    meant = {
        file
        for record in records
        for key, place in record.videos.items()
        if (file := videos.find(key, place.file)) is not None
    }
    for where, unused in (("data", sorted(present - listed)), ("videos", videos.unused(meant))):
        if unused:
            found.append(
                _finding(
                    "orphan-file",
                    f"{len(unused)} files belong to no listed episode, {_some(unused)}; not read",
                    where=where,
                )
            )
    return found


def drop_duplicates(
    records: Sequence[EpisodeRecord],
) -> tuple[list[EpisodeRecord], list[Finding]]:
    """Records in the order of their index, one per index: the first that is listed."""
    first: dict[int, EpisodeRecord] = {}
    for record in records:
        first.setdefault(record.index, record)
    found = []
    if len(first) != len(records):
        counts = Counter(record.index for record in records)
        twice = [str(index) for index, count in sorted(counts.items()) if count > 1]
        found.append(
            _finding(
                "duplicate-episode",
                f"episodes listed more than once: {_some(twice)}; the first entry is used",
                where="meta/episodes",
            )
        )
    ordered = [first[index] for index in sorted(first)]
    if [record.index for record in records] != sorted(record.index for record in records):
        found.append(
            _finding(
                "unsorted-episodes",
                "the list is not in the order of episode_index; episodes are taken by index",
                severity="info",
                where="meta/episodes",
            )
        )
    return ordered, found


def _check_info(
    info: DatasetInfo, records: Sequence[EpisodeRecord], tasks: Mapping[int, str]
) -> list[Finding]:
    found = []
    truth: dict[str, int | None] = {
        "total_episodes": len(records),
        "total_frames": _total_steps(records),
        "total_tasks": len(tasks) or None,
        "total_videos": sum(len(record.videos) for record in records),
    }
    for name, real in truth.items():
        declared = info.totals.get(name)
        if declared is not None and real is not None and declared != real:
            found.append(
                _finding(
                    "wrong-count", f"{name} is {declared}, the lists say {real}; they are used"
                )
            )
    if info.fps is None:
        found.append(
            _finding("no-rate", "fps is missing or not positive; stored timestamps are needed")
        )
    last = max((record.index for record in records), default=-1)
    for name, (first, stop) in info.splits.items():
        if stop > last + 1 or first > stop:
            found.append(
                _finding(
                    "wrong-split",
                    f"split {name} is {first}:{stop}, the last episode is {last}; listed episodes"
                    " inside it get the label",
                )
            )
    return found


def _total_steps(records: Sequence[EpisodeRecord]) -> int | None:
    lengths = [record.length for record in records if record.length is not None]
    return sum(lengths) if len(lengths) == len(records) else None


def _check_row_ranges(records: Sequence[EpisodeRecord]) -> list[Finding]:
    """v3: [from, to) of the episodes follow each other from 0, each as long as its length."""
    found = []
    end = 0
    for record in records:
        if record.row_range is None:
            continue
        first, stop = record.row_range
        if first != end:
            found.append(
                _finding(
                    "row-range-tiling",
                    f"rows {first}..{stop} are declared, the episode before ends at row {end};"
                    " rows are found by episode_index",
                    where="meta/episodes",
                    episode=record.locator,
                )
            )
        if record.length is not None and stop - first != record.length:
            found.append(
                _finding(
                    "wrong-count",
                    f"rows {first}..{stop} are declared, but length {record.length}; rows are found"
                    " by episode_index",
                    where="meta/episodes",
                    episode=record.locator,
                )
            )
        end = stop
    return found


def _check_video_ranges(info: DatasetInfo, records: Sequence[EpisodeRecord]) -> list[Finding]:
    """v3: starts inside a shared file fit the lengths before them; ends may be one frame short."""
    if info.fps is None or info.version != "3.0":
        return []
    found = []
    frame_s = 1 / info.fps
    for camera in info.cameras:
        inside: dict[str, list[EpisodeRecord]] = {}
        short: list[str] = []
        for record in records:
            place = record.videos.get(camera.key)
            if place is None:
                continue
            inside.setdefault(place.file, []).append(record)
            if place.to_s is not None and record.length:
                missing = record.length * frame_s - (place.to_s - place.from_s)
                if abs(missing - frame_s) < frame_s / 4:
                    short.append(record.locator)
        if short:
            found.append(
                _finding(
                    "short-to-timestamp",
                    f"to_timestamp of {len(short)} episodes is (N-1)/fps, {_some(short)}; length"
                    " is used",
                    severity="info",
                    where="meta/episodes",
                    stream=camera.key,
                )
            )
        for file, episodes in inside.items():
            found += _check_starts(camera.key, file, episodes, frame_s)
    return found


def _check_starts(
    key: str, file: str, episodes: Sequence[EpisodeRecord], frame_s: float
) -> list[Finding]:
    found = []
    steps: int | None = 0
    for record in sorted(episodes, key=lambda episode: episode.videos[key].from_s):
        start = record.videos[key].from_s
        if steps is not None and abs(start - steps * frame_s) > frame_s / 2:
            found.append(
                _finding(
                    "video-range-tiling",
                    f"starts at frame {round(start / frame_s)} of {file}, the episodes before it"
                    f" have {steps} steps; the declared start is used",
                    where="meta/episodes",
                    stream=key,
                    episode=record.locator,
                )
            )
            steps = round(start / frame_s)  # report each shift once, not every episode after it
        steps = None if steps is None or record.length is None else steps + record.length
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_EXAMPLES]) + (", ..." if len(names) > _EXAMPLES else "")


def _finding(
    reason: str,
    detail: str,
    *,
    severity: Literal["error", "warning", "info"] = "warning",
    where: str = _INFO,
    stream: str = "",
    episode: str = "",
) -> Finding:
    return Finding(
        severity=severity,
        reason=reason,
        where=where,
        detail=detail,
        stream=stream,
        episode=episode,
    )

"""The cameras of one episode: packets cut out of the video files, steps mapped by frame number."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ingest.lerobot.episodes import EpisodeRecord, VideoPlace
from ingest.lerobot.frames import frame_numbers, frame_range
from ingest.lerobot.info import DatasetInfo, DeclaredFeature
from ingest.lerobot.video_files import OpenVideo, VideoFiles
from ingest.source import Finding
from lake.episode import CameraVideo
from lake.errors import VideoError

_RATE_TOLERANCE: Final = 0.05


@dataclass(kw_only=True)
class CutCameras:
    """Cameras of an episode by dataset key, the files they came from, and what was found."""

    videos: dict[str, CameraVideo]
    files: list[str]
    findings: list[Finding]


class CameraReader:
    """Cuts the video cameras of a dataset's episodes.

    Args:
        root: the dataset.
        info: what it declares.
        records: all listed episodes; they tell where in a shared file an episode ends.
    """

    def __init__(self, root: Path, info: DatasetInfo, records: list[EpisodeRecord]) -> None:
        self.files = VideoFiles(root)
        self._cameras = [camera for camera in info.cameras if camera.dtype == "video"]
        self._fps = info.fps
        self._starts = _starts_by_file(records)

    def cut(
        self, record: EpisodeRecord, num_steps: int, frame_index: NDArray[np.int64] | None
    ) -> CutCameras:
        """Cut every camera of an episode; one that cannot be cut is left out with a finding."""
        result = CutCameras(videos={}, files=[], findings=[])
        for camera in self._cameras:
            one = _OneCamera(record, camera, result.findings)
            video = self._cut_one(one, num_steps, frame_index, result.files)
            if video is not None:
                result.videos[camera.key] = video
        return result

    def close(self) -> None:
        """Close the video files."""
        self.files.close()

    def _cut_one(
        self,
        one: "_OneCamera",
        num_steps: int,
        frame_index: NDArray[np.int64] | None,
        files: list[str],
    ) -> CameraVideo | None:
        key, place = one.camera.key, one.record.videos.get(one.camera.key)
        file = None if place is None else self.files.find(key, place.file)
        if place is None or file is None:
            # Whole cameras without files are one finding of the source, not one per episode.
            whole = not self.files.has_any(key)
            declared = "metadata gives no file" if place is None else f"{place.file} is missing"
            one.note(
                "info" if whole else "error",
                "camera-without-files" if whole else "missing-video",
                f"{declared}; the episode goes in without this camera",
            )
            return None
        if file != place.file:
            one.note("info", "video-path-differs", f"{place.file} is declared, {file} is used")
        files.append(file)
        try:
            video = self.files.open(key, file)
            return self._map_and_cut(one, video, place, num_steps, frame_index)
        except VideoError as error:
            one.note("error", "bad-video", f"{error}; the episode goes in without this camera")
            return None

    def _map_and_cut(
        self,
        one: "_OneCamera",
        video: OpenVideo,
        place: VideoPlace,
        num_steps: int,
        frame_index: NDArray[np.int64] | None,
    ) -> CameraVideo | None:
        file = video.file
        if file.damage:
            one.note("warning", "damaged-video", f"{file.path.name}: {file.damage}")
        next_start = self._next_start(one.camera.key, place)
        span = frame_range(video.frame_pts, file.time_base, place.from_s, next_start)
        supply = span.stop - span.first
        if supply == 0:
            one.note(
                "error",
                "no-frames",
                f"starts at {place.from_s:g} s, where {file.path.name} has no frame for it; the"
                " episode goes in without this camera",
            )
            return None
        if not self._rate_fits(one, video.period_s, supply, num_steps):
            return None
        if video.period_s is not None and abs(span.offset_s) > video.period_s / 4:
            one.note(
                "warning",
                "start-off-grid",
                f"declared start {place.from_s:g} s is {span.offset_s:+.4f} s from the nearest"
                f" frame, {span.first}, which is used",
            )
        if supply > num_steps:
            one.note(
                "warning",
                "more-frames",
                f"{supply} frames for {num_steps} steps; frames that no step shows are left out",
            )
        step_to_frame = frame_numbers(frame_index, num_steps, supply)
        if frame_index is not None and not np.array_equal(
            frame_index, np.arange(num_steps, dtype=np.int64)
        ):
            in_order = np.arange(num_steps, dtype=np.int64)
            shown = np.where(in_order < supply, in_order, -1)
            by = "row order" if np.array_equal(step_to_frame, shown) else "frame_index"
            one.note(
                "warning",
                "frame-index-gap",
                f"frame_index does not count 0..{num_steps - 1}; frames are taken by {by}",
            )
        return file.cut(span.first, int(step_to_frame.max()) + 1, step_to_frame)

    def _rate_fits(
        self, one: "_OneCamera", period_s: float | None, supply: int, num_steps: int
    ) -> bool:
        """False where the frames are of another rate than the steps, so numbers do not match."""
        if period_s is None or self._fps is None:
            return True
        if abs(1 / period_s - self._fps) <= _RATE_TOLERANCE * self._fps:
            return True
        rates = f"the video has {1 / period_s:.4g} frames/s, the steps {self._fps:g}/s"
        if supply == num_steps:
            one.note("warning", "video-rate", f"{rates}; one frame per step is there and is used")
            return True
        one.note(
            "error",
            "video-rate",
            f"{rates}, {supply} frames for {num_steps} steps cannot be matched by number; the"
            " episode goes in without this camera",
        )
        return False

    def _next_start(self, key: str, place: VideoPlace) -> float | None:
        starts = self._starts[key, place.file]
        later = bisect_right(starts, place.from_s)
        return starts[later] if later < len(starts) else None


@dataclass(frozen=True)
class _OneCamera:
    """One camera of one episode, and where findings about it go."""

    record: EpisodeRecord
    camera: DeclaredFeature
    findings: list[Finding]

    def note(self, severity: Literal["error", "warning", "info"], reason: str, detail: str) -> None:
        self.findings.append(
            Finding(
                severity=severity,
                reason=reason,
                where=self.record.locator,
                detail=detail,
                episode=self.record.locator,
                stream=self.camera.key,
            )
        )


def _starts_by_file(records: list[EpisodeRecord]) -> Mapping[tuple[str, str], list[float]]:
    """(camera, file) -> declared starts of the episodes in it, ascending."""
    starts: dict[tuple[str, str], list[float]] = {}
    for record in records:
        for key, place in record.videos.items():
            starts.setdefault((key, place.file), []).append(place.from_s)
    return {where: sorted(times) for where, times in starts.items()}

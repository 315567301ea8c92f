"""The video files of a dataset: finding the one the metadata means, and keeping it open.

One file per camera stays open, since episodes are read in order and a file serves many of them.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingest.lerobot.frames import frame_period_s
from lake.errors import VideoError
from lake.video_file import VideoFile

_SUFFIXES: Final = frozenset({".mp4", ".mkv", ".mov", ".avi", ".webm"})


@dataclass(frozen=True, kw_only=True)
class OpenVideo:
    """An open file with what is asked of it for every episode in it.

    Attributes:
        file: the file.
        frame_pts: int64 [F], ascending, times of its frames in ticks of `file.time_base`.
        period_s: median distance between frames in seconds, None for a single frame.
    """

    file: VideoFile
    frame_pts: NDArray[np.int64]
    period_s: float | None


class VideoFiles:
    """Video files under a dataset's root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: dict[str, OpenVideo] = {}
        self._broken: dict[str, VideoError] = {}

    @cached_property
    def _present(self) -> dict[str, list[PurePosixPath]]:
        """All video files by file name, relative to the root."""
        found: dict[str, list[PurePosixPath]] = {}
        met: set[str] = set()
        # Videos are often moved to another disk and linked: links to folders are followed, once.
        for folder, subfolders, names in os.walk(self._root, followlinks=True):
            subfolders.sort()
            place = os.path.realpath(folder)
            if place in met:
                subfolders.clear()
                continue
            met.add(place)
            for name in sorted(names):
                path = Path(folder, name)
                if path.suffix.lower() in _SUFFIXES and path.is_file():
                    relative = PurePosixPath(path.relative_to(self._root).as_posix())
                    found.setdefault(name, []).append(relative)
        return found

    def find(self, key: str, declared: str) -> str | None:
        """Relative path of the file that the metadata calls `declared`, or None.

        A template that does not fit the folders (`videos/` for `video/`, chunk before camera) is
        met by name: the one file of that name, in a chunk folder of that name, below a folder
        called like the camera.
        """
        if (self._root / declared).is_file():
            return declared
        wanted = PurePosixPath(declared)
        chunks = {part for part in wanted.parts if part.startswith("chunk-")}
        matches = [
            path
            for path in self._present.get(wanted.name, [])
            if key in path.parts
            and {part for part in path.parts if part.startswith("chunk-")} in ({*chunks}, set())
        ]
        return str(matches[0]) if len(matches) == 1 else None

    def has_any(self, key: str) -> bool:
        """True where at least one video file lies below a folder called like the camera."""
        return any(key in path.parts for paths in self._present.values() for path in paths)

    def unused(self, used: set[str]) -> list[str]:
        """Video files that are not in `used`."""
        everything = (str(path) for paths in self._present.values() for path in paths)
        return sorted(set(everything) - used)

    def open(self, key: str, file: str) -> OpenVideo:
        """The camera's file, opened; the one opened before for this camera is closed.

        A file that was cut short is opened as far as it goes.

        Raises:
            VideoError: it cannot be read; remembered, so that it is not tried for every episode.
        """
        if file in self._broken:
            raise self._broken[file]
        current = self._open.get(key)
        path = self._root / file
        if current is not None and current.file.path == path:
            return current
        if current is not None:
            current.file.close()
            del self._open[key]
        try:
            video = VideoFile(path, salvage=True)
        except VideoError as error:
            self._broken[file] = error
            raise
        pts = video.frame_pts
        self._open[key] = OpenVideo(
            file=video, frame_pts=pts, period_s=frame_period_s(pts, video.time_base)
        )
        return self._open[key]

    def close(self) -> None:
        """Close all files."""
        for video in self._open.values():
            video.file.close()
        self._open.clear()

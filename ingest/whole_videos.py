"""Videos that hold one episode each, a frame per step."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ingest.source import Finding, printable
from lake.episode import CameraVideo
from lake.errors import VideoError
from lake.spec import CameraSpec, canonical_name
from lake.video_file import VideoFile


@dataclass(frozen=True, kw_only=True)
class WholeVideos:
    """What was read.

    Attributes:
        cameras: name -> packets; only cameras with a frame.
        specs: of all of them.
        files: read, relative to the recording.
        findings: an `error` for each camera that is left out, and what is odd about others.
    """

    cameras: Mapping[str, CameraVideo]
    specs: tuple[CameraSpec, ...]
    files: tuple[str, ...]
    findings: tuple[Finding, ...]


def read_whole_videos(
    files: Mapping[str, Path], num_steps: int, locator: str, *, root: Path
) -> WholeVideos:
    """Copy the packets of videos whose n-th frame is that of the n-th step.

    Args:
        files: name of the camera in the source -> its file.
        num_steps: T. Steps without a frame are marked (-1); frames beyond the last step are left
            out and told of.
        locator: the episode, for findings.
        root: the recording, to which files are named.
    """
    cameras: dict[str, CameraVideo] = {}
    specs: list[CameraSpec] = []
    read: list[str] = []
    findings: list[Finding] = []
    for source_name, path in files.items():
        name = canonical_name(source_name)
        where = printable(path.relative_to(root).as_posix())

        def note(
            severity: str, reason: str, detail: str, where: str = where, name: str = name
        ) -> None:
            findings.append(
                Finding(
                    severity="error" if severity == "error" else "warning",
                    reason=reason,
                    where=where,
                    detail=detail,
                    episode=locator,
                    stream=name,
                )
            )

        try:
            with VideoFile(path, salvage=True) as video:
                if video.damage:
                    note("warning", "damaged-video", video.damage)
                if video.num_frames > num_steps:
                    detail = (
                        f"{video.num_frames} frames for {num_steps} steps; those that no step shows"
                        " are left out"
                    )
                    note("warning", "more-frames", detail)
                supply = min(video.num_frames, num_steps)
                steps = np.arange(num_steps, dtype=np.int32)
                shown = np.where(steps < supply, steps, np.int32(-1)).astype(np.int32)
                cameras[name] = video.cut(0, supply, shown)
                specs.append(
                    CameraSpec(
                        name=name, source_name=source_name, height=video.height, width=video.width
                    )
                )
                read.append(where)
        except VideoError as error:
            note("error", "bad-video", f"{error}; the episode goes in without this camera")
    return WholeVideos(
        cameras=cameras, specs=tuple(specs), files=tuple(read), findings=tuple(findings)
    )

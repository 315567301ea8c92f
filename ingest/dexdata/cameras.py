"""The pictures that steps point at: frames of videos, or files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from lake.episode import CameraVideo
from lake.errors import VideoError
from lake.video_file import VideoFile
from lake.video_images import images_video


def read_camera(root: Path, name: str, pictures: Sequence[object]) -> tuple[CameraVideo, list[str]]:
    """The camera of an episode, and the files that it is in.

    Args:
        root: the recording; nothing outside of it is opened.
        name: of the camera, for errors.
        pictures: what each step says of it; None or nothing where it has none.

    Raises:
        EpisodeError: names step and reason.
    """
    told = [_Told.of(step, each, name) for step, each in enumerate(pictures)]
    present = [each for each in told if each is not None]
    if not present:
        raise EpisodeError(f"{name}: no step has a picture", reason="no-picture", stream=name)
    kinds = {each.kind for each in present}
    if len(kinds) > 1:
        raise EpisodeError(
            f"{name}: some steps show frames of a video and others files",
            reason="mixed-pictures",
            stream=name,
        )
    try:
        return (
            _from_video(root, name, told) if kinds == {"video"} else _from_files(root, name, told)
        )
    except VideoError as error:
        raise EpisodeError(f"{name}: {error}", reason="bad-video", stream=name) from error


class _Told:
    """What a step says of a picture."""

    def __init__(self, kind: str, url: str, frame: int) -> None:
        self.kind, self.url, self.frame = kind, url, frame

    @classmethod
    def of(cls, step: int, about: object, name: str) -> "_Told | None":
        if not about:
            return None
        fields: dict[str, Any] = about if isinstance(about, dict) else {}
        kind, url, frame = fields.get("type"), fields.get("url"), fields.get("frame_idx", 0)
        is_number = isinstance(frame, int) and not isinstance(frame, bool) and frame >= 0
        if kind not in {"video", "image"} or not isinstance(url, str) or not is_number:
            raise EpisodeError(
                f"{name}: step {step} says {about!r:.200}, which names no picture",
                reason="bad-picture-reference",
                stream=name,
            )
        return cls(str(kind), url, frame)


def _from_video(
    root: Path, name: str, told: Sequence[_Told | None]
) -> tuple[CameraVideo, list[str]]:
    urls = {each.url for each in told if each is not None}
    if len(urls) > 1:
        raise EpisodeError(
            f"{name}: frames of {len(urls)} videos, {', '.join(sorted(urls)[:3])}; one is known how"
            " to store",
            reason="several-videos",
            stream=name,
        )
    (url,) = urls
    path = _inside(root, url, name)
    frames = np.array([-1 if each is None else each.frame for each in told], np.int64)
    first, last = int(frames[frames >= 0].min()), int(frames.max())
    with VideoFile(path, salvage=True) as video:
        if last >= video.num_frames:
            raise EpisodeError(
                f"{name}: step {int(np.argmax(frames >= video.num_frames))} shows frame"
                f" {int(frames[frames >= video.num_frames][0])} of {url}, which has"
                f" {video.num_frames} readable frames",
                reason="too-few-frames",
                stream=name,
            )
        shown: NDArray[np.int32] = np.where(frames < 0, -1, frames - first).astype(np.int32)
        return video.cut(first, last - first + 1, shown), [url]


def _from_files(
    root: Path, name: str, told: Sequence[_Told | None]
) -> tuple[CameraVideo, list[str]]:
    number: dict[str, int] = {}
    for each in told:
        if each is not None:
            number.setdefault(each.url, len(number))
    images = []
    for url in number:
        try:
            images.append(_inside(root, url, name).read_bytes())
        except OSError as error:
            raise EpisodeError(
                f"{name}: {url} cannot be read ({error.strerror})",
                reason="missing-picture",
                stream=name,
            ) from error
    shown = np.array([-1 if each is None else number[each.url] for each in told], np.int32)
    return images_video(images, step_to_frame=shown), list(number)


def _inside(root: Path, url: str, name: str) -> Path:
    """The file that is meant: below the recording, by its whole path or by the end of it.

    Paths are relative to a prefix that is written in a program and not in the data, so leading
    folders are left out until a file is there.

    Raises:
        EpisodeError: there is none.
    """
    parts = [part for part in Path(url).parts if part not in {"/", "."}]
    if ".." not in parts:
        for skipped in range(len(parts)):
            path = root.joinpath(*parts[skipped:])
            if path.is_file():
                return path
    raise EpisodeError(
        f"{name}: {url} is not below {root}: put the folder that holds it there",
        reason="missing-video",
        stream=name,
    )

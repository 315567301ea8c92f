"""From the bytes of an Example to an episode."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ingest.arrays.recorded import Recorded
from ingest.arrays.streams import Stream, distinct_names
from ingest.errors import EpisodeError
from ingest.rlds.columns import Column, columns_of, count_steps
from ingest.rlds.example import ExampleError, parse_example
from ingest.rlds.features import STEPS, Leaf
from ingest.rlds.language import instruction_of
from ingest.rlds.meaning import CONVENTIONS, stream_name, stream_role, success_of, told_by_flags
from ingest.rlds.public_datasets import gripper_convention, public_dataset
from ingest.rlds.signals import MemoryRows, read_signal
from ingest.source import Finding, SourceOptions
from ingest.whole_videos import WholeVideos
from lake.episode import CameraVideo
from lake.spec import CameraSpec

_STAMPS: Final = (STEPS + "timestamp", STEPS + "observation/timestamp")
_DEPTH_TYPES: Final = frozenset({"uint16", "float32"})
_HAS: Final = "episode_metadata/has_"
_UNREAD: Final = MemoryRows(array=np.empty(0))


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an Example lies.

    Attributes:
        file: name of the shard.
        locator: the episode inside the source.
        declared_name: of the dataset, by which public facts are looked up.
        split: the shard's split, None where nothing states it.
    """

    file: str
    locator: str
    declared_name: str
    split: str | None


@dataclass(kw_only=True)
class _Reading:
    """What one Example turned out to hold."""

    place: Place
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    streams: list[Stream] = field(default_factory=list)
    cameras: dict[str, CameraVideo] = field(default_factory=dict)
    camera_specs: list[CameraSpec] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def note(
        self, severity: Literal["error", "warning", "info"], reason: str, stream: str, detail: str
    ) -> None:
        self.findings.append(
            Finding(
                severity=severity,
                reason=reason,
                where=self.place.locator,
                detail=detail,
                episode=self.place.locator,
                stream=stream,
            )
        )


def describe_example(
    data: bytes, declared: Mapping[str, Leaf] | None, place: Place, options: SourceOptions
) -> tuple[Recorded, WholeVideos]:
    """The signals and cameras of an episode; a signal that cannot be read is an `error` finding.

    Args:
        data: a serialised `tf.train.Example`.
        declared: `features.json`, None where there is none.
        place: where it lies.
        options: the user's choices.

    Raises:
        EpisodeError: no Example, or one without steps.
    """
    try:
        columns, broken = columns_of(parse_example(data))
        num_steps = count_steps(columns)
    except ExampleError as error:
        raise EpisodeError(
            f"{place.locator}: no tf.train.Example: {error}", reason="bad-example"
        ) from error
    except EpisodeError as error:
        raise EpisodeError(f"{place.locator}: {error}", reason=error.reason) from error
    reading = _Reading(place=place)
    for name, why in broken.items():
        reading.note("error", "bad-row-lengths", name, f"{why}; the episode goes in without it")
    _read_columns(reading, columns, declared, num_steps)
    if declared is not None:
        there = {column.name for column in columns} | set(broken)
        for name in declared:
            if name not in there:
                detail = "declared in features.json and not in this episode"
                reading.note("error", "missing-stream", name, detail)
    _check_flags(reading)
    return _recorded(reading, num_steps, options), WholeVideos(
        cameras=reading.cameras,
        specs=tuple(reading.camera_specs),
        files=(),
        findings=tuple(reading.findings),
    )


def _read_columns(
    reading: _Reading, columns: list[Column], declared: Mapping[str, Leaf] | None, num_steps: int
) -> None:
    named = distinct_names(
        Stream(
            path=column.name,
            where=f"{reading.place.locator}:{column.name}",
            rows=_UNREAD,
            name=stream_name(column.name),
        )
        for column in columns
    )
    paths = {column.name for column in columns}
    for column, stream in zip(columns, named, strict=True):
        leaf = declared.get(column.name) if declared else None
        if declared and leaf is None:
            detail = "not declared in features.json; its type and shape are inferred"
            reading.note("info", "undeclared-stream", stream.name, detail)
        try:
            signal = read_signal(column, leaf, num_steps)
        except EpisodeError as error:
            detail = f"{error}; the episode goes in without it"
            reading.note("error", error.reason, stream.name, detail)
            continue
        for reason, sentence in signal.notes.items():
            reading.note("info", reason, stream.name, sentence)
        if signal.video is not None:
            reading.cameras[stream.name] = signal.video
            reading.camera_specs.append(_camera(stream, leaf, signal.video))
        elif signal.array is not None:
            reading.arrays[column.name] = signal.array
            array, is_pictures = _as_pictures(column.name, signal.array)
            role = stream_role(column.name, array.shape[1:], paths)
            reading.streams.append(
                replace(
                    stream, rows=MemoryRows(array=array), role=role, may_be_pictures=is_pictures
                )
            )


def _as_pictures(name: str, array: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Tensors of pixels: uint8 [T, H, W, 3], or uint16 [T, H, W] (a channel of 1 is taken off)."""
    if not name.startswith(STEPS):
        return array, False
    if array.dtype == np.uint16 and array.ndim == 4 and array.shape[3] == 1:
        return array[..., 0], True
    is_pixels = array.dtype == np.uint8 and array.ndim == 4 and array.shape[3] == 3
    return array, is_pixels or (array.dtype == np.uint16 and array.ndim == 3)


def _camera(stream: Stream, leaf: Leaf | None, video: CameraVideo) -> CameraSpec:
    is_deep = video.index.pix_fmt.startswith("gray16")
    return CameraSpec(
        name=stream.name,
        source_name=stream.path,
        height=video.index.height,
        width=video.index.width,
        is_depth=is_deep or (leaf is not None and leaf.dtype in _DEPTH_TYPES),
    )


def _check_flags(reading: _Reading) -> None:
    for severity, reason, detail in told_by_flags(reading.arrays):
        reading.note("warning" if severity == "warning" else "info", reason, "", detail)
    for name, values in reading.arrays.items():
        camera = stream_name(name.removeprefix(_HAS))
        if name.startswith(_HAS) and camera in reading.cameras and not values[0].any():
            detail = f"{name} is 0, but there are pictures; they are kept"
            reading.note("warning", "flag-differs", camera, detail)


def _recorded(reading: _Reading, num_steps: int, options: SourceOptions) -> Recorded:
    place = reading.place
    known = public_dataset(place.declared_name)
    fps = options.fps or (known.rate_hz if known else None)
    if known and not options.fps:
        detail = f"no rate is stored; {place.declared_name} is known to run at {fps:g} Hz"
        reading.note("info", "rate-from-table", "timestamps", detail + ", --fps sets another")
    instruction, source_name, different = instruction_of(reading.arrays)
    if different > 1:
        detail = f"{source_name} has {different} texts in this episode; the first is its"
        reading.note("info", "instruction-changes", "", detail + " instruction, all are kept")
    for spec in reading.camera_specs:
        if reading.cameras[spec.name].index.pix_fmt == "rgba" and spec.is_depth:
            detail = "each pixel's four bytes are a float32 (TFDS), little endian; kept as they are"
            reading.note("info", "float-pictures", spec.name, detail)
    gripper = gripper_convention(place.declared_name, reading.arrays)
    stamps = next((reading.arrays[name] for name in _STAMPS if name in reading.arrays), None)
    return Recorded(
        streams=tuple(reading.streams),
        num_steps=num_steps,
        fps=float(fps) if fps else None,
        stamps=stamps if stamps is not None and stamps.dtype.kind == "f" else None,
        files=(place.file,),
        conventions=CONVENTIONS | ({"gripper": gripper} if gripper else {}),
        labels={
            "embodiment": known.robot if known else "unknown",
            "instruction": instruction,
            "success": success_of(reading.arrays),
            "split": place.split,
        },
    )

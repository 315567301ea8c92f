"""From arrays to the features and cameras of an episode."""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.arrays.pictures import Pictures, as_pictures, read_camera
from ingest.arrays.rows import Rows, count_rows
from ingest.errors import EpisodeError
from ingest.source import Finding, SourceOptions
from lake.episode import CameraVideo
from lake.spec import DTYPES, CameraSpec, FeatureSpec, Role, canonical_name


@dataclass(frozen=True, kw_only=True)
class Stream:
    """An array of an episode, named and given a role by its dialect.

    Attributes:
        path: path inside the episode, the source name.
        where: file and path inside it, for errors.
        rows: the array.
        name: canonical name.
        role: role of a numeric stream.
        may_be_pictures: True where rows of bytes or of 3-D arrays are pictures.
    """

    path: str
    where: str
    rows: Rows
    name: str
    role: Role = "other"
    may_be_pictures: bool = False


@dataclass(kw_only=True)
class Streams:
    """What was read: features and cameras with their specs, and what could not be."""

    features: dict[str, NDArray[Any]] = field(default_factory=dict)
    feature_specs: list[FeatureSpec] = field(default_factory=list)
    cameras: dict[str, CameraVideo] = field(default_factory=dict)
    camera_specs: list[CameraSpec] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def distinct_names(streams: Iterable[Stream]) -> tuple[Stream, ...]:
    """Streams whose names differ: where two would share one, both get their whole path's.

    Paths that differ only in characters that names lack (`a-b`, `a_b`) are numbered.
    """
    given = tuple(streams)
    counts = Counter(stream.name for stream in given)
    taken = {name for name, count in counts.items() if count == 1}
    named = []
    for stream in given:
        name = stream.name
        if counts[name] > 1:
            whole = canonical_name(stream.path.replace("/", "_"))
            numbered = (f"{whole}_{number}" for number in itertools.count(2))
            name = next(name for name in chain((whole,), numbered) if name not in taken)
            taken.add(name)
        named.append(replace(stream, name=name))
    return tuple(named)


def broken_streams(paths: Iterable[str], where: str, locator: str) -> list[Finding]:
    """What is said of the paths of an episode that `datasets_below` could not open."""
    return [
        Finding(
            severity="error",
            reason="broken-link",
            where=f"{where}/{path}",
            detail="leads to nothing, or to damaged bytes; the episode goes in without it",
            episode=locator,
            stream=path,
        )
        for path in paths
    ]


def read_streams(
    streams: Sequence[Stream],
    num_steps: int,
    *,
    locator: str,
    fps: float | None,
    options: SourceOptions,
    headers_only: bool = False,
) -> Streams:
    """Read the streams of one episode; one that cannot be is an `error` finding.

    Args:
        streams: in the order in which features shall stand in the spec.
        num_steps: T.
        locator: the episode, for findings.
        fps: label of encoded video.
        options: how raw pictures are kept.
        headers_only: leave data unread and return only specs.
    """
    read = Streams()
    for stream in streams:
        try:
            _require_known_type(stream)
            pictures = as_pictures(stream.rows, stream.where) if stream.may_be_pictures else None
            if pictures is not None:
                _read_pictures(read, stream, pictures, num_steps, fps, options, headers_only)
            else:
                _read_feature(read, stream, num_steps, headers_only=headers_only)
        except EpisodeError as error:
            read.findings.append(
                Finding(
                    severity="error",
                    reason=error.reason,
                    where=stream.where,
                    detail=f"{error}; the episode goes in without it",
                    episode=locator,
                    stream=stream.name,
                )
            )
    return read


def _read_pictures(
    read: Streams,
    stream: Stream,
    pictures: Pictures,
    num_steps: int,
    fps: float | None,
    options: SourceOptions,
    headers_only: bool,  # noqa: FBT001  passed through from the keyword
) -> None:
    count = count_rows(pictures.rows)
    read.camera_specs.append(
        CameraSpec(
            name=stream.name,
            source_name=stream.path,
            height=pictures.height,
            width=pictures.width,
            is_depth=pictures.is_depth,
        )
    )
    if count > num_steps:
        raise EpisodeError(
            f"{stream.where}: {count} pictures for {num_steps} steps; which of them belong to the"
            " steps is not known",
            reason="more-pictures-than-steps",
            stream=stream.name,
        )
    if not headers_only and count:
        steps = np.arange(num_steps, dtype=np.int32)
        frames = np.where(steps < count, steps, np.int32(-1)).astype(np.int32)
        read.cameras[stream.name] = read_camera(pictures, frames, fps=fps, images=options.images)


def _read_feature(read: Streams, stream: Stream, num_steps: int, *, headers_only: bool) -> None:
    rows, shape = stream.rows, stream.rows.shape
    if not shape or shape[0] != num_steps:
        found = f"{shape[0]} rows" if shape else "one value or none"
        raise EpisodeError(
            f"{stream.where}: {found} for {num_steps} steps",
            reason="length-differs",
            stream=stream.name,
        )
    if 0 in shape[1:]:
        raise EpisodeError(
            f"{stream.where}: rows of shape {shape[1:]} hold no value",
            reason="empty-stream",
            stream=stream.name,
        )
    is_text = rows.dtype.kind in "OSU"
    dtype = "string" if is_text else rows.dtype.newbyteorder("=").name
    if dtype not in DTYPES:
        raise EpisodeError(
            f"{stream.where}: type {rows.dtype} cannot be stored; there are {', '.join(DTYPES)}",
            reason="unsupported-type",
            stream=stream.name,
        )
    read.feature_specs.append(
        FeatureSpec(
            name=stream.name,
            source_name=stream.path,
            dtype=dtype,
            shape=tuple(shape[1:]),
            role="language" if is_text else stream.role,
        )
    )
    if headers_only:
        return
    values = rows.read(0, num_steps)
    if is_text:
        texts = [_text(value, stream) for value in np.asarray(values, object).ravel()]
        array = np.empty(len(texts), object)
        array[:] = texts
        read.features[stream.name] = array.reshape(shape)
    else:
        read.features[stream.name] = values.astype(rows.dtype.newbyteorder("="), copy=False)


def _require_known_type(stream: Stream) -> None:
    """Ask for the type, which h5py only learns then."""
    try:
        stream.rows.dtype  # noqa: B018
    except (TypeError, OSError, RuntimeError, ValueError) as error:
        raise EpisodeError(
            f"{stream.where}: its type cannot be read ({error})",
            reason="unsupported-type",
            stream=stream.name,
        ) from error


def _text(value: object, stream: Stream) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise EpisodeError(
        f"{stream.where}: holds {type(value).__name__}, not text",
        reason="unsupported-type",
        stream=stream.name,
    )

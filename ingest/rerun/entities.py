"""The entities of a recording, gathered from its chunks, as streams.

Components by Rerun's archetypes (rerun.io/docs/reference/types): `Scalars:scalars`, `TextLog:text`,
`TextDocument:text`, `EncodedImage:blob`, `Image:buffer` and `DepthImage:buffer` with their
`format`, `VideoStream:sample` with its `codec`, translation and rotation of `Transform3D`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.coded_packets import packets_video
from ingest.depth_png import depth_pngs
from ingest.errors import EpisodeError
from ingest.timed import Clocks, TimedCamera, TimedValues
from lake.errors import VideoError
from lake.spec import Role, canonical_name
from lake.video_encode import encode_frames
from lake.video_images import images_video

_LOG: Final = "log_time"
_TEXTS: Final = ("TextLog:text", "TextDocument:text")
_NUMBERS: Final = ("Scalars:scalars", "Transform3D:translation", "Transform3D:quaternion")
# Of an ImageFormat: its color_model, and its channel_datatype with the bytes of each.
_L, _RGB, _BGR = 1, 2, 4
_U8, _U16 = 6, 8
_BYTES: Final = {_U8: 1, _U16: 2}
_FACTS: Final = (":format", ":meter", ":codec", ":media_type")  # of pictures, none themselves
_CODECS: Final = {0x61763031: "av1", 0x61766331: "h264", 0x68657631: "hevc"}  # four characters


@dataclass(kw_only=True)
class Entity:
    """What was logged at one path.

    Attributes:
        path: of it.
        components: name -> rows, each None or a list with one element per instance.
        clocks: timeline -> stamps in nanoseconds, of timelines that are times.
        static: component -> what was logged of it last without any time.
        rows: that have times.
        unread: components that are no stream here.
        counts: timelines that count, and are no times.
    """

    path: str
    components: dict[str, list[Any]] = field(default_factory=dict)
    clocks: dict[str, list[int]] = field(default_factory=dict)
    static: dict[str, Any] = field(default_factory=dict)
    rows: int = 0
    unread: set[str] = field(default_factory=set)
    counts: set[str] = field(default_factory=set)

    def add(self, batch: pa.RecordBatch, *, is_static: bool) -> None:
        """Take in a chunk."""
        for column, values in zip(batch.schema, batch.columns, strict=True):
            kind = (column.metadata or {}).get(b"rerun:kind", b"")
            if kind == b"index" and not pa.types.is_timestamp(column.type):
                self.counts.add(column.name)
            elif kind == b"index":
                stamps = values.cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist()
                self._rows_of(self.clocks, column.name).extend(stamps)
            elif kind == b"data" and not _is_known(column.name):
                self.unread.add(column.name)
            elif kind == b"data" and is_static:
                self.static.update(
                    (column.name, row) for row in _rows(column.name, values) if row is not None
                )
            elif kind == b"data":
                self._rows_of(self.components, column.name).extend(_rows(column.name, values))
        if is_static:
            return
        self.rows += batch.num_rows
        for held in (*self.components.values(), *self.clocks.values()):
            held.extend([None] * (self.rows - len(held)))

    @property
    def timeless(self) -> list[str]:
        """Components with content of their own that were logged without a time."""
        return sorted(name for name in self.static if not name.endswith(_FACTS))

    @property
    def unused_timelines(self) -> list[str]:
        """Timelines that become no clock: counts, times that some rows lack, further times."""
        whole = sorted(n for n, stamps in self.clocks.items() if None not in stamps)
        own = [name for name in whole if name != _LOG]
        used = {_LOG, *own[:1]} & set(whole)
        return sorted((self.counts | set(self.clocks)) - used)

    @property
    def conventions(self) -> dict[str, str]:
        """What a depth of one metre is stored as."""
        rows = [self.static.get("DepthImage:meter"), *self.components.get("DepthImage:meter", [])]
        told = {float(row[0]) for row in rows if row}
        name = canonical_name(self.path.strip("/"))
        return (
            {f"{name}.depth_per_metre": ", ".join(f"{v:g}" for v in sorted(told))} if told else {}
        )

    def _rows_of(self, held: dict[str, list[Any]], name: str) -> list[Any]:
        return held.setdefault(name, [None] * self.rows)


def _is_known(component: str) -> bool:
    return component in {
        *_TEXTS,
        *_NUMBERS,
        *("EncodedImage:blob", "EncodedImage:media_type", "Image:buffer", "Image:format"),
        *("DepthImage:buffer", "DepthImage:format", "DepthImage:meter"),
        *("VideoStream:sample", "VideoStream:codec"),
    }


def _rows(name: str, values: pa.Array) -> list[Any]:
    """Rows of a component; pictures as bytes and not as lists of numbers."""
    if not name.endswith((":blob", ":buffer", ":sample")):
        return list(values.to_pylist())
    found: list[Any] = []
    for row in values:
        if not row.is_valid or not len(row.values):
            found.append(None)
            continue
        blob = row.values[0]
        data = blob.values if isinstance(blob, pa.ListScalar) else blob
        found.append(
            data.to_numpy(zero_copy_only=False).tobytes()
            if isinstance(data, pa.Array)
            else data.as_py()
        )
    return found


def streams_of(
    entity: Entity, *, fps: float, images: Literal["h264", "png"]
) -> Iterator[TimedValues | TimedCamera]:
    """The streams of an entity.

    Args:
        entity: whole.
        fps: label of encoded video.
        images: how raw pictures are kept.

    Raises:
        EpisodeError: names the component that cannot be a stream.
    """
    if not entity.components:
        return
    for name, rows in entity.components.items():
        there = [number for number, row in enumerate(rows) if row is not None and len(row)]
        if not there or name.endswith(_FACTS):
            continue
        taken = [rows[number] for number in there]
        clocks = _clocks(entity, there)
        label = _label(entity, name)
        if name in _TEXTS:
            texts = np.empty(len(taken), object)
            texts[:] = ["\n".join(map(str, row)) for row in taken]
            yield TimedValues(
                name=label, source_name=entity.path, clocks=clocks, values=texts, role="language"
            )
        elif name in _NUMBERS:
            yield TimedValues(
                name=label,
                source_name=entity.path,
                clocks=clocks,
                values=_numbers(taken, entity.path, name),
                role=_role(entity.path),
                quaternion="xyzw" if name.endswith(":quaternion") else None,
            )
        else:
            yield _camera(entity, name, there, taken, clocks, fps=fps, images=images)


def _clocks(entity: Entity, there: Sequence[int]) -> Clocks:
    """`log` is when it was logged; of other times the first is taken for its own (`header`)."""
    whole = {
        name: np.array([stamps[number] for number in there], np.int64)
        for name, stamps in entity.clocks.items()
        if all(stamps[number] is not None for number in there)
    }
    clocks: dict[str, NDArray[np.int64]] = {}
    if _LOG in whole:
        clocks["log"] = whole.pop(_LOG)
    if whole:
        first = min(whole)
        clocks["header" if "log" in clocks else "log"] = whole[first]
    if not clocks:
        raise EpisodeError(
            f"{entity.path}: no timeline of it is a time, only a count",
            reason="no-clock",
            stream=canonical_name(entity.path),
        )
    return clocks


def _label(entity: Entity, component: str) -> str:
    """The path, with the component where the entity has several streams."""
    name = canonical_name(entity.path.strip("/"))
    several = sum(c in _NUMBERS or c in _TEXTS for c in entity.components) > 1
    return f"{name}_{component.rsplit(':', 1)[1]}" if several else name


def _numbers(rows: Sequence[Any], path: str, component: str) -> NDArray[np.float64]:
    sizes = {len(row) for row in rows}
    if len(sizes) > 1:
        raise EpisodeError(
            f"{path}: {component} has {min(sizes)} to {max(sizes)} values from row to row",
            reason="ragged-stream",
            stream=canonical_name(path),
        )
    values = np.array(rows, np.float64)
    return values[:, 0] if values.shape[1] == 1 else values


def _camera(
    entity: Entity,
    component: str,
    there: Sequence[int],
    rows: Sequence[bytes],
    clocks: Clocks,
    *,
    fps: float,
    images: Literal["h264", "png"],
) -> TimedCamera:
    shown = np.arange(len(rows), dtype=np.int32)
    kind = component.partition(":")[0]
    try:
        if kind == "VideoStream":
            video = packets_video(rows, _codec(entity))
        elif kind == "EncodedImage":
            video = images_video(rows, step_to_frame=shown)
        else:
            formats = entity.components.get(f"{kind}:format", [])
            still = entity.static.get(f"{kind}:format")
            pictures = _pictures(entity.path, kind, rows, _held(formats, there, still))
            if kind == "DepthImage":
                video = images_video(depth_pngs(pictures), step_to_frame=shown)
            else:
                video = encode_frames(pictures, fps=fps, step_to_frame=shown, codec=images)
    except VideoError as error:
        raise EpisodeError(
            f"{entity.path}: {error}", reason="bad-pictures", stream=canonical_name(entity.path)
        ) from error
    return TimedCamera(
        name=canonical_name(entity.path.strip("/")),
        source_name=entity.path,
        clocks=clocks,
        video=video,
        is_depth=kind == "DepthImage",
    )


def _codec(entity: Entity) -> str:
    codes = [entity.static.get("VideoStream:codec")]
    codes += entity.components.get("VideoStream:codec", [])
    found = {row[0] for row in codes if row}
    if len(found) != 1:
        raise VideoError(f"a video stream of {len(found)} codecs")
    code = int(found.pop())
    return _CODECS.get(code, f"0x{code:x}")


def _held(
    formats: Sequence[Any], there: Sequence[int], still: Sequence[Any] | None
) -> list[Mapping[str, Any] | None]:
    """The format of each picture: what was logged last, or else without a time."""
    held, last = [], still[0] if still else None
    for number in range(max(there) + 1):
        row = formats[number] if number < len(formats) else None
        last = row[0] if row else last
        held.append(last)
    return [held[number] for number in there]


def _pictures(
    path: str, kind: str, rows: Sequence[bytes], formats: Sequence[Mapping[str, Any] | None]
) -> Iterator[NDArray[Any]]:
    is_depth = kind == "DepthImage"
    for data, about in zip(rows, formats, strict=True):
        if about is None or about["pixel_format"]:
            raise EpisodeError(
                f"{path}: pictures of pixel format {about and about['pixel_format']}; plain RGB,"
                " BGR, grey or 16-bit depth is known",
                reason="unknown-pixels",
                stream=canonical_name(path),
            )
        size = (about["height"], about["width"])
        wanted = _U16 if is_depth else _U8
        model, dtype = about["color_model"] or _L, about["channel_datatype"] or _U8
        channels = {_L: 1, _RGB: 3, _BGR: 3}.get(model, 0)
        if (
            dtype != wanted
            or not channels
            or len(data) != size[0] * size[1] * channels * _BYTES[wanted]
        ):
            raise EpisodeError(
                f"{path}: {len(data)} bytes of pictures of color model {model}, type {dtype},"
                f" {size[1]}x{size[0]}",
                reason="unknown-pixels",
                stream=canonical_name(path),
            )
        if is_depth:
            yield np.frombuffer(data, "<u2").reshape(size)
            continue
        picture = np.frombuffer(data, np.uint8).reshape(*size, channels)
        if model == _L:
            picture = np.repeat(picture, 3, axis=2)
        yield picture[..., ::-1] if model == _BGR else picture


def _role(path: str) -> Role:
    first = path.strip("/").lower()
    if first.startswith("action") or "/action" in first:
        return "action"
    words = ("observation", "state", "joint", "qpos")
    return "state" if any(word in first for word in words) else "other"

"""One pack as bytes that can be decoded alone: its signals, picture table and packets.

Layout: `HRMP`, a version byte, the length of a JSON header as uint32 (little endian), the header,
the arrays of `_ARRAYS` in their order, then the packets of all runs, back to back. The header holds
the number of elements of each array, the shapes of the first two, and the distinct kinds of streams
(codec, size, colour, ...: the fields of `VideoIndex` that are not arrays). In shapes: I pictures, C
streams, R decode runs in the order of their streams, P packets in the order of their runs, W wanted
frames in the order of their runs.
"""

import json
import struct
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lake.errors import CorruptDataError
from lake.video_index import VideoIndex
from lake.video_runs import DecodeRun
from loader.assembly.signals import PackSignals
from loader.fetch.episodes import CameraStream
from loader.fetch.fetched import FetchedRun
from loader.fetch.images import ImageTable, counted
from loader.fetch.plan_rows import PackRow, PlanRows

_MAGIC: Final = b"HRMP"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sBI")
_ARRAYS: Final[Mapping[str, str]] = {
    "state": "<f4",  # [S, Ds]
    "action": "<f4",  # [Q, Da]
    "image_span": "<i4",  # [I], as in ImageTable, and the next four
    "image_step": "<i4",
    "image_camera": "<i4",
    "image_frame": "<i4",
    "image_stream": "<i4",
    "stream_episode": "<i4",  # [C], row of the plan's episodes; -1 for pictures encoded anew
    "stream_camera": "<i4",  # [C], camera of the plan; -1 likewise
    "stream_kind": "<i4",  # [C], row of the header's kinds
    "stream_runs": "<i4",  # [C], number of runs
    "run_packets": "<i4",  # [R], number of packets
    "run_frames": "<i4",  # [R], number of wanted frames
    "frame": "<i4",  # [W], display ordinals, ascending in each run
    "packet_size": "<i4",  # [P], as in VideoIndex, and the next four
    "packet_frame": "<i4",
    "packet_pts": "<i8",
    "packet_checksum": "<u8",
    "packet_key": "|b1",
}
_OF_PACKET: Final = (
    "packet_size",
    "packet_frame",
    "packet_pts",
    "packet_checksum",
    "packet_key",
)
_KIND_FIELDS: Final = tuple(
    f.name for f in fields(VideoIndex) if f.name not in (*_OF_PACKET, "step_to_frame")
)
_NO_STEPS: Final = np.empty(0, np.int32)

StreamMap = MutableMapping[tuple[int, int], CameraStream]


@dataclass(frozen=True, kw_only=True)
class PackContent:
    """What a materialised pack holds; every picture of the table is a wanted frame of some run."""

    images: ImageTable
    signals: PackSignals
    runs: tuple[FetchedRun, ...]

    @property
    def video_bytes(self) -> int:
        """Bytes of all packets."""
        return sum(len(run.data) for run in self.runs)


def pack_to_bytes(content: PackContent) -> bytes:
    """Serialise; equal packs give equal bytes."""
    runs_of: dict[CameraStream, list[FetchedRun]] = {}
    for run in content.runs:
        runs_of.setdefault(run.stream, []).append(run)
    number = {stream: row for row, stream in enumerate(runs_of)}
    ordered = [run for runs in runs_of.values() for run in runs]
    renumbered = np.asarray([number.get(s, -1) for s in content.images.streams], np.int32)
    image_stream = renumbered[content.images.stream]
    if (image_stream < 0).any():
        raise AssertionError("a picture whose packets are not in the pack")
    kinds: dict[str, int] = {}
    arrays: dict[str, Any] = {
        "state": content.signals.state,
        "action": content.signals.action,
        "image_span": content.images.span,
        "image_step": content.images.step,
        "image_camera": content.images.camera,
        "image_frame": content.images.frame,
        "image_stream": image_stream,
        "stream_episode": [stream.episode for stream in runs_of],
        "stream_camera": [stream.camera for stream in runs_of],
        "stream_kind": [kinds.setdefault(_kind(s.index), len(kinds)) for s in runs_of],
        "stream_runs": [len(runs) for runs in runs_of.values()],
        "run_packets": [run.run.stop_packet - run.run.first_packet for run in ordered],
        "run_frames": [len(run.run.frames) for run in ordered],
        "frame": _joined([run.run.frames for run in ordered]),
        **{
            name: _joined(
                [
                    getattr(run.index, name)[run.run.first_packet : run.run.stop_packet]
                    for run in ordered
                ]
            )
            for name in _OF_PACKET
        },
    }
    typed = {name: np.asarray(arrays[name]).astype(dtype) for name, dtype in _ARRAYS.items()}
    header = {
        "counts": [array.size for array in typed.values()],
        "state_shape": content.signals.state.shape,
        "action_shape": content.signals.action.shape,
        "kinds": [json.loads(kind) for kind in kinds],
    }
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    return b"".join(
        [
            _HEAD.pack(_MAGIC, _VERSION, len(text)),
            text,
            *(array.tobytes() for array in typed.values()),
            *(run.data for run in ordered),
        ]
    )


def pack_from_bytes(
    data: memoryview, row: PackRow, rows: PlanRows, streams: StreamMap
) -> PackContent:
    """Parse what `pack_to_bytes` wrote; packets are views of `data`, arrays are not.

    Args:
        data: the bytes, already verified.
        row: the pack's spans.
        rows: the plan's tables.
        streams: (episode, camera) -> stream, of other packs. It is used where it is there, so that
            packs that show pictures of one camera have one stream in common, and added where not.

    Raises:
        CorruptDataError: not the bytes of this pack.
    """
    try:
        header, arrays, payload = _parse(data)
        indexes = _indexes(header, arrays)
        ours = _streams(arrays, indexes, row, rows, streams)
        content = PackContent(
            images=ImageTable(
                span=arrays["image_span"],
                step=arrays["image_step"],
                camera=arrays["image_camera"],
                frame=arrays["image_frame"],
                nth=counted(arrays["image_span"], len(row)),
                stream=arrays["image_stream"],
                streams=ours,
            ),
            signals=PackSignals(
                state=arrays["state"].reshape(header["state_shape"]),
                action=arrays["action"].reshape(header["action_shape"]),
            ),
            runs=_runs(arrays, ours, indexes, payload),
        )
    except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        raise CorruptDataError(f"its content cannot be parsed ({error!r})") from error
    images = np.bincount(content.images.span, minlength=len(row))
    if len(images) != len(row) or (images != row.images).any():
        raise CorruptDataError("it holds other pictures than the plan counts")
    return content


def _kind(index: VideoIndex) -> str:
    kind = {name: getattr(index, name) for name in _KIND_FIELDS}
    kind["extradata"] = index.extradata.hex()
    return json.dumps(kind, sort_keys=True)


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0)


def _parse(data: memoryview) -> tuple[dict[str, Any], dict[str, NDArray[Any]], memoryview]:
    magic, version, length = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise CorruptDataError(
            f"it begins with {magic!r}, layout {version}; this Headrace reads layout {_VERSION}"
        )
    at = _HEAD.size + length
    header: dict[str, Any] = json.loads(bytes(data[_HEAD.size : at]))
    arrays = {}
    for (name, dtype), count in zip(_ARRAYS.items(), header["counts"], strict=True):
        # Copied, since streams outlive their pack and must not hold its bytes.
        arrays[name] = np.frombuffer(data, np.dtype(dtype), count, at).copy()
        at += arrays[name].nbytes
    return header, arrays, data[at:]


def _indexes(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[VideoIndex]:
    """[C]: of each stream, the packets that the pack holds."""
    kinds: list[dict[str, Any]] = [
        {
            **kind,
            "extradata": bytes.fromhex(kind["extradata"]),
            "time_base": tuple(kind["time_base"]),
        }
        for kind in header["kinds"]
    ]
    packets = _bounds(arrays["run_packets"])[_bounds(arrays["stream_runs"])]
    indexes = []
    for kind, (first, stop) in zip(
        arrays["stream_kind"].tolist(), pairwise(packets.tolist()), strict=True
    ):
        of_packet: dict[str, Any] = {name: arrays[name][first:stop] for name in _OF_PACKET}
        indexes.append(VideoIndex(**kinds[kind], **of_packet, step_to_frame=_NO_STEPS))
    return indexes


def _streams(
    arrays: Mapping[str, NDArray[Any]],
    indexes: Sequence[VideoIndex],
    row: PackRow,
    rows: PlanRows,
    known: StreamMap,
) -> tuple[CameraStream, ...]:
    packets = _bounds(arrays["run_packets"])[_bounds(arrays["stream_runs"])]
    offsets = _bounds(arrays["packet_size"])[packets].tolist()
    streams = []
    for episode, camera, index, offset in zip(
        arrays["stream_episode"].tolist(),
        arrays["stream_camera"].tolist(),
        indexes,
        offsets[:-1],
        strict=True,
    ):
        if (stream := known.get((episode, camera))) is None:
            label = f"pictures of {index.width}x{index.height} in pack {row.pack}"
            if episode >= 0:
                name = rows.plan.header.cameras[camera]
                label = f"episode {rows.episode_id[episode].as_py()}, camera {name}"
            stream = CameraStream(
                episode=episode,
                camera=camera,
                label=label,
                address=row.pack,
                base_offset=offset,
                index=index,
            )
            if episode >= 0:
                known[episode, camera] = stream
        streams.append(stream)
    return tuple(streams)


def _runs(
    arrays: Mapping[str, NDArray[Any]],
    streams: Sequence[CameraStream],
    indexes: Sequence[VideoIndex],
    payload: memoryview,
) -> tuple[FetchedRun, ...]:
    stream_of = np.repeat(np.arange(len(streams)), arrays["stream_runs"]).tolist()
    packets = _bounds(arrays["run_packets"])
    ends = _bounds(arrays["packet_size"])[packets].tolist()
    frames = _bounds(arrays["run_frames"]).tolist()
    if not ends[-1] == len(payload):
        raise CorruptDataError(f"it has {len(payload)} bytes of packets, its table {ends[-1]}")
    runs, first_of = [], dict[int, int]()
    for number, (first, stop) in enumerate(pairwise(packets.tolist())):
        stream = stream_of[number]
        before = first_of.setdefault(stream, first)
        runs.append(
            FetchedRun(
                stream=streams[stream],
                index=indexes[stream],
                run=DecodeRun(
                    first_packet=first - before,
                    stop_packet=stop - before,
                    frames=arrays["frame"][frames[number] : frames[number + 1]],
                ),
                data=payload[ends[number] : ends[number + 1]],
            )
        )
    return tuple(runs)


def _bounds(counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """int64 [n+1]: running sums from 0."""
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds

"""Rows and video of views, made up from the rows of the episodes that they consist of.

What is made up is checked by its reader like any row: the facts of a view hold the checksums of its
features, stamps and packet indexes as they were when it was made.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lake.edit.cut_video import Cut, join_cuts
from lake.edit.log import edit_state
from lake.edit.view import View
from lake.errors import CorruptDataError, EpisodeNotFoundError, LakeError
from lake.store import Lake
from lake.tables import VALID_SUFFIX
from lake.take_stored import take_stored_rows
from lake.video_index import VideoIndex

_INDEXES: Final = ("cameras", "camera_bytes", "video_indexes", "video_index_checksums")


_NO_ROWS: Final = pa.table({})


class Segment(NamedTuple):
    """Bytes [offset, offset + length) of the `video` blob of the stored row at `address`."""

    address: int
    offset: int
    length: int


@dataclass
class _Known:
    """What was found out about the views of a lake at one version of its tables."""

    versions: tuple[int, int]
    stored: Mapping[tuple[str, str], int]
    segments: dict[int, list[Segment]] = field(default_factory=dict)


_known: "WeakKeyDictionary[Lake, _Known]" = WeakKeyDictionary()


def view_rows(lake: Lake, addresses: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Rows of views, in the order of their addresses, as single-chunk columns.

    Raises:
        EpisodeNotFoundError: no view has such an address, or an episode it consists of is gone.
        CorruptDataError: the packet index of an episode does not match its checksum.
    """
    views = [_view(lake, address) for address in addresses]
    schema: pa.Schema = lake.dataset("trajectories").schema
    fields = [schema.field(name) for name in columns]
    bulk = [f.name for f in fields if f.name not in views[0].facts]
    rows = _PartRows.read(lake, views, bulk)
    arrays = []
    for of in fields:
        if of.name in views[0].facts:
            arrays.append(pa.array([view.facts[of.name] for view in views], of.type))
        elif of.name == "video_indexes":
            found = [_indexes(lake, view, rows) for view in views]
            arrays.append(pa.array(found, of.type))
        else:
            arrays.append(_lists([_joined(view, rows, of) for view in views], of.type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def view_segments(lake: Lake, address: int, offset: int, length: int) -> list[Segment]:
    """Where bytes [offset, offset + length) of a view's video are stored, in order.

    Raises:
        EpisodeNotFoundError: no view has such an address, or an episode it consists of is gone.
        LakeError: the range is past the end of the video.
    """
    view = _view(lake, address)
    known = _knowledge(lake)
    if address not in known.segments:
        _indexes(lake, view, _PartRows.read(lake, [view], ["video_indexes"]))
    segments = known.segments[address]
    ends = np.cumsum([0, *(segment.length for segment in segments)]).tolist()
    if offset < 0 or length < 0 or offset + length > ends[-1]:
        raise LakeError(
            f"{lake.uri}: episode {view.episode_id}: bytes [{offset}, {offset + length}) are not"
            f" among its {ends[-1]} bytes of video"
        )
    found: list[Segment] = []
    at, stop = offset, offset + length
    number = max(bisect_right(ends, at) - 1, 0)
    while at < stop:
        segment, begin = segments[number], ends[number]
        end = min(stop, ends[number + 1])
        if end > at:
            found.append(Segment(segment.address, segment.offset + at - begin, end - at))
        at, number = max(at, end), number + 1
    return found


@dataclass(frozen=True)
class _PartRows:
    """Rows of the stored episodes that some views consist of; `row` finds one by its address."""

    table: pa.Table
    row: Mapping[int, int]
    address: Mapping[tuple[str, str], int]

    @classmethod
    def read(cls, lake: Lake, views: Sequence[View], bulk: Sequence[str]) -> "_PartRows":
        stored = _knowledge(lake).stored
        for view in views:
            for part in view.parts:
                if part.stored not in stored:
                    raise EpisodeNotFoundError(
                        f"{lake.uri}: episode {view.episode_id} consists of steps of"
                        f" {part.episode_id}, which is not in the lake"
                    )
        addresses = list(
            dict.fromkeys(stored[part.stored] for view in views for part in view.parts)
        )
        names = [name for name in bulk if name != "video_indexes"]
        if "video_indexes" in bulk:
            names += _INDEXES
        table = take_stored_rows(lake, addresses, ["num_steps", *names]) if bulk else _NO_ROWS
        return cls(table, {address: row for row, address in enumerate(addresses)}, stored)


def _view(lake: Lake, address: int) -> View:
    view = edit_state(lake).by_address.get(address)
    if view is None:
        raise EpisodeNotFoundError(
            f"{lake.uri}: no episode at address {address} in the edits of this version: it belongs"
            " to another lake; plan again, or open the version the plan pins"
        )
    return view


def _knowledge(lake: Lake) -> _Known:
    """Addresses of stored rows, found by one scan per version of the lake."""
    versions = (lake.dataset("edits").version, lake.dataset("trajectories").version)
    known = _known.get(lake)
    if known is None or known.versions != versions:
        views = edit_state(lake).by_address.values()
        wanted = {part.stored for view in views for part in view.parts}
        with lake.errors_named("look up the rows of edited episodes"):
            rows = lake.dataset("trajectories").scanner(
                columns=["ingest_key", "commit_id"], with_row_address=True
            )
            found = rows.to_table()
        keys = pa.array(list({key for key, _ in wanted}), pa.string())
        found = found.filter(pc.is_in(found["ingest_key"], value_set=keys))
        stored: dict[tuple[str, str], int] = {}
        columns = (found[name].to_pylist() for name in ("ingest_key", "commit_id", "_rowaddr"))
        for key, commit, address in zip(*columns, strict=True):
            if (key, commit) in wanted:
                stored[key, commit] = min(address, stored.get((key, commit), address))
        known = _known[lake] = _Known(versions, stored)
    return known


def _joined(view: View, rows: _PartRows, of: pa.Field) -> pa.Array | None:
    """Values of a list column for all steps of a view; None where the episodes have none."""
    is_valid = of.name.endswith(VALID_SUFFIX)
    pieces: list[pa.Array] = []
    absent = 0
    for part in view.parts:
        row = rows.row[rows.address[part.stored]]
        scalar = rows.table[of.name][row]
        if not scalar.is_valid:
            absent += 1
            pieces.append(pa.array([True] * (part.stop - part.start) * is_valid, pa.bool_()))
            continue
        size = len(scalar.values) // rows.table["num_steps"][row].as_py()
        piece = scalar.values.slice(part.start * size, (part.stop - part.start) * size)
        if of.name == "timestamps_ns":
            piece = pa.array(piece.to_numpy() + np.int64(part.shift_ns))
        pieces.append(piece)
    if absent == len(pieces):
        return None
    if absent and not is_valid:
        raise CorruptDataError(
            f"episode {view.episode_id}: some of what it consists of lacks {of.name}"
        )
    return pa.concat_arrays(pieces)


def _lists(values: Sequence[pa.Array | None], kind: pa.LargeListType) -> pa.Array:
    """A list array of one row for each of `values`, null for None."""
    empty = pa.array([], kind.value_type)
    filled = [empty if value is None else value.cast(kind.value_type) for value in values]
    ends = np.cumsum([0, *(len(value) for value in filled)])
    return pa.LargeListArray.from_arrays(
        pa.array(ends, pa.int64()),
        pa.concat_arrays(filled),
        type=kind,
        mask=pa.array([value is None for value in values], pa.bool_()),
    )


def _indexes(lake: Lake, view: View, rows: _PartRows) -> list[bytes]:
    """The packet indexes of a view's cameras; notes where their packets are stored."""
    found: list[bytes] = []
    segments: list[Segment] = []
    parts = [_stored_cameras(view, part.stored, rows) for part in view.parts]
    for camera in view.facts["cameras"]:
        cuts = [
            Cut(cameras[camera][0] if camera in cameras else None, part.start, part.stop)
            for part, cameras in zip(view.parts, parts, strict=True)
        ]
        joined = join_cuts(cuts)
        if joined is None:
            raise CorruptDataError(f"episode {view.episode_id}: camera {camera} has no packets")
        index, pieces = joined
        found.append(index.to_bytes())
        for piece in pieces:
            address = rows.address[view.parts[piece.cut].stored]
            base = parts[piece.cut][camera][1]
            segments.append(Segment(address, base + piece.offset, piece.length))
    _knowledge(lake).segments[view.address] = segments
    return found


def _stored_cameras(
    view: View, stored: tuple[str, str], rows: _PartRows
) -> dict[str, tuple[VideoIndex, int]]:
    """Camera of a stored row -> its index, verified, and its first byte in the row's blob."""
    row: dict[str, Any] = {
        name: rows.table[name][rows.row[rows.address[stored]]].as_py() for name in _INDEXES
    }
    cameras: dict[str, tuple[VideoIndex, int]] = {}
    offset = 0
    for name, size, data, checksum in zip(*(row[column] for column in _INDEXES), strict=True):
        if xxhash.xxh3_64_intdigest(data) != checksum:
            raise CorruptDataError(
                f"episode {view.episode_id}, camera {name}: the video index of an episode it"
                " consists of does not match its checksum"
            )
        cameras[name] = (VideoIndex.from_bytes(data), offset)
        offset += size
    return cameras

"""Reading video: packet indexes of many episodes, and many byte ranges, each in one request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import xxhash

from lake.edit.read_views import view_segments
from lake.edit.view import is_view
from lake.errors import CorruptDataError, LakeError
from lake.store import Lake
from lake.take import take_rows
from lake.take_stored import missing_address
from lake.video_index import VideoIndex

INDEX_COLUMNS: Final = (
    *("episode_id", "cameras", "camera_bytes", "video_indexes", "video_index_checksums"),
)
"""Columns of `trajectories` that `parse_video_indexes` needs."""


@dataclass(frozen=True)
class EpisodeVideos:
    """The cameras of one episode.

    Attributes:
        episode_id: which episode.
        address: its row.
        cameras: name -> packet index; empty where the episode has no video.
        base_offsets: name -> first byte of the camera's packets in the row's `video` blob.
    """

    episode_id: str
    address: int
    cameras: Mapping[str, VideoIndex]
    base_offsets: Mapping[str, int]


class ByteRange(NamedTuple):
    """Bytes [offset, offset + length) of the `video` blob of the row at `address`."""

    address: int
    offset: int
    length: int


def read_video_indexes(lake: Lake, addresses: Sequence[int]) -> list[EpisodeVideos]:
    """Packet indexes of episodes, in the order of `addresses`, in one request.

    Raises:
        EpisodeNotFoundError: an address that is not (or no longer) a row.
        CorruptDataError: an index does not match its checksum.
    """
    return parse_video_indexes(take_rows(lake, addresses, INDEX_COLUMNS), addresses)


def parse_video_indexes(rows: pa.Table, addresses: Sequence[int]) -> list[EpisodeVideos]:
    """The packet indexes in rows of `trajectories` that were read with `INDEX_COLUMNS`.

    Raises:
        CorruptDataError: an index does not match its checksum, or its packets the row.
    """
    names = INDEX_COLUMNS
    result = []
    table = rows.select(names).to_pylist()
    for address, row in zip(addresses, table, strict=True):
        indexes: dict[str, VideoIndex] = {}
        offsets: dict[str, int] = {}
        offset = 0
        for camera, size, data, checksum in zip(*(row[name] for name in names[1:]), strict=True):
            where = f"episode {row['episode_id']}, camera {camera}"
            if xxhash.xxh3_64_intdigest(data) != checksum:
                raise CorruptDataError(f"{where}: video index does not match its checksum")
            index = VideoIndex.from_bytes(data)
            if index.num_bytes != size:
                raise CorruptDataError(
                    f"{where}: the row says {size} bytes of video, the index {index.num_bytes}"
                )
            indexes[camera] = index
            offsets[camera] = offset
            offset += size
        result.append(EpisodeVideos(row["episode_id"], address, indexes, offsets))
    return result


def read_ranges(lake: Lake, ranges: Sequence[ByteRange]) -> list[bytes]:
    """Bytes of many ranges, in order, in one planned request (which coalesces neighbours).

    A call costs about 1 ms whatever is in it: gather the ranges of several steps. The bytes are
    not verified here, see `lake.video_runs.verify_packets`.

    Raises:
        EpisodeNotFoundError: an address that is not (or no longer) a row.
        LakeError: a range past the end of its blob, or the store failed or gave too little.
    """
    if not ranges:
        return []
    if any(is_view(wanted.address) for wanted in ranges):
        return _read_with_views(lake, ranges)
    try:
        with lake.errors_named("read video"):
            found = lake.dataset("trajectories").read_blob_ranges(
                "video", list(ranges), selector="addresses"
            )
    except LakeError as error:
        raise missing_address(lake, [wanted.address for wanted in ranges], error) from error
    parts = [data or b"" for _, _, data in found]
    if [len(part) for part in parts] != [wanted.length for wanted in ranges]:
        raise LakeError(
            f"{lake.uri}: read video: incomplete: {sum(map(len, parts))} bytes came where"
            f" {sum(wanted.length for wanted in ranges)} were asked for"
        )
    return parts


def _read_with_views(lake: Lake, ranges: Sequence[ByteRange]) -> list[bytes]:
    """As `read_ranges`: the ranges of views are read where their packets are stored."""
    pieces = [
        [ByteRange(*segment) for segment in view_segments(lake, *wanted)]
        if is_view(wanted.address)
        else [wanted]
        for wanted in ranges
    ]
    found = iter(read_ranges(lake, [piece for parts in pieces for piece in parts]))
    return [b"".join(next(found) for _ in parts) for parts in pieces]

"""Giving back what was recorded: chunk by chunk, or message by message with its picture."""

import json
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lake.errors import CorruptDataError
from lake.find import find_recorded
from lake.raw import RawChunk, RawMessage, RawStream
from lake.read_video import ByteRange, EpisodeVideos, read_ranges, read_video_indexes
from lake.store import Lake
from lake.tables import CLOCKS, equals
from lake.video_runs import packet_checksums

_PICTURES: Final = 64


def raw_streams(lake: Lake, episode_id: str) -> dict[str, int]:
    """Names of the streams that were recorded with an episode, sorted -> number of messages.

    To have the messages of several in the order of a clock, read each by name and merge them:
    `heapq.merge(*(read_raw_messages(lake, episode_id, name) for name in names), key=...)` holds a
    chunk of each.

    Raises:
        EpisodeNotFoundError: no such episode, or it was deleted.
    """
    counts: dict[str, int] = {}
    for name, _, place in _places(lake, episode_id, None):
        counts[name] = counts.get(name, 0) + place.num_messages
    return counts


def read_raw(lake: Lake, episode_id: str, stream: str | None = None) -> Iterator[RawChunk]:
    """The chunks of an episode, one in memory at a time, each verified.

    Args:
        lake: where.
        episode_id: an episode as it was recorded; parts of it and what was merged of several have
            no recording of their own.
        stream: name of the one stream to read; None reads all, one after the other by name.

    Yields:
        The chunks of a stream in the order of recording; nothing where the episode was written
        without its recording.

    Raises:
        EpisodeNotFoundError: no such episode, or it was deleted.
        CorruptDataError: a chunk does not match its checksum, or chunks of a stream are missing.
    """
    last, expected = "", 0
    for name, number, place in _places(lake, episode_id, stream):
        if name != last:
            last, expected = name, 0
        where = f"episode {episode_id}, raw stream {name}, chunk {number}"
        if number != expected:
            raise CorruptDataError(f"{where}: chunk {expected} of the stream is missing")
        expected += 1
        with lake.errors_named("read raw"):
            rows = lake.dataset("raw")._take_rows([place.address])  # noqa: SLF001 - no public take by address
        yield parse_chunk(rows.combine_chunks(), where)


def read_raw_messages(
    lake: Lake, episode_id: str, stream: str | None = None
) -> Iterator[RawMessage]:
    """The messages of an episode as they were recorded, pictures put back from the video.

    The order is that of `read_raw`. The messages have no `frame`: all bytes are in the payload.

    Raises:
        EpisodeNotFoundError: no such episode, or it was deleted.
        CorruptDataError: stored bytes do not match their checksum.
    """
    videos: EpisodeVideos | None = None
    for chunk in read_raw(lake, episode_id, stream):
        if chunk.camera is not None and videos is None:
            videos = read_video_indexes(lake, [find_recorded(lake, episode_id)[0]])[0]
        yield from _messages(lake, chunk, videos)


class _Place(NamedTuple):
    address: int
    num_messages: int


def _places(lake: Lake, episode_id: str, stream: str | None) -> list[tuple[str, int, _Place]]:
    """Stream, number and place of each chunk, in order; none in a lake without recordings."""
    _, commit_id = find_recorded(lake, episode_id)
    if not lake.has_table("raw"):
        return []
    with lake.errors_named("look up the raw chunks of an episode"):
        rows = lake.dataset("raw").scanner(
            columns=["stream", "chunk", "commit_id", "num_messages"],
            filter=equals("episode_id", episode_id),
            with_row_address=True,
        )
        found = rows.to_table().to_pylist()
    places: dict[tuple[str, int], _Place] = {}
    for row in sorted(found, key=lambda row: row["_rowaddr"]):
        if row["commit_id"] == commit_id and stream in (None, row["stream"]):
            # A commit whose reply got lost may have been applied twice: the first copy counts.
            place = _Place(row["_rowaddr"], row["num_messages"])
            places.setdefault((row["stream"], row["chunk"]), place)
    return [(*key, place) for key, place in sorted(places.items())]


def parse_chunk(rows: pa.Table, where: str) -> RawChunk:
    """The chunk in one row of `raw`, verified; `where` begins the message of an error.

    Raises:
        CorruptDataError: it does not match its checksum.
    """

    def values(column: str) -> NDArray[Any] | None:
        scalar = rows[column][0]
        return scalar.values.to_numpy(zero_copy_only=False) if scalar.is_valid else None

    row: dict[str, Any] = rows.drop_columns(
        [*(f"{clock}_ns" for clock in CLOCKS), "sequence", "sizes", "payload", "frames", "frame_at"]
    ).to_pylist()[0]
    stamps = {clock: values(f"{clock}_ns") for clock in CLOCKS}
    try:
        chunk = RawChunk(
            stream=RawStream(
                name=row["stream"],
                schema_name=row["schema_name"],
                schema_encoding=row["schema_encoding"],
                schema=row["schema"],
                message_encoding=row["message_encoding"],
                metadata=json.loads(row["metadata_json"]),
            ),
            clocks={clock: array for clock, array in stamps.items() if array is not None},
            sizes=rows["sizes"][0].values.to_numpy(),
            payload=memoryview(rows["payload"][0].as_buffer()),
            sequence=values("sequence"),
            camera=row["camera"],
            frames=values("frames"),
            frame_at=values("frame_at"),
        )
    except (ValueError, TypeError) as error:
        raise CorruptDataError(f"{where}: cannot be parsed ({error})") from error
    if chunk.checksum() != row["checksum"]:
        raise CorruptDataError(f"{where}: does not match its checksum")
    return chunk


def _messages(lake: Lake, chunk: RawChunk, videos: EpisodeVideos | None) -> Iterator[RawMessage]:
    ends = list(accumulate(chunk.sizes.tolist(), initial=0))
    view = memoryview(chunk.payload)
    for start in range(0, chunk.num_messages, _PICTURES):
        block = range(start, min(start + _PICTURES, chunk.num_messages))
        packets = _packets(lake, chunk, block, videos)
        for number, (begin, end) in zip(block, pairwise(ends[start : block.stop + 1]), strict=True):
            payload: bytes | memoryview = view[begin:end]
            if number in packets and chunk.frame_at is not None:
                at = int(chunk.frame_at[number])
                payload = b"".join((payload[:at], packets[number], payload[at:]))
            yield RawMessage(
                stream=chunk.stream,
                clocks={clock: int(stamps[number]) for clock, stamps in chunk.clocks.items()},
                payload=payload,
                sequence=None if chunk.sequence is None else int(chunk.sequence[number]),
            )


def _packets(
    lake: Lake, chunk: RawChunk, block: range, videos: EpisodeVideos | None
) -> dict[int, bytes]:
    """Message number -> the packet that belongs into it, verified; one request."""
    if chunk.camera is None or chunk.frames is None or videos is None:
        return {}
    where = f"episode {videos.episode_id}, camera {chunk.camera}"
    index = videos.cameras[chunk.camera]
    packet_of = {int(frame): number for number, frame in enumerate(index.packet_frame.tolist())}
    wanted = {n: packet_of[frame] for n in block if (frame := int(chunk.frames[n])) >= 0}
    offsets = index.packet_offsets() + videos.base_offsets[chunk.camera]
    ranges = [
        ByteRange(videos.address, int(offsets[packet]), int(index.packet_size[packet]))
        for packet in wanted.values()
    ]
    found = dict(zip(wanted, read_ranges(lake, ranges), strict=True))
    for number, data in found.items():
        packet = wanted[number]
        if packet_checksums(data, np.array([len(data)], np.int32)) != index.packet_checksum[packet]:
            raise CorruptDataError(f"{where}: video packet {packet} does not match its checksum")
    return found

"""Ranges of blobs through the node's cache, in blocks of fixed size.

A block is known by what the blob holds, not by where it lies: by the hash of the episode's content,
and the order and sizes of its cameras, which that hash leaves out. The last block of a blob is
short.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from lake.read_video import ByteRange
from loader.storage.node_cache import CacheCounts, NodeCache, entry_name

BLOCK_BYTES: Final = 1 << 18


class Blob(NamedTuple):
    """The `video` of an episode: what names it in the cache, and its length."""

    name: str
    size: int


class _Piece(NamedTuple):
    """Bytes [start, stop) of a block are part `part` of the range `wanted`."""

    wanted: int
    part: int
    start: int
    stop: int


def blob_of(content: bytes, cameras: Sequence[str], camera_bytes: Sequence[int]) -> Blob:
    """What the cache needs to know of an episode's `video`."""
    layout = "\n".join(f"{size} {name}" for name, size in zip(cameras, camera_bytes, strict=True))
    return Blob(entry_name("blob", content, layout, str(BLOCK_BYTES)), sum(camera_bytes))


def read_blocks(
    cache: NodeCache,
    ranges: Sequence[ByteRange],
    blobs: Mapping[int, Blob],
    load: Callable[[Sequence[ByteRange]], Sequence[bytes]],
    *,
    renew: bool = False,
) -> tuple[list[bytes], CacheCounts]:
    """Bytes of many ranges, in order; what is not cached is loaded by whole blocks.

    Args:
        cache: of the node.
        ranges: inside their blobs.
        blobs: address -> what is known of the blob there.
        load: bytes of ranges, which are few: neighbouring blocks are one.
        renew: load all of them, whatever is cached.

    Returns:
        The bytes, and what came from the cache.
    """
    pieces = _pieces(ranges)
    places = list(pieces)
    names = [entry_name(blobs[address].name, str(block)) for address, block in places]
    sizes = [
        min(BLOCK_BYTES, blobs[address].size - block * BLOCK_BYTES) for address, block in places
    ]

    def missing(numbers: Sequence[int]) -> list[memoryview]:
        return _load([places[number] for number in numbers], blobs, load)

    parts: list[dict[int, bytes]] = [{} for _ in ranges]
    counts = CacheCounts()
    for number, payload, hit in cache.read(names, sizes, missing, renew=renew):
        wanted = pieces[places[number]]
        for piece in wanted:
            parts[piece.wanted][piece.part] = bytes(payload[piece.start : piece.stop])
        counts.add(hit, sum(piece.stop - piece.start for piece in wanted))
    joined = [
        part[0] if len(part) == 1 else b"".join(part[number] for number in range(len(part)))
        for part in parts
    ]
    return joined, counts


def _pieces(ranges: Sequence[ByteRange]) -> dict[tuple[int, int], list[_Piece]]:
    """(address, block) -> what is wanted of it, blocks in ascending order."""
    found: defaultdict[tuple[int, int], list[_Piece]] = defaultdict(list)
    for wanted, (address, offset, length) in enumerate(ranges):
        stop = offset + length
        blocks = range(offset // BLOCK_BYTES, -(-stop // BLOCK_BYTES) if length else 0)
        for part, block in enumerate(blocks):
            begin = block * BLOCK_BYTES
            piece = _Piece(wanted, part, max(offset - begin, 0), min(stop - begin, BLOCK_BYTES))
            found[address, block].append(piece)
    return dict(sorted(found.items()))


def _load(
    places: Sequence[tuple[int, int]],
    blobs: Mapping[int, Blob],
    load: Callable[[Sequence[ByteRange]], Sequence[bytes]],
) -> list[memoryview]:
    """The blocks at these places, in ascending order; neighbours in one range."""
    ranges: list[ByteRange] = []
    counts: list[int] = []
    for address, block in places:
        begin = block * BLOCK_BYTES
        length = min(BLOCK_BYTES, blobs[address].size - begin)
        last = ranges[-1] if ranges else None
        if last is not None and (last.address, last.offset + last.length) == (address, begin):
            ranges[-1] = last._replace(length=last.length + length)
            counts[-1] += 1
        else:
            ranges.append(ByteRange(address, begin, length))
            counts.append(1)
    blocks: list[memoryview] = []
    for data, count in zip(load(ranges), counts, strict=True):
        view = memoryview(data)
        blocks += [view[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES] for at in range(count)]
    return blocks

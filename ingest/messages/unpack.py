"""Decompression that is bounded, and keeps what precedes damage."""

import bz2
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from ingest.errors import MissingReaderError

Packing = Literal["zstd", "lz4", "bz2"]

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
MOST_BYTES: Final = 1 << 30
"""Of a chunk or message; what claims more is damaged."""
_PIECE: Final = 64 << 10
_SMALL_PIECE: Final = 4 << 10
_MOST_RATIO: Final = 1000  # of a whole file; recordings shrink to a hundredth at most
_HINT: Final = (
    "compressed messages need the packages lz4 and zstandard: pip install 'headrace[ros]'"
)


def unpack(packing: Packing, data: bytes | memoryview, size: int) -> tuple[bytes, str]:
    """Decompress `data`, which is said to hold `size` bytes.

    Returns:
        What could be decompressed, at most `size` bytes, and what is wrong, "" for nothing.

    Raises:
        MissingReaderError: the package is not installed.
    """
    if not 0 <= size <= MOST_BYTES:
        return b"", f"{size} bytes are announced"
    decompress, errors = _decompressor(packing)
    parts: list[bytes] = []
    left = size
    fault = ""
    try:
        for part in decompress(data, size):
            parts.append(part[:left])
            left -= len(parts[-1])
            if len(part) > len(parts[-1]):
                fault = f"more than the {size} bytes that are announced"
                break
    except errors as error:
        fault = f"damaged {packing} data ({error})"
    if not fault and left:
        fault = f"{size - left} bytes of the {size} that are announced"
    return (parts[0] if len(parts) == 1 else b"".join(parts)), fault


def unpack_message(payload: bytes) -> bytes:
    """A message that rosbag2 compressed by itself, in frames of zstd that state their size.

    Raises:
        ValueError: damaged, or of a size that is not stated or not meant.
    """
    zstandard = _zstandard()
    try:
        size = zstandard.frame_content_size(payload)
    except zstandard.ZstdError as error:
        raise ValueError(f"damaged zstd frame ({error})") from error
    if size < 0:
        raise ValueError("a zstd frame that does not state its size")
    found, fault = unpack("zstd", payload, size)
    if fault:
        raise ValueError(fault)
    return found


_Decompress = Callable[[bytes | memoryview, int], Iterator[bytes]]


def _decompressor(packing: Packing) -> tuple[_Decompress, tuple[type[Exception], ...]]:
    if packing == "zstd":
        return _zstd_parts, (_zstandard().ZstdError,)
    if packing == "lz4":
        return _lz4_parts, (RuntimeError, EOFError)
    return _bz2_parts, (OSError, EOFError, ValueError)


def _zstd_parts(data: bytes | memoryview, size: int) -> Iterator[bytes]:
    with _zstandard().ZstdDecompressor().stream_reader(data) as reader:
        # Small reads keep what precedes damage; those of sound data are few and large.
        step = max(_PIECE, size // 64)
        while part := reader.read(step):
            yield part


def _lz4_parts(data: bytes | memoryview, size: int) -> Iterator[bytes]:
    try:
        from lz4.frame import LZ4FrameDecompressor  # noqa: PLC0415  an extra
    except ImportError as error:
        raise MissingReaderError(_HINT) from error
    yield from _by_pieces(LZ4FrameDecompressor(), data, size)


def _bz2_parts(data: bytes | memoryview, size: int) -> Iterator[bytes]:
    yield from _by_pieces(bz2.BZ2Decompressor(), data, size)


def _by_pieces(decompressor: Any, data: bytes | memoryview, size: int) -> Iterator[bytes]:  # noqa: ANN401
    for at in range(0, len(data), _PIECE):
        piece: bytes | memoryview = data[at : at + _PIECE]
        while not decompressor.eof:
            part = decompressor.decompress(piece, max_length=size + 1)
            piece = b""
            if part:
                yield part
            elif decompressor.needs_input:
                break
            if decompressor.needs_input:
                break


def _zstandard() -> Any:  # noqa: ANN401
    try:
        import zstandard  # noqa: PLC0415  an extra
    except ImportError as error:
        raise MissingReaderError(_HINT) from error
    return zstandard


def unpacks_to(path: Path, beginnings: Sequence[bytes]) -> bool:
    """Whether a file is one zstd frame whose content begins in one of these ways."""
    try:
        with path.open("rb") as file:
            if file.read(len(ZSTD_MAGIC)) != ZSTD_MAGIC:
                return False
            file.seek(0)
            with _zstandard().ZstdDecompressor().stream_reader(file) as reader:
                head = reader.read(max(map(len, beginnings)))
    except (OSError, MissingReaderError):
        return False
    except _zstandard().ZstdError:
        return False
    return any(head.startswith(each) for each in beginnings)


def unpack_to_file(path: Path, target: Path) -> str:
    """Decompress a file of zstd; what is wrong, "" for nothing. What precedes damage is written.

    Raises:
        MissingReaderError: the package is not installed.
    """
    zstandard = _zstandard()
    most = path.stat().st_size * _MOST_RATIO
    frame = zstandard.ZstdDecompressor().decompressobj()
    with path.open("rb") as source, target.open("wb") as file:
        try:
            # Small pieces: of damaged ones each byte may claim 32 KiB of output.
            while piece := source.read(_SMALL_PIECE):
                while piece:
                    if frame.eof:
                        frame = zstandard.ZstdDecompressor().decompressobj()
                    file.write(frame.decompress(piece))
                    piece = frame.unused_data if frame.eof else b""
                if file.tell() > most:
                    return f"more than {_MOST_RATIO} times its own size"
        except zstandard.ZstdError as error:
            return f"damaged zstd data ({error}); {file.tell()} bytes precede the damage"
        return "" if frame.eof else f"cut short; {file.tell()} bytes precede the cut"

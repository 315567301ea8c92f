"""The bytes of an .rrd file: what it is, and how much of it is whole.

Layout from Rerun's `re_log_encoding`: `RRF2`, four bytes of version, four of options, then
messages, each with a header of two little-endian 64-bit numbers, kind and length, and its payload.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MAGIC: Final = b"RRF2"
_OLD_MAGICS: Final = (b"RRF0", b"RRF1", b"RRIO")
_HEADER_BYTES: Final = 12
_MESSAGE: Final = struct.Struct("<QQ")
_END: Final = 0
_MOST_KIND: Final = 255


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How far a file is whole.

    Attributes:
        size: of the file, in bytes.
        whole: bytes up to the end of the last whole message.
        messages: whole messages.
    """

    size: int
    whole: int
    messages: int

    @property
    def is_cut(self) -> bool:
        """Whether something behind the last whole message is lost."""
        return self.whole < self.size


def version_of(path: Path) -> str | None:
    """The version of Rerun that wrote a file, None for what is no .rrd file."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError:
        return None
    if len(head) < 8 or head[:4] not in {_MAGIC, *_OLD_MAGICS}:
        return None
    return f"0.{head[5]}.{head[6]}" if head[4] == 0 else f"{head[4]}.{head[5]}.{head[6]}"


def is_old(path: Path) -> bool:
    """Whether it is of a layout that no reader of today has."""
    with path.open("rb") as file:
        return file.read(4) in _OLD_MAGICS


def extent(path: Path) -> Extent:
    """Walk over the headers of all messages; nothing else is read."""
    size = path.stat().st_size
    at, messages = _HEADER_BYTES, 0
    with path.open("rb") as file:
        while at + _MESSAGE.size <= size:
            file.seek(at)
            kind, length = _MESSAGE.unpack(file.read(_MESSAGE.size))
            if kind > _MOST_KIND or at + _MESSAGE.size + length > size:
                break
            at += _MESSAGE.size + length
            messages += 1
            if kind == _END:  # behind it lies where its footer is found
                at = size
    return Extent(size=size, whole=min(at, size), messages=messages)

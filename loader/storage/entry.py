"""An entry of the node's cache as a file: a head that says whose it is, then the payload.

Every bit of the file is compared with something when it is read, so a flipped bit, a lost tail or a
file under another's name is no entry at all.
"""

import struct
from typing import Final

import xxhash

_MAGIC: Final = b"hrcache1"
_HEAD: Final = struct.Struct("<8s16sQQ")  # magic, XXH3-128 of the name, payload bytes, XXH3-64

HEAD_BYTES: Final = _HEAD.size


def entry_head(name: str, payload: bytes | memoryview) -> bytes:
    """What precedes the payload in the file of the entry `name`."""
    return _HEAD.pack(
        _MAGIC,
        xxhash.xxh3_128_digest(name.encode()),
        len(payload),
        xxhash.xxh3_64_intdigest(payload),
    )


def entry_payload(name: str, file: bytes) -> memoryview | None:
    """The payload in the bytes of a file; None unless it is the entry `name`, whole and sound."""
    if len(file) < HEAD_BYTES:
        return None
    payload = memoryview(file)[HEAD_BYTES:]
    return payload if file[:HEAD_BYTES] == entry_head(name, payload) else None

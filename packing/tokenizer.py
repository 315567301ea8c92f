"""Text to token ids, at planning time only: a plan stores the ids, so a loader needs no tokenizer.

The built-in `utf8-bytes` needs no download and no vocabulary file:

    0 padding   1 begin of text   2 end of text   3 image slot   4 state slot   5..7 reserved
    8 + b       the byte b of the UTF-8 text
"""

import hashlib
from typing import Final, Protocol

from packing.errors import LayoutError

PAD_ID: Final = 0
BOS_ID: Final = 1
EOS_ID: Final = 2
IMAGE_ID: Final = 3
STATE_ID: Final = 4
_FIRST_BYTE_ID: Final = 8


class Tokenizer(Protocol):
    """What packing asks of a tokenizer."""

    @property
    def name(self) -> str:
        """Name under which the plan records it."""

    @property
    def fingerprint(self) -> str:
        """Hex digest over everything that decides ids: vocabulary, merges, special ids."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, special ones included."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text, with begin and end; empty for the empty text, which costs nothing."""


class Utf8Bytes:
    """One id per UTF-8 byte (table above)."""

    name: Final = "utf8-bytes"
    vocab_size: Final = _FIRST_BYTE_ID + 256

    @property
    def fingerprint(self) -> str:
        """Digest of the id table."""
        table = f"{self.name} {PAD_ID} {BOS_ID} {EOS_ID} {IMAGE_ID} {STATE_ID} {_FIRST_BYTE_ID}"
        return hashlib.sha256(table.encode()).hexdigest()[:16]

    def encode(self, text: str) -> tuple[int, ...]:
        """BOS, the bytes, EOS; nothing for the empty text."""
        if not text:
            return ()
        return (BOS_ID, *(_FIRST_BYTE_ID + byte for byte in text.encode()), EOS_ID)


def find_tokenizer(name: str) -> Tokenizer:
    """The tokenizer called `name`.

    Raises:
        LayoutError: there is none of this name.
    """
    if name == Utf8Bytes.name:
        return Utf8Bytes()
    raise LayoutError(f"unknown tokenizer {name!r}; built in is: {Utf8Bytes.name}")

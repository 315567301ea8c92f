"""Text to token ids, at planning time only: a plan stores the ids, so a loader needs no tokenizer.

The built-in `utf8-bytes` needs no download and no vocabulary file:

    0 padding   1 begin of text   2 end of text   3 image slot   4 state slot   5..7 reserved
    8 + b       the byte b of the UTF-8 text
"""

import hashlib
from pathlib import Path
from typing import Final, Protocol

from packing.errors import LayoutError

UTF8_BYTES: Final = "utf8-bytes"

_PAD_ID: Final = 0
_BEGIN_ID: Final = 1
_END_ID: Final = 2
_IMAGE_ID: Final = 3
_STATE_ID: Final = 4
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
        """One more than the largest id, special ones included."""

    @property
    def begin_id(self) -> int | None:
        """Id of the begin of text, or None."""

    @property
    def end_id(self) -> int | None:
        """Id of the end of text, or None."""

    @property
    def pad_id(self) -> int | None:
        """Id that means nothing but padding, or None."""

    @property
    def image_id(self) -> int | None:
        """Id kept for the slots of images, or None."""

    @property
    def state_id(self) -> int | None:
        """Id kept for the slots of states, or None."""

    def id_of(self, token: str) -> int | None:
        """Id of the token with this text, or None where it is not in the vocabulary."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text, without begin and end."""


class Utf8Bytes:
    """One id per UTF-8 byte (table above)."""

    name: Final = UTF8_BYTES
    vocab_size: Final = _FIRST_BYTE_ID + 256
    begin_id: Final = _BEGIN_ID
    end_id: Final = _END_ID
    pad_id: Final = _PAD_ID
    image_id: Final = _IMAGE_ID
    state_id: Final = _STATE_ID

    @property
    def fingerprint(self) -> str:
        """Digest of the id table."""
        table = f"{self.name} {_PAD_ID} {_BEGIN_ID} {_END_ID} {_IMAGE_ID} {_STATE_ID}"
        return hashlib.sha256(f"{table} {_FIRST_BYTE_ID}".encode()).hexdigest()[:16]

    def id_of(self, token: str) -> int | None:  # noqa: ARG002 - bytes have no other tokens
        """None: there are bytes only."""
        return None

    def encode(self, text: str) -> tuple[int, ...]:
        """The bytes."""
        return tuple(_FIRST_BYTE_ID + byte for byte in text.encode())


def find_tokenizer(name: str | Path) -> Tokenizer:
    """The tokenizer called `name`, or in the file of this path (`packing.tokenizer_files`).

    Raises:
        LayoutError: there is neither, or the file is no tokenizer.
    """
    if name == UTF8_BYTES:
        return Utf8Bytes()
    path = Path(name)
    if not path.exists():
        raise LayoutError(
            f"tokenizer {str(name)!r} is neither a file nor built in: give the model's"
            " tokenizer.json (Hugging Face) or .model (SentencePiece) with --tokenizer FILE, or"
            f" {UTF8_BYTES}"
        )
    from packing.tokenizer_files import open_tokenizer  # noqa: PLC0415 - optional libraries

    return open_tokenizer(path)

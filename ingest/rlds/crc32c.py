"""CRC-32C as TFRecord masks it.

Sources: RFC 3720 appendix B.4 (polynomial), TensorFlow `core/lib/hash/crc32c.h` (mask).
"""

from collections.abc import Callable
from typing import Final

from ingest.errors import MissingReaderError

_POLYNOMIAL: Final = 0x82F63B78  # reflected
_MASK_DELTA: Final = 0xA282EAD8
_WORD: Final = 0xFFFFFFFF


def _row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE: Final = tuple(_row(byte) for byte in range(256))


def masked(crc: int) -> int:
    """TFRecord's mask: rotated right by 15 bits, plus a constant."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _WORD


def masked_crc32c_of_few(data: bytes) -> int:
    """Masked CRC-32C in plain Python, for the 8 bytes of a length: it needs no extra."""
    crc = _WORD
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return masked(crc ^ _WORD)


def crc32c_of_data() -> Callable[[bytes], int]:
    """The compiled CRC-32C, unmasked.

    Raises:
        MissingReaderError: google-crc32c is not installed.
    """
    try:
        import google_crc32c  # noqa: PLC0415  an optional dependency
    except ImportError as error:
        raise MissingReaderError(
            "TFRecord files need google-crc32c: pip install 'headrace[rlds]'"
        ) from error
    value: Callable[[bytes], int] = google_crc32c.value
    return value

"""An entry's file: nothing that was changed in any way is taken for the entry."""

import random

import pytest

from loader.storage.entry import HEAD_BYTES, entry_head, entry_payload

NAME = "a" * 64
PAYLOAD = bytes(range(256)) * 3


def _file(name: str = NAME, payload: bytes = PAYLOAD) -> bytes:
    return entry_head(name, payload) + payload


@pytest.mark.parametrize("payload", [b"", b"x", PAYLOAD])
def test_an_entry_gives_back_its_payload(payload: bytes) -> None:
    found = entry_payload(NAME, _file(payload=payload))
    assert found is not None
    assert bytes(found) == payload


def test_every_flipped_bit_is_found() -> None:
    file = bytearray(_file(payload=PAYLOAD[:64]))
    for bit in range(8 * len(file)):
        file[bit // 8] ^= 1 << bit % 8
        assert entry_payload(NAME, bytes(file)) is None
        file[bit // 8] ^= 1 << bit % 8
    assert entry_payload(NAME, bytes(file)) is not None


def test_every_truncation_and_extension_is_found() -> None:
    file = _file()
    for length in range(len(file)):
        assert entry_payload(NAME, file[:length]) is None
    assert entry_payload(NAME, file + b"\0") is None
    assert entry_payload(NAME, file[:HEAD_BYTES] + b"\0" + file[HEAD_BYTES:]) is None


def test_swapped_bytes_and_zeros_are_found() -> None:
    rng = random.Random(5)
    file = _file()
    for _ in range(200):
        changed = bytearray(file)
        start, length = rng.randrange(len(file)), rng.randrange(1, 64)
        changed[start : start + length] = bytes(len(changed[start : start + length]))
        assert (entry_payload(NAME, bytes(changed)) is None) == (bytes(changed) != file)


def test_an_entry_of_another_name_is_none_of_ours() -> None:
    assert entry_payload("b" * 64, _file()) is None

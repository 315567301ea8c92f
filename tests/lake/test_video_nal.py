"""Where decoding may start, from the bytes of a packet."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.video_nal import is_clean_start, length_size

_AVCC = bytes([1, 100, 0, 30, 0xFF, 0xE1, 0, 0])
_HVCC = bytes([1, *[0] * 20, 0xFF, 0])


def _framed(nals: Sequence[bytes], prefix: int) -> memoryview:
    if prefix == 0:
        return memoryview(b"".join(b"\0\0\1" + nal for nal in nals))
    return memoryview(b"".join(len(nal).to_bytes(prefix, "big") + nal for nal in nals))


_IDR, _SLICE, _SPS, _AUD = b"\x65abc", b"\x41abc", b"\x67abc", b"\x09\x10"
_EXACT = b"\x06\x06\x01\xc4\x80"  # recovery_frame_cnt 0, exact
_INEXACT = b"\x06\x06\x01\x84\x80"
_LATER = b"\x06\x06\x01\x5c\x80"
_USER = b"\x06\x05" + b"\xff\x02" + b"x" * 257 + b"\x80"
_USER_THEN_EXACT = _USER[:-1] + _EXACT[1:]


@pytest.mark.parametrize("prefix", [0, 1, 2, 4])
@pytest.mark.parametrize(
    ("nals", "clean"),
    [
        ([_IDR], True),
        ([_AUD, _SPS, b"\x68a", _IDR], True),
        ([_EXACT, _SLICE], True),
        ([_INEXACT, _SLICE], False),
        ([_LATER, _SLICE], False),
        ([_SLICE], False),
        ([_SLICE, _IDR], False),
        ([], False),
        ([b"\x06\x06"], False),
    ],
)
def test_h264(prefix: int, nals: list[bytes], *, clean: bool) -> None:
    assert is_clean_start("h264", _framed(nals, prefix), prefix) is clean


def test_h264_messages_of_long_size() -> None:
    assert is_clean_start("h264", _framed([_USER_THEN_EXACT, _SLICE], 4), 4)
    assert not is_clean_start("h264", _framed([_USER, _SLICE], 4), 4)


@pytest.mark.parametrize(
    ("kind", "clean"), [(1, False), (9, False), (16, True), (19, True), (20, True), (21, True)]
)
def test_h265(kind: int, *, clean: bool) -> None:
    packet = _framed([b"\x46\1a", bytes([kind << 1, 1, 5])], 4)
    assert is_clean_start("hevc", packet, 4) is clean


def test_other_codecs_are_taken_by_their_word() -> None:
    assert is_clean_start("mjpeg", memoryview(b"anything"), 0)


def test_length_size() -> None:
    assert length_size("h264", _AVCC) == 4
    assert length_size("h264", b"\0\0\0\1\x67abcd") == 0
    assert length_size("hevc", _HVCC) == 4
    assert length_size("hevc", b"\0\0\0\1" + b"a" * 30) == 0
    assert length_size("h264", b"") == length_size("hevc", b"") == length_size("av1", _AVCC) == 0


@pytest.mark.parametrize(
    ("unit", "found"),
    [
        (b"\x12\0\x0a\x01x\x32\x01y", True),  # delimiter, sequence header, frame
        (b"\x0a\x01x\x32\x01y", True),
        (b"\x0e\x08\x01x\x32\x01y", True),  # with an extension byte
        (b"\x12\0\x32\x01y\x0a\x01x", False),  # only after the frame
        (b"\x12\0\x2a\x81\x01" + b"m" * 129 + b"\x0a\x01x", True),  # metadata of 129 bytes before
        (b"\x12\0\x32\x01y", False),
        (b"", False),
        (b"\x2a", False),
    ],
)
def test_av1_sequence_header(unit: bytes, *, found: bool) -> None:
    assert is_clean_start("av1", memoryview(unit), 0) is found


@given(
    st.binary(max_size=60), st.sampled_from(["h264", "hevc", "av1"]), st.sampled_from([0, 1, 2, 4])
)
def test_any_bytes_are_looked_at_without_error(data: bytes, codec: str, prefix: int) -> None:
    is_clean_start(codec, memoryview(data), prefix)

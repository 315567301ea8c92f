"""Missing bytes and rotation, read from the outer boxes of a file."""

import struct
from pathlib import Path

import pytest

from lake.video_container import may_be_rotated, missing_bytes
from tests.lake.video_clips import write_clip


@pytest.mark.parametrize("extension", ["mp4", "mkv", "avi", "mov"])
def test_every_missing_byte_is_counted(tmp_path: Path, extension: str) -> None:
    path = write_clip(tmp_path / f"clip.{extension}", "mpeg4", count=10)
    data = path.read_bytes()
    assert missing_bytes(path) == 0
    for lost in (1, 100, len(data) // 2):
        path.write_bytes(data[:-lost])
        # An MP4's last box is the index: a cut before it leaves the media box short.
        assert 0 < missing_bytes(path) <= lost
        if extension in {"mkv", "avi"}:
            assert missing_bytes(path) == lost


def test_sizes_of_64_bits_and_boxes_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "large.mp4"
    head = struct.pack(">I4sI4s", 16, b"ftyp", 0, b"isom")
    path.write_bytes(head + struct.pack(">I4sQ", 1, b"mdat", 5_000_000_000))
    assert missing_bytes(path) == 5_000_000_000 - 16
    path.write_bytes(head + struct.pack(">I4s", 0, b"mdat") + b"x" * 50)
    assert missing_bytes(path) == 0


def test_containers_that_state_no_length(tmp_path: Path) -> None:
    path = tmp_path / "live"
    for data in (b"", b"\x47" * 188, b"not a video at all", b"\x1a\x45\xdf\xa3"):
        path.write_bytes(data)
        assert missing_bytes(path) == 0
    ebml = b"\x1a\x45\xdf\xa3\x80"
    path.write_bytes(ebml + b"\x18\x53\x80\x67\x01" + b"\xff" * 7 + b"clusters")  # unknown size
    assert missing_bytes(path) == 0
    path.write_bytes(ebml + b"\x18\x53\x80\x67\x88" + b"1234")
    assert missing_bytes(path) == 4


def test_boxes_that_lie_about_their_size_end_the_walk(tmp_path: Path) -> None:
    path = tmp_path / "liar.mp4"
    path.write_bytes(
        struct.pack(">I4sI4s", 16, b"ftyp", 0, b"isom") + struct.pack(">I4s", 3, b"moov")
    )
    assert missing_bytes(path) == 0


def test_rotation(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", "mpeg4", count=2)
    assert not may_be_rotated(path)
    data = bytearray(path.read_bytes())
    matrix = data.index(b"tkhd") + 4 + 40
    struct.pack_into(">4i", data, matrix, 0, 0x10000, 0, -0x10000)
    path.write_bytes(data)
    assert may_be_rotated(path)
    assert may_be_rotated(write_clip(tmp_path / "clip.mkv", "mpeg4", count=2)), "not known"


def test_a_fragmented_file_is_whole_only_behind_a_fragment(tmp_path: Path) -> None:
    path = tmp_path / "fragments.mp4"
    boxes = [
        (b"ftyp", 24),
        (b"moov", 40),
        (b"moof", 30),
        (b"mdat", 50),
        (b"moof", 30),
        (b"mdat", 9),
    ]
    data, whole = b"", {0}
    for kind, size in boxes:
        data += struct.pack(">I4s", size, kind) + bytes(size - 8)
        whole |= {len(data)} if kind != b"moof" else set()
    for length in range(12, len(data) + 1):
        path.write_bytes(data[:length])
        assert (missing_bytes(path) == 0) == (length in whole), length
    path.write_bytes(data + struct.pack(">I4sI", 1, b"mdat", 0))  # four bytes of a 64-bit size
    assert missing_bytes(path) == 4

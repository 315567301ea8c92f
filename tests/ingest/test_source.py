"""Fingerprints and rates."""

import shutil
from pathlib import Path

import pytest

from ingest.source import file_fingerprint, usable_rate


@pytest.mark.parametrize("size", [1, 100_000, 4 << 20])
def test_any_changed_byte_of_a_small_file_is_seen(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(size))
    before = file_fingerprint(path)
    for at in (0, size // 2, size - 1):
        data = bytearray(size)
        data[at] = 1
        path.write_bytes(data)
        assert file_fingerprint(path) != before


def test_a_large_file_is_sampled_from_its_first_byte_to_its_last(tmp_path: Path) -> None:
    size = (4 << 20) + 1
    path = tmp_path / "a"
    path.write_bytes(bytes(size))
    before = file_fingerprint(path)
    for at in (0, size - 1):
        data = bytearray(size)
        data[at] = 1
        path.write_bytes(data)
        assert file_fingerprint(path) != before


def test_a_copy_has_the_same_fingerprint_and_a_missing_file_one_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"data")
    shutil.copyfile(tmp_path / "a", tmp_path / "b")
    assert file_fingerprint(tmp_path / "a") == file_fingerprint(tmp_path / "b")
    assert file_fingerprint(tmp_path / "c") == "unreadable"


@pytest.mark.parametrize("value", [0, -1.0, 1e-9, 1e300, float("nan"), float("inf"), True, "30"])
def test_no_rate(value: object) -> None:
    assert usable_rate(value) is None


def test_rates() -> None:
    assert (usable_rate(30), usable_rate(0.5)) == (30.0, 0.5)

from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.doctor import check_recordings
from ingest.pipeline import ingest_sources
from lake import create_lake
from tests.ingest.lerobot_data import edit_info, reasons, v2_data, v2_video, write_v2, write_video

TOP = "observation.images.top"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_v2(tmp_path / "in/toy")


def test_a_sound_recording(root: Path) -> None:
    assert check_recordings(root) == {str(root): []}


@pytest.mark.parametrize(
    ("damage", "severity", "reason"),
    [
        (lambda r: write_video(r / v2_video(TOP, 1), 5), "warning", "steps-without-frame"),
        (lambda r: write_video(r / v2_video(TOP, 1), 9), "warning", "more-frames"),
        (lambda r: (r / v2_video(TOP, 0)).unlink(), "error", "missing-video"),
        (lambda r: (r / v2_data(0)).write_bytes(b""), "error", "empty-file"),
        (lambda r: (r / "meta/tasks.jsonl").unlink(), "warning", "missing-file"),
        (lambda r: edit_info(r, lambda i: i.update(total_frames=9)), "warning", "wrong-count"),
        (lambda r: (r / "meta/info.json").write_text(""), "error", "empty-file"),
    ],
)
def test_every_fault_is_found(
    root: Path, damage: Callable[[Path], object], severity: str, reason: str
) -> None:
    damage(root)
    (findings,) = check_recordings(root).values()
    assert (severity, reason) in {(f.severity, f.reason) for f in findings}
    assert all(f.where and f.detail for f in findings)


def test_errors_are_exactly_what_an_ingest_refuses(root: Path, tmp_path: Path) -> None:
    (root / v2_data(0)).unlink()
    (root / v2_video(TOP, 1)).write_bytes(b"x" * 100)
    found = check_recordings(root.parent)[str(root)]
    report = ingest_sources([root], create_lake(tmp_path / "l.lake"))
    errors = [f for f in found if f.severity == "error" and f.episode]
    assert len(errors) == report.quarantined == 2


def test_files_that_nobody_reads_are_told(root: Path) -> None:
    (root.parent / "stray.bin").write_bytes(b"?")
    found = check_recordings(root.parent)
    assert reasons(found[str(root.parent)]) == {"not-recognised"}
    assert found[str(root)] == []

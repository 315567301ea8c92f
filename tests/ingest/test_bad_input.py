"""Every file of a dataset, damaged in every way: a finding or an error row, never a traceback."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.doctor import check_recordings
from ingest.pipeline import ingest_sources
from lake import create_lake, visible_episodes
from tests.ingest.lerobot_data import write_tasks, write_v2, write_v3

DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda _: None,
    "empty": lambda _: b"",
    "quarter": lambda data: data[: len(data) // 4],
    "half": lambda data: data[: len(data) // 2],
    "last byte lost": lambda data: data[:-1],
    "end lost": lambda data: data[: -min(40, len(data) // 2)],
    "zeros": lambda data: bytes(len(data)),
    "zero tail": lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
    "text": lambda _: b"<html>404</html>",
    "list": lambda _: b"[]",
    "wrong object": lambda _: b'{"features": 3, "episode_index": [], "codebase_version": 2}',
    "not text": lambda _: b"\xff\xfe\x00\x80" * 20,
}


def files_of(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def damage_one_by_one(root: Path, kind: str) -> list[tuple[str, int]]:
    """Damage each file alone; (file, number of findings that tell of it)."""
    told = []
    for name in files_of(root):
        path = root / name
        whole = path.read_bytes()
        data = DAMAGE[kind](whole)
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        (findings,) = check_recordings(root).values()
        told.append((name, len(findings)))
        path.write_bytes(whole)
    assert check_recordings(root) == {str(root): []}
    return told


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("write", [write_v2, write_v3], ids=["v2", "v3"])
def test_damage_to_any_file_is_told(tmp_path: Path, write: Callable[..., Path], kind: str) -> None:
    root = write(tmp_path / "toy", lengths=(3, 4))
    # A cut of the last line's end-of-line changes nothing that anybody reads.
    harmless = {"meta/tasks.jsonl", "meta/episodes.jsonl"} if kind == "last byte lost" else set()
    for name, count in damage_one_by_one(root, kind):
        assert count > 0 or name in harmless, name


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("write", [write_v2, write_v3], ids=["v2", "v3"])
def test_flipped_bytes_never_end_in_a_traceback(
    tmp_path: Path, write: Callable[..., Path], seed: int
) -> None:
    """Formats without checksums cannot tell every flip; what matters is that none goes astray."""
    root = write(tmp_path / "toy", lengths=(3, 4))
    rng = random.Random(seed)
    for _ in range(25):
        path = root / rng.choice(files_of(root))
        whole = path.read_bytes()
        flipped = bytearray(whole)
        for _ in range(rng.choice([1, 3, 10])):
            flipped[rng.randrange(len(flipped))] = rng.randrange(256)
        path.write_bytes(bytes(flipped))
        (findings,) = check_recordings(root).values()
        assert all(str(finding) for finding in findings)
        path.write_bytes(whole)


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_folder_of_damaged_datasets_never_stops_an_ingest(tmp_path: Path, kind: str) -> None:
    """One dataset per damaged file, all ingested at once: the sound ones and parts go in."""
    folder = tmp_path / "in"
    count = len(files_of(write_v2(tmp_path / "model", lengths=(3, 4))))
    for number in range(count):
        root = write_v2(folder / f"set_{number}", lengths=(3, 4))
        path = root / files_of(root)[number]
        data = DAMAGE[kind](path.read_bytes())
        path.unlink()
        if data is not None:
            path.write_bytes(data)
    write_v2(folder / "sound", lengths=(3, 4))
    lake = create_lake(tmp_path / "robots.lake")
    report = ingest_sources([folder], lake)
    assert len(report.sources) == count + 1
    listed = [s for s in report.sources if s.format]
    assert all(s.written + s.quarantined >= 1 for s in listed)
    assert visible_episodes(lake).num_rows == sum(s.written for s in report.sources)
    lake.refresh()
    assert lake.dataset("quarantine").count_rows() == report.quarantined
    assert next(s for s in report.sources if s.source.endswith("sound")).written == 2


def test_a_task_table_that_lies_changes_labels_only(tmp_path: Path) -> None:
    root = write_v3(tmp_path / "toy", lengths=(3, 4))
    write_tasks(root, {5: "elsewhere"})
    (findings,) = check_recordings(root).values()
    assert {f.severity for f in findings} == {"warning"}

"""A build is private until published, and litter of dead builders goes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from catalog.publish import file_identity, publish, remove_litter, workspace


def test_a_workspace_is_removed_also_on_errors(tmp_path: Path) -> None:
    def build() -> None:
        with workspace(tmp_path / "new") as work:
            (work / "half").write_bytes(b"1")
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        build()
    assert list((tmp_path / "new").iterdir()) == []


def test_publish_replaces_whole_and_identity_tells(tmp_path: Path) -> None:
    target = tmp_path / "file"
    assert file_identity(target) is None
    seen = set()
    for text in ("one", "two"):
        with workspace(tmp_path) as work:
            (work / "file").write_text(text, encoding="utf-8")
            assert publish(work / "file", target, over=file_identity(target))
        assert target.read_text(encoding="utf-8") == text
        seen.add(file_identity(target))
    assert len(seen) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_another_published_meanwhile_is_not_taken_back(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with workspace(tmp_path) as mine, workspace(tmp_path) as theirs:
        for work in (mine, theirs):
            (work / "file").write_text(work.name, encoding="utf-8")
        assert publish(theirs / "file", target, over=None)
        assert not publish(mine / "file", target, over=None)
        assert target.read_text(encoding="utf-8") == theirs.name
        assert publish(mine / "file", target, over=None, force=True)
        assert target.read_text(encoding="utf-8") == mine.name


def test_a_live_builder_keeps_its_folder_and_a_dead_one_does_not(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from catalog.publish import workspace\n"
        "with workspace(pathlib.Path(sys.argv[1])) as work:\n"
        "    (work / 'half').write_bytes(b'1')\n"
        "    print(work, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as builder:
        assert builder.stdout is not None
        theirs = Path(builder.stdout.readline().strip())
        remove_litter(tmp_path)
        with workspace(tmp_path) as mine:
            assert theirs.is_dir()
            assert mine != theirs
        builder.send_signal(signal.SIGKILL)
        builder.wait()
        assert (theirs / "half").exists()
    with workspace(tmp_path) as mine:
        remove_litter(tmp_path)
        assert list(tmp_path.iterdir()) == [mine]


def test_litter_needs_no_age_and_a_foreign_file_stays(tmp_path: Path) -> None:
    litter = tmp_path / ".catalog-refresh-abc"
    litter.mkdir()
    now = time.time()
    os.utime(litter, (now, now))
    (tmp_path / "catalog.duckdb.mine").write_bytes(b"")
    remove_litter(tmp_path)
    remove_litter(tmp_path / "not-there")
    assert [path.name for path in tmp_path.iterdir()] == ["catalog.duckdb.mine"]


def test_another_users_folder_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / ".catalog-refresh-theirs"
    theirs.mkdir(mode=0o700)
    opened = os.open

    def refuse(path: object, flags: int, *rest: int) -> int:
        if path == theirs:
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *rest)  # type: ignore[arg-type]  # as os.open takes it

    monkeypatch.setattr(os, "open", refuse)
    remove_litter(tmp_path)
    assert theirs.exists()


def test_a_folder_taken_for_litter_before_its_lock_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open
    taken: list[Path] = []

    def take(path: Path, flags: int, **options: Any) -> int:  # rmtree opens by dir_fd
        if not taken:
            taken.append(path)
            path.rmdir()
        return opened(path, flags, **options)

    monkeypatch.setattr(os, "open", take)
    with workspace(tmp_path) as work:
        assert work.is_dir()
    assert taken != [work]

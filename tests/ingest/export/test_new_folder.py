"""A folder appears whole or not at all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.export.errors import ExportError
from ingest.export.new_folder import new_folder

KILLED = """
import os, sys, signal
from pathlib import Path
from ingest.export.new_folder import new_folder
with new_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    print("written", flush=True)
    sys.stdin.read()
"""


def test_it_appears_at_the_end(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out") as folder:
        (folder / "a" / "b").mkdir(parents=True)
        (folder / "a" / "b" / "c").write_text("c")
        assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out/a/b/c").read_text() == "c"


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "out") as folder:
            (folder / "half").write_text("half")
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["folder", "file", "dangling"])
def test_what_is_there_is_never_touched(tmp_path: Path, there: str) -> None:
    path = tmp_path / "out"
    if there == "folder":
        path.mkdir()
    elif there == "file":
        path.write_text("mine")
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ExportError, match="is there already"), new_folder(path):
        pytest.fail("not reached")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_parent_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no such folder"), new_folder(tmp_path / "a" / "out"):
        pytest.fail("not reached")


def test_one_writer_at_a_time_and_a_killed_one_is_cleared_away(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "written\n"
        with pytest.raises(ExportError, match="another process"), new_folder(path):
            pytest.fail("not reached")
        os.kill(child.pid, signal.SIGKILL)
    assert [p.name for p in tmp_path.iterdir()] == [".out.partial"]
    with new_folder(path) as folder:
        assert list(folder.iterdir()) == []
        (folder / "whole").write_text("whole")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert [p.name for p in path.iterdir()] == ["whole"]

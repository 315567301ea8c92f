"""A decode process that hangs and does not die: asked what it does, then ended, by name."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lake import Lake
from loader import PackLoader, WorkerDiedError
from loader.process.channel import Channel
from loader.process.child_process import ChildProcess, _end
from loader.process.child_stderr import ChildStderr
from loader.storage.settings import StorageSettings
from packing.plan import Plan
from tests.loader.process.children import children_of

_NUMPY: dict[str, Any] = {"framework": "numpy"}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, a decode process that gives nothing at once is taken to hang."""
    monkeypatch.setattr("loader.process.child._SHOW_S", 0.05)
    return lambda: monkeypatch.setattr(StorageSettings, "patience_s", 0.0)


def test_a_worker_that_is_stopped_is_given_up(
    scene: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch, impatient: Callable[[], None]
) -> None:
    monkeypatch.setattr("loader.process.child._STACKS_S", 0.3)
    before = children_of(os.getpid())
    with PackLoader(scene, plan, buffer_bytes=1 << 20, **_NUMPY) as loader:
        stream = iter(loader)
        next(stream)
        (worker,) = set(children_of(os.getpid())) - set(before)
        os.kill(worker, signal.SIGSTOP)
        impatient()
        with pytest.raises(
            WorkerDiedError,
            match=r"step \d+, slot \d of rank 0, from its decode process 0, did not come within .*"
            r" was T \(stopped\), told no stacks and was killed.*batch_timeout_s",
        ):
            list(stream)
        assert children_of(os.getpid()) == before  # gone at once, not with the loader


_STUCK = """
import ctypes, threading
from loader.decode.decode_frames import PictureDecoder
def a_decoder_that_hangs(*_):
    with open({told!r}, "w") as told:
        told.write("here")
    while True:
        {hang}
PictureDecoder.decode = a_decoder_that_hangs
"""


@pytest.mark.parametrize("hang", ["threading.Event().wait()", "ctypes.PyDLL(None).pause()"])
def test_a_worker_that_hangs_is_given_up_and_says_where(
    scene: Lake,
    plan: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    impatient: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
    hang: str,
) -> None:
    """In Python, and in C code that keeps Python's lock."""
    told = tmp_path / "told"
    os.mkfifo(told)
    (tmp_path / "sitecustomize.py").write_text(_STUCK.format(told=str(told), hang=hang))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    before = children_of(os.getpid())

    def lose_patience() -> None:
        assert told.read_text() == "here"
        impatient()

    watching = threading.Thread(target=lose_patience)
    watching.start()
    with (
        PackLoader(scene, plan, **_NUMPY) as loader,
        pytest.raises(
            WorkerDiedError,
            match=r"was in .*a_decoder_that_hangs \(sitecustomize.py:\d+\) of _fill \(stream.py"
            r".*it was S \(sleeping\), told the stacks",
        ),
    ):
        next(iter(loader))
    watching.join()
    assert children_of(os.getpid()) == before
    assert "in a_decoder_that_hangs" in capsys.readouterr().err


def test_a_worker_that_is_waited_for_tells_what_its_threads_do(
    scene: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is stopped until it has been asked, and goes on to give every batch."""
    monkeypatch.setattr("loader.process.child._SHOW_S", 0.05)
    asked = ChildProcess.ask_for_stacks

    def ask(process: ChildProcess) -> None:
        asked(process)
        os.kill(worker, signal.SIGCONT)

    monkeypatch.setattr(ChildProcess, "ask_for_stacks", ask)
    before = children_of(os.getpid())
    storage = StorageSettings(stall_warning_s=0.01)
    with PackLoader(scene, plan, buffer_bytes=1 << 20, storage=storage, **_NUMPY) as loader:
        stream = iter(loader)
        monkeypatch.setattr(ChildProcess, "ask_for_stacks", lambda _: None)
        next(stream)
        monkeypatch.setattr(ChildProcess, "ask_for_stacks", ask)
        (worker,) = set(children_of(os.getpid())) - set(before)
        os.kill(worker, signal.SIGSTOP)
        assert len(list(stream)) == plan.packs.num_rows - 1
    said = capsys.readouterr().err
    assert re.search(r"headrace: waited \d+ s for step \d", said)
    assert "most recent call first" in said
    assert "worker.py" in said


class _InTheKernel:
    """A process that no signal reaches."""

    killed = False

    def wait(self, timeout_s: float) -> None:
        raise subprocess.TimeoutExpired("worker", timeout_s)

    def kill(self) -> None:
        self.killed = True


def test_closing_does_not_wait_for_a_process_that_hangs_in_the_kernel() -> None:
    process, (ours, theirs), stderr = _InTheKernel(), Channel.pair(), ChildStderr()
    _end(os.getpid(), process, ours, stderr)  # type: ignore[arg-type]
    assert process.killed
    theirs.close()

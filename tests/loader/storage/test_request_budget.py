"""Slots of a node: never more taken than there are, by threads or processes, killed or not."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from loader.storage.cache_folder import SLOTS, cache_folder
from loader.storage.request_budget import (
    RequestBudget,
    budget_of_process,
    limit_requests_per_read,
)

URI = "s3://bucket/robots.lake"
_ROOT = Path(__file__).resolve().parents[3]
# Users fork; each writes "+" when it has a slot and "-" before it gives it back.
_USERS = """
import json, os, sys
from loader.storage.request_budget import RequestBudget
folder, users, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
listen, tell = os.pipe()
for user in range(users):
    if not os.fork():
        budget = RequestBudget("s3://bucket/lake", 32, folder)
        for _ in range(rounds):
            with budget.slot():
                os.write(tell, b"+")
                os.sched_yield()
                os.write(tell, b"-")
        os._exit(0)
os.close(tell)
taken = most = total = 0
while said := os.read(listen, 4096):
    for sign in said:
        taken += 1 if sign == ord("+") else -1
        total += sign == ord("+")
        most = max(most, taken)
for user in range(users):
    os.wait()
print(json.dumps({"most": most, "total": total}))
"""
_HOLDER = """
import sys
from loader.storage.request_budget import RequestBudget
with RequestBudget("s3://bucket/lake", 16, sys.argv[1]).slot():
    print("held", flush=True)
    sys.stdin.read()
"""

_GREEDY = """
import os, sys, threading
from lake import Lake
from loader.observe.metrics import LoaderMetrics
from loader.storage.origin import Origin
from loader.storage.settings import StorageSettings
# As a decode process has them: one for the plan, one for all else.
settings = StorageSettings(requests_per_node=64, cache_dir=sys.argv[1])
origins = [Origin(Lake("s3://bucket/lake", {}), settings, LoaderMetrics()) for _ in range(2)]
def read():
    os.write(1, b"held\\n")
    sys.stdin.read()
for number in range(8):
    threading.Thread(target=origins[number % 2].read, args=(lambda: "rows", read)).start()
"""


@pytest.fixture(autouse=True)
def _sixteen_per_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_IO_THREADS", "16")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(_ROOT)}


@pytest.mark.parametrize(
    ("per_read", "budget", "slots"),
    [
        *(("16", 64, 4), ("16", 100, 6), ("16", 1, 1), ("64", 64, 1)),
        # Where Lance chooses, a read counts as 16, or as less so that four are at once.
        *(("", 128, 8), ("0", 64, 4), ("", 20, 4), ("", 4, 4), ("", 3, 3), ("", 1, 1)),
    ],
)
def test_there_are_as_many_slots_as_the_budget_holds_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_read: str, budget: int, slots: int
) -> None:
    monkeypatch.setenv("LANCE_IO_THREADS", per_read)
    assert RequestBudget(URI, budget, str(tmp_path)).slots == slots


def test_a_read_of_our_processes_keeps_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_requests_per_read(8)
    assert os.environ["LANCE_IO_THREADS"] == "16"  # as the user has set it
    monkeypatch.delenv("LANCE_IO_THREADS")
    limit_requests_per_read(32)
    assert os.environ["LANCE_IO_THREADS"] == "8"
    monkeypatch.delenv("LANCE_IO_THREADS")
    limit_requests_per_read(1000)
    assert os.environ["LANCE_IO_THREADS"] == "16"


def test_processes_never_hold_more_slots_than_there_are(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _USERS, str(tmp_path), "6", "60"],
        capture_output=True,
        check=True,
        env=_environment(),
    )
    seen = json.loads(done.stdout)
    assert seen["total"] == 360
    assert 1 <= seen["most"] <= 2


def test_threads_never_hold_more_slots_than_there_are(tmp_path: Path) -> None:
    budget = RequestBudget(URI, 64, str(tmp_path))
    lock = threading.Lock()
    taken, most = 0, 0
    full = threading.Barrier(2)  # which only two at once can pass: half of four

    def use() -> None:
        nonlocal taken, most
        with budget.slot():
            with lock:
                taken += 1
                most = max(most, taken)
            full.wait(20)
            with lock:
                taken -= 1

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.slots == 4
    assert most == budget.most == 2


def test_a_slot_of_a_killed_process_is_free(tmp_path: Path, open_fds: Callable[[], int]) -> None:
    budget = RequestBudget(URI, 16, str(tmp_path))
    assert budget.slots == 1
    before = open_fds()
    holder = subprocess.Popen(
        [sys.executable, "-P", "-c", _HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment(),
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    got = threading.Event()

    def take() -> None:
        with budget.slot():
            got.set()

    waiting = threading.Thread(target=take)
    waiting.start()
    assert not got.wait(0.05)
    holder.kill()
    holder.communicate()
    assert got.wait(20)
    waiting.join()
    assert open_fds() <= before


def test_without_a_cache_the_slots_lie_in_a_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with RequestBudget(URI, 64).slot():
        (folder,) = tmp_path.iterdir()
    assert folder.name == f"headrace-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    with RequestBudget(URI, 64, str(tmp_path / "cache")).slot():
        assert list((cache_folder(tmp_path / "cache") / SLOTS).iterdir())


def test_where_there_is_no_folder_nobody_waits_for_others_and_it_is_said_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    budget = RequestBudget(URI, 64, str(tmp_path / "file"))
    with budget.slot(), budget.slot():
        pass
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "the budget of requests to s3://bucket is not kept" in said
    assert "Not a directory" in said


def test_a_stopped_process_leaves_slots_for_others(tmp_path: Path) -> None:
    """It reads in as many threads as it has, and is stopped as a rank in a debugger would be."""
    holder = subprocess.Popen(
        [sys.executable, "-P", "-c", _GREEDY, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment(),
    )
    others = [RequestBudget(URI, 64, str(tmp_path)) for _ in range(3)]
    try:
        assert holder.stdout is not None
        assert [holder.stdout.readline() for _ in range(2)] == [b"held\n"] * 2
        holder.send_signal(signal.SIGSTOP)
        with (
            others[0].slot(must_not_wait),
            others[1].slot(must_not_wait),
            pytest.raises(AssertionError, match="no free slot"),
            others[2].slot(must_not_wait),
        ):
            pass
    finally:
        holder.kill()
        holder.communicate()


def must_not_wait(_seconds: float) -> None:
    raise AssertionError("there is no free slot")


def test_all_that_a_process_reads_of_a_store_has_one_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path)
    budget = budget_of_process(URI, 64, folder)
    assert budget_of_process("s3://bucket/another.lake", 64, folder) is budget
    others = [
        budget_of_process("s3://other/robots.lake", 64, folder),
        budget_of_process(URI, 64, str(tmp_path / "other")),
        budget_of_process(URI, 32, folder),
    ]
    monkeypatch.setattr("os.getpid", lambda: -1)  # in a fork, which holds nothing
    others.append(budget_of_process(URI, 64, folder))
    assert budget not in others
    assert len(set(others)) == 4


class Time:
    """A clock that only waiting moves."""

    now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert 0 <= seconds <= 0.05
        self.now += seconds + 0.5

    def waited_for(self, budget: RequestBudget) -> float:
        """Seconds until a read begins."""
        begin = self.now
        with budget.slot(self.sleep, self.clock):
            return self.now - begin


def test_after_a_minute_in_vain_reads_go_on_without_a_slot_and_soon(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stopped, budget = (RequestBudget(URI, 16, str(tmp_path)) for _ in range(2))
    time = Time()
    waited = []
    with stopped.slot():
        for pause_s in (0, 0, 100, 300):
            time.now += pause_s
            waited.append(time.waited_for(budget))
    assert [60 <= seconds < 62 for seconds in waited] == [True, False, False, True]
    assert max(waited[1:3]) < 2
    assert time.waited_for(budget) == 0  # it goes on
    assert capfd.readouterr().err.count("none of its 1 reads has ended for 60 s") == 1


def test_who_waits_for_its_own_process_does_not_take_the_node_s_slots_for_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A store that answers nothing for a while: the budget is kept when it is back."""
    budget, time = RequestBudget(URI, 64, str(tmp_path)), Time()
    with budget.slot(must_not_wait), budget.slot(must_not_wait):
        assert [60 <= time.waited_for(budget) < 62 for _ in range(2)] == [True, True]
    assert capfd.readouterr().err.count("none of this process's 2 reads has ended for 60 s") == 1
    others = [RequestBudget(URI, 64, str(tmp_path)) for _ in range(2)]
    with contextlib.ExitStack() as held:
        for other in others * 2:
            held.enter_context(other.slot(must_not_wait))
        assert 60 <= time.waited_for(budget) < 62


def test_who_is_closed_waits_no_longer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    budget = RequestBudget(URI, 16, str(tmp_path))
    with budget.slot(), budget.slot(lambda _: True):
        pass
    assert capfd.readouterr().err == ""


def test_stores_do_not_wait_for_each_other(tmp_path: Path) -> None:
    def never(_: float) -> None:
        pytest.fail("it waits")

    one, other = (RequestBudget(uri, 16, str(tmp_path)) for uri in (URI, "s3://other/robots.lake"))
    same = RequestBudget("s3://bucket/another.lake", 16, str(tmp_path))
    with one.slot(never), other.slot(never), pytest.raises(pytest.fail.Exception):
        same.slot(never).__enter__()


def test_a_folder_that_is_cleaned_while_slots_are_held_is_made_again(tmp_path: Path) -> None:
    budget = RequestBudget(URI, 64, str(tmp_path))
    with budget.slot():
        shutil.rmtree(tmp_path / "headrace-cache")
        with budget.slot(lambda _: pytest.fail("it waits")):
            pass

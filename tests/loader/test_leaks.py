"""Nothing is left: threads, descriptors, processes, shared memory, however an iteration ends."""

import gc
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import pytest

from lake import Lake
from loader import PackLoader, WorkerDiedError
from packing.plan_store import save_plan
from tests.loader import scenes
from tests.loader.process.children import children_of

_REPOSITORY = Path(__file__).parents[2]
_NUMPY: dict[str, Any] = {"framework": "numpy", "buffer_bytes": 1 << 20}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = scenes.scene_lake(tmp_path_factory.mktemp("saved"))
    save_plan(lake, scenes.scene_plan(lake), "mix")
    return lake


@dataclass(frozen=True, kw_only=True)
class Left:
    """What this process has open.

    Attributes:
        threads: names of its Python threads.
        files: what its descriptors refer to, but for sockets and pipes by kind alone.
        children: its processes, the dead that nobody waited for included.
        shared: mappings of memory that is shared without a file, or in /dev/shm.
    """

    threads: list[str]
    files: list[str]
    children: list[int]
    shared: list[str]

    @classmethod
    def now(cls) -> Self:
        gc.collect()
        maps = Path("/proc/self/maps").read_text().splitlines()
        return cls(
            threads=sorted(thread.name for thread in threading.enumerate()),
            files=sorted(_files()),
            children=children_of(os.getpid()),
            shared=sorted(
                line.split(maxsplit=5)[-1]
                for line in maps
                if "/memfd:" in line or "/dev/shm" in line
            ),
        )

    def beyond(self, before: Self) -> dict[str, Counter[str]]:
        """What was not open before; what earlier tests left may go meanwhile."""
        more = {
            each.name: Counter(map(str, getattr(self, each.name)))
            - Counter(map(str, getattr(before, each.name)))
            for each in fields(self)
        }
        return {name: names for name, names in more.items() if names}


def _files() -> Iterator[str]:
    for entry in Path("/proc/self/fd").iterdir():
        try:
            yield entry.readlink().name.partition(":")[0]
        except FileNotFoundError:  # that of the listing itself
            continue


def take(loader: PackLoader, packs: int) -> None:
    for _, _batch in zip(range(packs), loader, strict=False):
        pass


def test_a_hundred_cycles_in_the_caller_s_process_leave_nothing(saved: Lake) -> None:
    def cycle(packs: int) -> None:
        with PackLoader(saved.uri, "mix", process="inline", **_NUMPY) as loader:
            take(loader, packs)

    cycle(3)
    before = Left.now()
    for number in range(100):
        cycle(number % 2)
    assert not Left.now().beyond(before)


def test_cycles_of_decode_processes_leave_nothing(saved: Lake) -> None:
    def cycle(packs: int, workers: int) -> None:
        with PackLoader(saved.uri, "mix", num_workers=workers, **_NUMPY) as loader:
            take(loader, packs)

    cycle(3, 2)
    before = Left.now()
    for number in range(4):
        cycle(number, 1 + number % 2)
        assert not Left.now().beyond(before)


@pytest.mark.parametrize("process", ["inline", "child"])
def test_a_loader_that_is_dropped_in_the_middle_leaves_nothing(saved: Lake, process: Any) -> None:
    take(PackLoader(saved.uri, "mix", process=process, **_NUMPY), 3)
    before = Left.now()
    stream = iter(PackLoader(saved.uri, "mix", process=process, **_NUMPY))
    kept = [next(stream) for _ in range(3)]
    del stream
    assert kept[0].num_spans > 0
    del kept
    # Lance's own threads close the files of a read that was under way.
    deadline = time.monotonic() + 20
    while Left.now().beyond(before) and time.monotonic() < deadline:
        threading.Event().wait(0.01)  # nothing tells when they are done
    assert not Left.now().beyond(before)


def test_a_killed_decode_process_takes_the_others_with_it(saved: Lake) -> None:
    with PackLoader(saved.uri, "mix", num_workers=2, **_NUMPY) as loader:
        take(loader, 1)
    before = Left.now()
    with PackLoader(saved.uri, "mix", num_workers=2, **_NUMPY) as loader:
        stream = iter(loader)
        next(stream)
        worker, _ = sorted(set(children_of(os.getpid())) - set(before.children))
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="signal 9"):
            deque(stream, maxlen=0)  # what came before is let go of
        del stream
        assert not Left.now().beyond(before)  # at once, without `close`
    assert not Left.now().beyond(before)


_CONSUMER = """
import sys
from loader import PackLoader
loader = PackLoader(sys.argv[1], "mix", num_workers=2, framework="numpy", buffer_bytes=1 << 20)
stream = iter(loader)
for number in range(int(sys.argv[2])):
    batch = next(stream)
print("now", flush=True)
next(stream)
sys.stdin.read()
"""


@pytest.mark.parametrize("packs", [0, 2])
def test_decode_processes_end_with_a_killed_consumer(saved: Lake, packs: int) -> None:
    """While they start (it waits for its first batch), and while they wait for room."""
    consumer = subprocess.Popen(
        [sys.executable, "-c", _CONSUMER, saved.uri, str(packs)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_REPOSITORY,
    )
    assert consumer.stdout
    assert consumer.stdin
    assert consumer.stdout.readline() == b"now\n"
    while len(workers := children_of(consumer.pid)) < 2:
        assert consumer.poll() is None
    gone = [os.pidfd_open(worker) for worker in workers]
    consumer.kill()
    consumer.wait()
    waiting = set(gone)
    while waiting:
        ended, _, _ = select.select(waiting, [], [], 20)
        assert ended, "a decode process outlived its consumer"
        waiting.difference_update(ended)
    for fd in gone:
        os.close(fd)
    consumer.stdin.close()
    consumer.stdout.close()

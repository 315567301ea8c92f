"""A materialiser may be killed at any moment: what was committed is readable, and the next goes on.

Real deaths: SIGKILL of the process that commits (its writing processes follow), several times on
the way to one set. Deaths between any two steps are forced in this process.
"""

import multiprocessing
import os
import random
import select
import shutil
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
import xxhash

from lake import Lake, open_lake
from loader.errors import LoaderError
from loader.materialized.materialize import materialize
from loader.materialized.pack_set import MaterializedSet
from packing.plan import Plan
from packing.plan_store import load_plan, save_plan
from tests.loader import scenes

_CHUNK_PACKS = 2


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = scenes.scene_lake(tmp_path_factory.mktemp("killed"))
    save_plan(lake, scenes.scene_plan(lake), "mix")
    return lake


@pytest.fixture(scope="module")
def plan(base: Lake) -> Plan:
    return load_plan(base, "mix")


@pytest.fixture
def lake(base: Lake, tmp_path: Path) -> Lake:
    shutil.copytree(base.uri, tmp_path / "x.lake")
    return open_lake(tmp_path / "x.lake")


@pytest.fixture(scope="module")
def whole(base: Lake, plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder = tmp_path_factory.mktemp("whole") / "x.lake"
    shutil.copytree(base.uri, folder)
    return _rows(materialize(open_lake(folder), plan, workers=0))


def _rows(target: MaterializedSet) -> pa.Table:
    return target.dataset.to_table().combine_chunks()


def _readable(lake: Lake, plan: Plan, whole: pa.Table) -> int:
    """How many packs are there; each is whole, and none doubled."""
    try:
        target = MaterializedSet.open(lake, plan.header, "copy")
    except LoaderError:
        return 0
    found: pa.Table = _rows(target)
    assert found.equals(whole.slice(0, found.num_rows))
    for data, checksum in zip(found["data"], found["checksum"].to_pylist(), strict=True):
        assert xxhash.xxh3_64_intdigest(data.as_buffer()) == checksum
    return int(found.num_rows)


def _materialize_in_process(uri: str, workers: int, pipe: Connection) -> None:
    lake = open_lake(uri)
    plan = load_plan(lake, "mix")
    pipe.send("ready")
    pipe.recv()
    materialize(
        lake,
        plan,
        workers=workers,
        chunk_packs=_CHUNK_PACKS,
        on_progress=lambda done, _total, _size: pipe.send(done),
    )
    pipe.send("done")


def _start(lake: Lake, workers: int) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["loader.materialized.materialize", "packing.plan_store"])
    mine, theirs = context.Pipe()
    process = context.Process(target=_materialize_in_process, args=(lake.uri, workers, theirs))
    process.start()
    theirs.close()
    assert mine.recv() == "ready"
    return process, mine


@pytest.mark.parametrize(("workers", "kills"), [(0, 9), (2, 4)])
def test_kill_nine_at_any_moment(
    lake: Lake, plan: Plan, whole: pa.Table, workers: int, kills: int
) -> None:
    rng = random.Random(workers)
    there, deaths = 0, 0
    cut = set()
    for _ in range(kills):
        process, pipe = _start(lake, workers)
        pipe.send("go")
        # A few packs further, and then anywhere in what it does for the next ones.
        aim = there + rng.randrange(1, 2 * len(whole) // kills)
        while (told := pipe.recv()) != "done" and told < aim:
            pass
        process.join(rng.uniform(0, 0.02))
        process.kill()
        process.join()
        pipe.close()
        deaths += process.exitcode == -signal.SIGKILL
        before, there = there, _readable(lake, plan, whole)
        assert there >= before
        cut.add(there)
    assert deaths
    assert cut - {0, len(whole)}, "nobody died between the first commit and the last"
    done = materialize(lake, plan, workers=workers, chunk_packs=_CHUNK_PACKS)
    assert _rows(done).equals(whole)
    files = {file.name for file in (Path(done.uri) / "data").iterdir()}
    assert files == {f.metadata.files[0].path for f in done.dataset.get_fragments()}


class Died(BaseException):
    """Stands for the end of the process: nothing of the writer runs after it."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", [1, 2, 5])
@pytest.mark.parametrize(
    "step",
    [
        (lance.LanceDataset, "commit"),
        (lance.LanceDataset, "cleanup_old_versions"),
        (MaterializedSet, "write_rows"),
        (MaterializedSet, "reload"),
    ],
    ids=lambda step: step[1],
)
def test_death_between_any_two_steps(
    lake: Lake,
    plan: Plan,
    whole: pa.Table,
    monkeypatch: pytest.MonkeyPatch,
    step: tuple[type, str],
    call: int,
    when: str,
) -> None:
    owner, name = step
    real, calls = getattr(owner, name), 0

    def dies(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != call:
            return real(*args, **kwargs)
        if when == "after":
            real(*args, **kwargs)
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        if name == "cleanup_old_versions" and call > 1:
            materialize(lake, plan, workers=0, chunk_packs=7)
        else:
            with pytest.raises(Died):
                materialize(lake, plan, workers=0, chunk_packs=7)
    _readable(lake, plan, whole)
    assert _rows(materialize(open_lake(lake.uri), plan, workers=0, chunk_packs=7)).equals(whole)


def test_writing_processes_end_with_the_one_that_commits(lake: Lake) -> None:
    process, pipe = _start(lake, 2)
    pipe.send("go")
    while pipe.recv() < 2 * _CHUNK_PACKS:
        pass
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    handles = [os.pidfd_open(int(pid)) for pid in children]
    process.kill()
    process.join()
    assert len(handles) == 2
    for handle in handles:
        ended, _, _ = select.select([handle], [], [], 30)
        os.close(handle)
        assert ended

"""The decode process: the same batches, the same errors, and nothing left behind."""

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lake import Lake
from lake.errors import CorruptDataError, HeadraceError
from loader import LoaderError, PackLoader, WorkerDiedError
from loader.process.error_wire import error_from_message, error_to_message
from loader.process.plan_wire import plan_from_memfd, plan_to_memfd
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.stored_plan import StoredPlan, open_plan
from tests.loader import scenes
from tests.loader.process.children import children_of
from tests.loader.scenes import digest, scene_plan

_NUMPY: dict[str, Any] = {"framework": "numpy"}
_REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_a_process_gives_what_the_caller_s_thread_gives(
    scene: Lake, plan: Plan, num_workers: int
) -> None:
    with PackLoader(scene, plan, process="inline", **_NUMPY) as loader:
        inline = [digest(batch) for batch in loader]
    with PackLoader(scene, plan, num_workers=num_workers, **_NUMPY) as loader:
        assert [digest(batch) for batch in loader] == inline
        assert loader.metrics.worker_cpu_s > 0
        assert loader.metrics.counts["wanted_frames"] > 0


def test_batches_stay_as_they_were_while_the_stream_goes_on(scene: Lake, plan: Plan) -> None:
    with PackLoader(scene, plan, buffer_bytes=1 << 20, **_NUMPY) as loader:
        pairs = [(batch, digest(batch)) for batch in loader]
    assert all(digest(batch) == before for batch, before in pairs)  # the process has ended


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_is_the_consumer_s_to_answer(
    scene: Lake, plan: Plan, number: signal.Signals
) -> None:
    before = children_of(os.getpid())
    # So small a buffer that the process has batches left to make.
    with PackLoader(scene, plan, buffer_bytes=1 << 20, **_NUMPY) as loader:
        batches = iter(loader)
        next(batches)
        (worker,) = set(children_of(os.getpid())) - set(before)
        os.kill(worker, number)
        assert len(list(batches)) == plan.num_steps * plan.header.slots_per_step - 1
    assert children_of(os.getpid()) == before


def test_a_killed_worker_is_named(scene: Lake, plan: Plan) -> None:
    before = children_of(os.getpid())
    with PackLoader(scene, plan, buffer_bytes=1 << 20, **_NUMPY) as loader:
        stream = iter(loader)
        next(stream)
        (worker,) = set(children_of(os.getpid())) - set(before)
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="killed by signal 9"):
            list(stream)
        state = loader.state_dict()
        loader.load_state_dict(state)
        resumed = [(batch.step, batch.slot) for batch in loader]
    assert resumed[0] == (state["next_step"], 0)
    assert len(resumed) == plan.packs.num_rows - state["next_step"] * 3


def test_a_crash_is_told_with_what_the_worker_wrote(
    scene: Lake, plan: Plan, capfd: pytest.CaptureFixture[str]
) -> None:
    before = children_of(os.getpid())
    with PackLoader(scene, plan, buffer_bytes=1 << 20, **_NUMPY) as loader:
        stream = iter(loader)
        next(stream)
        (worker,) = set(children_of(os.getpid())) - set(before)
        os.kill(worker, signal.SIGSEGV)
        with pytest.raises(WorkerDiedError, match=r"signal 11.*Fatal Python error: Segmentation"):
            list(stream)
    assert "loader/process/worker.py" in capfd.readouterr().err


def test_a_worker_that_cannot_start_is_told_with_its_last_words(
    scene: Lake,
    plan: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    open_fds: Callable[[], int],
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no module named lance >&2\nexit 3\n")
    broken.chmod(0o755)
    fds = open_fds()
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(WorkerDiedError, match=r"exit code 3 .*; its last words: no module named"):
        list(PackLoader(scene, plan, **_NUMPY))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    with pytest.raises(LoaderError, match=r"can be started with .*absent"):
        list(PackLoader(scene, plan, **_NUMPY))
    assert open_fds() <= fds


_FORKING = """
import os, sys
from loader import LoaderError, PackLoader
loader = PackLoader(sys.argv[1], "mix", framework="numpy")
stream = iter(loader)
steps = [next(stream).step]
if (fork := os.fork()) == 0:
    try:
        next(stream)
    except LoaderError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(fork, 0)
steps += [batch.step for batch in stream]
print(steps == [step for step in range(loader.num_steps) for _ in range(3)])
"""


def test_a_fork_takes_nothing_from_its_parent_s_iteration(saved: Lake) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORKING, saved.uri],
        cwd=_REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    refused, whole = done.stdout.splitlines()
    assert "iterate over the loader anew" in refused
    assert whole == "True"


_CONSUMER = """
import sys
from loader import PackLoader
loader = PackLoader(sys.argv[1], "mix", framework="numpy")  # a script without a main guard
for number, batch in enumerate(loader):
    print(number, flush=True)
    if number == 1:
        sys.stdin.read()
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = scenes.scene_lake(tmp_path_factory.mktemp("saved"))
    save_plan(lake, scene_plan(lake), "mix")
    return lake


def test_a_killed_consumer_leaves_no_process(saved: Lake, tmp_path: Path) -> None:
    script = tmp_path / "consumer.py"
    script.write_text(_CONSUMER)
    consumer = subprocess.Popen(
        [sys.executable, str(script), saved.uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(_REPOSITORY)},
    )
    assert consumer.stdout
    assert [consumer.stdout.readline() for _ in range(2)] == [b"0\n", b"1\n"]
    (worker,) = children_of(consumer.pid)
    gone = os.pidfd_open(worker)
    consumer.kill()
    consumer.wait()
    assert select.select([gone], [], [], 20)[0], "the decode process outlived its consumer"
    os.close(gone)
    for pipe in (consumer.stdin, consumer.stdout):
        assert pipe
        pipe.close()


def test_folders_of_the_user_named_like_ours_do_no_harm(saved: Lake, tmp_path: Path) -> None:
    for name in ("loader", "lake", "packing"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong package')")
    script = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(_REPOSITORY)!r})
        from loader import PackLoader
        print(sum(batch.num_spans for batch in PackLoader({saved.uri!r}, "mix", framework="numpy")))
        """
    )
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-P", "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 0
    assert not done.stderr


def test_a_package_of_the_user_that_hides_ours_is_named(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "__init__.py").touch()
    code = f"import sys; sys.path.append({str(_REPOSITORY)!r}); from loader import PackLoader"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"ImportError: {tmp_path}/lake/__init__.py hides Headrace's package")


def test_importing_the_package_imports_nothing_of_it() -> None:
    code = "import loader, sys; print([m for m in sys.modules if m in ('numpy', 'lance', 'av')])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=_REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_an_error_crosses_as_itself() -> None:
    error = error_from_message(error_to_message(CorruptDataError("packet 3")))
    assert type(error) is CorruptDataError
    assert str(error) == "packet 3"


def test_an_error_that_asks_for_more_than_a_message_crosses_too() -> None:
    class ChosenError(HeadraceError):
        def __init__(self, message: str, *, reason: str) -> None:
            super().__init__(message)
            self.reason = reason

    error = error_from_message(error_to_message(ChosenError("why", reason="x")))
    assert type(error) is ChosenError
    assert str(error) == "why"


def test_a_foreign_error_is_named() -> None:
    error = error_from_message(error_to_message(ZeroDivisionError("oh")))
    assert type(error) is LoaderError
    assert "ZeroDivisionError: oh" in str(error)


def test_a_plan_goes_through_its_memfd(scene: Lake, plan: Plan) -> None:
    fd = plan_to_memfd(plan)
    again = plan_from_memfd(fd, scene)
    os.close(fd)
    assert isinstance(again, Plan)
    assert again.content_hash() == plan.content_hash()
    assert again.packs.equals(plan.packs)
    assert again.header == plan.header


def test_a_stored_plan_s_tables_stay_in_the_lake(saved: Lake, plan: Plan) -> None:
    stored = open_plan(saved, "mix")
    fd = plan_to_memfd(stored)
    size = os.fstat(fd).st_size
    again = plan_from_memfd(fd, saved)
    os.close(fd)
    assert isinstance(again, StoredPlan)
    assert again.header == stored.header
    assert again.take_packs([5, 1]).equals(plan.packs.take([5, 1]))
    assert size < 2 * len(stored.header.to_json())


def test_a_foreign_memfd_is_no_plan(scene: Lake) -> None:
    fd = os.memfd_create("junk")
    os.write(fd, np.arange(100).tobytes())
    with pytest.raises(HeadraceError):
        plan_from_memfd(fd, scene)
    os.close(fd)

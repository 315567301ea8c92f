"""A store that stalls, refuses load or is gone for a while: the stream goes on when it is back."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lake import Lake, open_lake
from lake.errors import LakeError
from loader import PackLoader
from loader.errors import StorageTimeoutError
from loader.storage.settings import StorageSettings
from packing.plan import Plan
from tests.loader import scenes
from tests.loader.storage.folder_s3 import FolderS3


@pytest.fixture
def store(scene: Lake) -> Iterator[FolderS3]:
    with FolderS3(Path(scene.uri).parent) as store:
        yield store


@pytest.fixture
def remote(store: FolderS3, scene: Lake) -> Lake:
    name = Path(scene.uri).name
    # Lance's own repeats would make each failure last for seconds.
    options = {"client_max_retries": "0", "lance_aimd_max_retries": "0"}
    return open_lake(store.uri(name), storage_options={**store.options(), **options})


def _loader(remote: Lake, plan: Plan, **settings: Any) -> PackLoader:
    storage = StorageSettings(**settings)
    return PackLoader(remote, plan, process="inline", framework="numpy", storage=storage)


@pytest.fixture(scope="module")
def expected(scene: Lake, plan: Plan) -> list[str]:
    with PackLoader(scene, plan, process="inline", framework="numpy") as loader:
        return [scenes.digest(batch) for batch in loader]


def test_it_waits_for_a_store_that_answers_nothing_and_says_so(
    store: FolderS3,
    remote: Lake,
    plan: Plan,
    expected: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    store.gate.clear()
    found: list[str] = []
    with _loader(remote, plan, request_timeout_s=0.4, stall_warning_s=0.1) as loader:

        def consume() -> None:
            found.extend(scenes.digest(batch) for batch in loader)

        consumer = threading.Thread(target=consume)
        consumer.start()
        for _ in range(5):  # Lance itself asks four times before it gives up
            assert store.arrived.acquire(timeout=30)
        store.gate.set()
        consumer.join(60)
        counts = loader.metrics.counts
    assert found == expected
    assert counts["retries"] >= 1
    assert counts["slow_reads"] >= 1
    said = capfd.readouterr().err
    # What is asked for first of rows and spec depends on the threads that read.
    assert re.search(f"headrace: reading [a-z0-9 ]+ of {re.escape(remote.uri)} takes", said)
    assert re.search("in (take_rows|spec)\\b", said)  # the stack of who waits
    assert "secret-of-the-folder" not in said


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (500, "InternalError")])
def test_it_repeats_what_a_busy_store_refuses(
    store: FolderS3, remote: Lake, plan: Plan, expected: list[str], status: int, code: str
) -> None:
    left = 10
    lock = threading.Lock()

    def answer(path: str) -> tuple[int, str] | None:
        nonlocal left
        with lock:
            left -= "/data/" in path
            return (status, code) if "/data/" in path and left >= 0 else None

    store.answer = answer
    with _loader(remote, plan) as loader:
        assert [scenes.digest(batch) for batch in loader] == expected
        assert loader.metrics.counts["retries"] >= 1


def test_the_deadline_names_what_could_not_be_read(
    store: FolderS3, remote: Lake, plan: Plan
) -> None:
    store.answer = lambda path: (503, "SlowDown") if "/data/" in path else None
    with (
        _loader(remote, plan, deadline_s=0.3) as loader,
        pytest.raises(StorageTimeoutError, match=r"could not be read: failed \d+ times.*SlowDown"),
    ):
        next(iter(loader))


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (404, "NoSuchKey")])
def test_what_is_forbidden_or_missing_is_an_error_after_a_second_look(
    store: FolderS3, remote: Lake, plan: Plan, status: int, code: str
) -> None:
    store.answer = lambda path: (status, code) if "/data/" in path else None
    with _loader(remote, plan) as loader:
        with pytest.raises(LakeError, match=r"403|[Nn]ot found"):
            next(iter(loader))
        assert loader.metrics.counts["retries"] == 1

"""What is read before the first batch: repeated where that may help, else a named error."""

import errno
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lake import Lake, open_lake
from lake.errors import LakeError
from loader import PackLoader, StorageTimeoutError
from loader.materialized.materialize import materialize
from loader.observe.metrics import LoaderMetrics
from loader.storage.opening import opened_lake
from loader.storage.settings import StorageSettings
from loader.windows.samples import WindowSamples
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.stored_plan import StoredPlan, open_plan
from packing.window_spans import WindowSpans
from tests.loader import scenes
from tests.loader.storage.folder_s3 import FolderS3

_NUMPY: dict[str, Any] = {"framework": "numpy"}
_TOO_EARLY = (425, "TooEarly")  # it passes, and Lance repeats it once or twice without a wait
_IN_VAIN = 4


def _load(uri: str, **options: Any) -> LoaderMetrics:
    return PackLoader(uri, "mix", process="inline", **_NUMPY, **options).metrics


def _load_packs(uri: str, **options: Any) -> LoaderMetrics:
    return _load(uri, materialized=True, **options)


def _plan_and_load(uri: str, **options: Any) -> LoaderMetrics:
    spans = WindowSpans(horizon=5)
    made = PackLoader.from_episodes(
        uri, None, budget_tokens=256, spans=spans, process="inline", **_NUMPY, **options
    )
    return made.metrics


def _sample(uri: str, **options: Any) -> LoaderMetrics:
    samples = WindowSamples(uri, names="canonical", keys=["state"], **options)
    assert samples.stats["state"]["count"] > 0
    assert samples.read([0])
    return samples.metrics


_WAYS = (_load, _load_packs, _sample)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The scene with a saved plan `mix` that is materialised."""
    lake = scenes.scene_lake(Path(tmp_path_factory.mktemp("opening")))
    plan = scenes.scene_plan(lake)
    save_plan(lake, plan, "mix")
    materialize(lake, plan, workers=0)
    return lake


@pytest.fixture
def store(local: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[FolderS3]:
    """It is named by the environment, as in a job of a cluster, and waits are short."""
    monkeypatch.setattr("loader.storage.origin._FIRST_WAIT_S", 0.001)
    monkeypatch.setattr("loader.storage.origin._LONGEST_WAIT_S", 0.01)
    with FolderS3(Path(local.uri).parent) as store:
        for name, value in {
            "AWS_ENDPOINT_URL": store.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-folder",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        yield store


@pytest.fixture
def uri(store: FolderS3, local: Lake) -> str:
    return store.uri(Path(local.uri).name)


def _at_first(*parts: str) -> Callable[[str], tuple[int, str] | None]:
    """Refuses the first requests for objects whose path has one of these parts, for each part."""
    left = dict.fromkeys(parts, _IN_VAIN)
    lock = threading.Lock()

    def answer(path: str) -> tuple[int, str] | None:
        with lock:
            refused = [part for part in parts if part in path and left[part]]
            for part in refused:
                left[part] -= 1
        return _TOO_EARLY if refused else None

    return answer


@pytest.mark.parametrize(
    ("way", "parts"),
    [
        (_load, ("commits.lance", "plans.lance", "digests.lance")),
        (_load_packs, ("commits.lance", "plans.lance", "digests.lance", "packs-copy.lance")),
        (_sample, ("commits.lance", "trajectories.lance", "stats.lance")),
    ],
)
def test_what_fails_in_passing_is_repeated(
    store: FolderS3, uri: str, way: Callable[..., LoaderMetrics], parts: tuple[str, ...]
) -> None:
    store.answer = _at_first(*parts)
    assert way(uri).counts["retries"] >= len(parts)


def test_what_a_plan_is_made_from_is_opened_as_patiently(store: FolderS3, uri: str) -> None:
    store.answer = _at_first("commits.lance")
    _plan_and_load(uri)


@pytest.mark.parametrize("way", [*_WAYS, _plan_and_load])
@pytest.mark.parametrize("part", ["commits.lance", ""])
def test_a_store_that_stays_away_is_an_error_that_says_so(
    store: FolderS3, uri: str, way: Callable[..., LoaderMetrics], part: str
) -> None:
    store.answer = lambda path: _TOO_EARLY if part in path else None
    with pytest.raises(StorageTimeoutError, match=r"s3://folder/.*the ledger could not be read"):
        way(uri, storage=StorageSettings(deadline_s=0.02))


@pytest.mark.parametrize("table", ["plans.lance", "digests.lance", "packs-copy.lance"])
def test_a_plan_that_cannot_be_reached_is_named(store: FolderS3, uri: str, table: str) -> None:
    store.answer = lambda path: _TOO_EARLY if table in path else None
    with pytest.raises(StorageTimeoutError, match=r"plan mix|materialised packs"):
        _load_packs(uri, storage=StorageSettings(deadline_s=0.02))


@pytest.mark.parametrize("way", _WAYS)
def test_a_store_that_lets_nobody_in_is_asked_twice(
    store: FolderS3, uri: str, way: Callable[..., LoaderMetrics]
) -> None:
    store.answer = lambda _: (403, "AccessDenied")
    with pytest.raises(LakeError, match="the necessary privileges"):
        way(uri)


@pytest.fixture
def remote(store: FolderS3, uri: str) -> Lake:
    return open_lake(uri, storage_options=store.options())


def test_the_decode_process_opens_the_lake_as_patiently(
    store: FolderS3, remote: Lake, local: Lake
) -> None:
    plan = scenes.scene_plan(local)
    with PackLoader(local, plan, process="inline", **_NUMPY) as loader:
        expected = scenes.digest(next(iter(loader)))
    with PackLoader(remote, plan, **_NUMPY) as loader:
        store.answer = _at_first("commits.lance")
        assert scenes.digest(next(iter(loader))) == expected
        assert loader.metrics.counts["retries"] >= 1


@pytest.mark.parametrize(
    ("answer", "deadline_s", "kind", "says"),
    [
        (_TOO_EARLY, 0.02, StorageTimeoutError, "the ledger could not be read"),
        ((403, "AccessDenied"), 60.0, LakeError, "the necessary privileges"),
    ],
)
def test_where_the_decode_process_cannot_open_it_the_consumer_is_told(
    store: FolderS3,
    remote: Lake,
    local: Lake,
    answer: tuple[int, str],
    deadline_s: float,
    kind: type[Exception],
    says: str,
) -> None:
    plan = scenes.scene_plan(local)
    storage = StorageSettings(deadline_s=deadline_s)
    with PackLoader(remote, plan, storage=storage, **_NUMPY) as loader:
        store.answer = lambda path: answer if "commits.lance" in path else None
        with pytest.raises(kind, match=says):
            next(iter(loader))


def test_a_saved_plan_is_unpickled_without_a_request(store: FolderS3, remote: Lake) -> None:
    plan = open_plan(remote, "mix")
    assert isinstance(plan, StoredPlan)
    packs = plan.take_packs([3])
    sent = pickle.dumps(plan)
    before = store.requests.total()
    again = pickle.loads(sent)
    assert store.requests.total() == before
    assert again.take_packs([3]).equals(packs)


def test_a_loader_is_unpickled_as_patiently(store: FolderS3, uri: str) -> None:
    loader = PackLoader(uri, "mix", process="inline", **_NUMPY)
    store.answer = _at_first("commits.lance")
    assert pickle.loads(pickle.dumps(loader)).num_steps == loader.num_steps


def test_a_plan_saved_before_digests_is_read_as_patiently(
    store: FolderS3, uri: str, local: Lake, tmp_path: Path
) -> None:
    plan_hash = open_plan(local, "mix").plan_hash
    digests = Path(local.uri, "plans", plan_hash, "digests.lance")
    digests.rename(tmp_path / "digests")
    try:
        store.answer = _at_first(f"{plan_hash}/packs.lance", f"{plan_hash}/texts.lance")
        loader = PackLoader(uri, "mix", process="inline", **_NUMPY)
    finally:
        (tmp_path / "digests").rename(digests)
    assert isinstance(loader.plan, Plan)
    assert loader.metrics.counts["retries"] >= 2


def test_a_mount_that_fails_in_passing_is_looked_at_again(
    local: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loader.storage.origin._FIRST_WAIT_S", 0.001)
    left = [errno.ESTALE, errno.EIO]

    def failing(uri: str, **options: Any) -> Lake:
        if left:
            number = left.pop()
            raise OSError(number, os.strerror(number), uri)
        return open_lake(uri, **options)

    monkeypatch.setattr("loader.storage.opening.open_lake", failing)
    metrics = LoaderMetrics()
    assert opened_lake(local.uri, StorageSettings(), metrics).uri == local.uri
    assert metrics.counts["retries"] == 2
    left.extend([errno.EACCES] * 2)
    with pytest.raises(LakeError, match=r"cannot be opened: Permission denied \(os error 13\)"):
        opened_lake(local.uri, StorageSettings(), metrics)

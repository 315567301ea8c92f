"""Guarantee 3: faults below the loader change no delivered byte, or end in a named error.

A real S3 server is read through a proxy that injects the faults (`tools/faults/`); the public
harness compares every byte with a stream without them, and goes on after an error.
"""

import resource
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lake import EpisodeWriter, Lake, create_lake, open_lake
from lake.errors import LakeError
from loader.materialized.materialize import materialize
from loader.proof.faults import Packs, clean_packs, prove_under_faults
from loader.proof.pack_loader_ranks import PackLoaderRanks
from loader.proof.planned import PlannedSteps
from loader.proof.report import ProofResult
from loader.storage.settings import StorageSettings
from packing.plan import Plan
from packing.plan_store import list_plans, load_plan, save_plan
from tests.loader import scenes
from tests.s3_server import S3Server
from tools.faults.fault import Fault, Kind
from tools.faults.faulty_rank import faulty_program
from tools.faults.s3_proxy import S3Proxy

pytestmark = pytest.mark.s3

# Files of the episodes, not what is read to open the lake.
_DATA = r"/trajectories\.lance/data/"
_STORAGE = StorageSettings(request_timeout_s=1.0, deadline_s=60.0)
_MOST_MEMORY_BYTES = 8 << 30
_IMPATIENT = StorageSettings(request_timeout_s=0.2, deadline_s=0.5)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A lake in the object store, and what its plan gives without faults."""

    server: S3Server
    name: str
    plan: Plan
    planned: PlannedSteps
    packs: Packs

    def lake(self, endpoint: str) -> Lake:
        """The lake through a proxy."""
        behind = self.server.behind(endpoint)
        return open_lake(behind.uri(self.name), storage_options=behind.storage_options)


@pytest.fixture(scope="module")
def scene(s3_server: S3Server) -> Scene:
    uri, options = s3_server.uri("faults.lake"), s3_server.storage_options
    lake = scenes.fill_lake(create_lake(uri, storage_options=options))
    plan = scenes.scene_plan(lake)
    save_plan(lake, plan, "materialised")
    materialize(lake, plan, workers=1)
    planned = PlannedSteps.of_plan(plan)
    with PackLoaderRanks(lake, plan) as ranks:
        packs = clean_packs(ranks.program(digests=True, process="inline"), planned)
    return Scene(server=s3_server, name="faults.lake", plan=plan, planned=planned, packs=packs)


@pytest.fixture(autouse=True)
def _own_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads that are stalled on purpose keep no slot that other tests of this machine wait for."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.endpoint) as running:
        yield running


def _prove(
    scene: Scene,
    proxy: S3Proxy,
    *faults: Fault,
    storage: StorageSettings = _STORAGE,
    **options: Any,
) -> ProofResult:
    lake = scene.lake(proxy.endpoint)  # opened without faults
    clean = scene.lake(scene.server.endpoint)
    proxy.set_faults(faults)
    with (
        PackLoaderRanks(lake, scene.plan) as faulty_ranks,
        PackLoaderRanks(clean, scene.plan) as clean_ranks,
    ):
        return prove_under_faults(
            faulty_ranks.program(digests=True, storage=storage, **options),
            clean_ranks.program(digests=True, process="inline"),
            scene.packs,
            scene.planned,
            what=", ".join(fault.kind for fault in faults),
            patience_s=60.0,
        )


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="slow_down", most=6),
        Fault(kind="reset", most=4),
        Fault(kind="cut", path=_DATA, most=4),
        Fault(kind="truncate", path=_DATA, most=4),
        Fault(kind="slow", path=_DATA, hold_s=0.05),
        Fault(kind="stall", path=_DATA, most=2),  # never released: the client's time-out ends it
        Fault(kind="lose_reply", path=_DATA, most=4),
    ],
    ids=lambda fault: fault.kind,
)
def test_faults_that_pass_change_no_byte(scene: Scene, proxy: S3Proxy, fault: Fault) -> None:
    result = _prove(scene, proxy, fault, process="inline")
    assert result.passed, result.differences
    assert proxy.traffic.faults[fault.kind] > 0
    assert result.outcome == "the same bytes"


def test_a_storm_of_all_of_them_changes_no_byte(scene: Scene, proxy: S3Proxy) -> None:
    kinds: tuple[Kind, ...] = ("slow_down", "reset", "cut", "truncate", "slow")
    faults = [Fault(kind=kind, path=_DATA, rate=0.2, hold_s=0.02) for kind in kinds]
    result = _prove(scene, proxy, *faults, num_workers=2)
    assert result.passed, result.differences
    assert result.outcome == "the same bytes"
    assert sum(proxy.traffic.faults.values()) > 0


@pytest.mark.parametrize("kind", ["slow_down", "truncate", "flip"])
def test_materialised_packs_meet_them_too(scene: Scene, proxy: S3Proxy, kind: Kind) -> None:
    fault = Fault(kind=kind, path=r"/packs-copy\.lance/data/", most=2)
    result = _prove(scene, proxy, fault, process="inline", materialized=True)
    assert result.passed, result.differences
    assert proxy.traffic.faults[kind] == 2


@pytest.fixture
def _bounded_memory() -> Iterator[None]:
    """For the processes that are started meanwhile.

    Lance believes the lengths in a page. Where one was damaged on its way it may ask for more
    memory than any machine has: the decode process dies, which is a named error.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.usefixtures("_bounded_memory")
@pytest.mark.parametrize("seed", range(3))
def test_flipped_bits_are_never_delivered(scene: Scene, s3_server: S3Server, seed: int) -> None:
    with S3Proxy(s3_server.endpoint, seed=seed) as proxy:
        fault = Fault(kind="flip", path=_DATA, rate=0.5, per_request=1)
        result = _prove(scene, proxy, fault, num_workers=1)
        assert proxy.traffic.faults["flip"] > 0
    assert result.passed, result.differences


def test_a_stall_that_is_released_changes_no_byte(scene: Scene, proxy: S3Proxy) -> None:
    def release() -> None:
        assert proxy.wait_for("stall")
        proxy.release()

    releasing = threading.Thread(target=release)
    releasing.start()
    stall = Fault(kind="stall", path=_DATA)
    result = _prove(scene, proxy, stall, storage=StorageSettings(), process="inline")
    releasing.join()
    assert result.passed, result.differences
    assert result.outcome == "the same bytes"


@pytest.mark.parametrize("kind", ["slow_down", "stall", "truncate"])
def test_a_store_that_does_not_recover_is_a_named_error(
    scene: Scene, proxy: S3Proxy, kind: Kind
) -> None:
    """And what comes after it, without faults, is right."""
    fault = Fault(kind=kind, path=_DATA)
    result = _prove(scene, proxy, fault, storage=_IMPATIENT, process="inline")
    assert result.passed, result.differences
    assert result.outcome.startswith("StorageTimeoutError: s3://")
    assert "go on from the last saved position" in result.outcome
    assert result.counts["resumes"] == 1


@pytest.mark.parametrize("kind", ["truncate", "flip"])
def test_a_local_lake_meets_them_too(tmp_path: Path, kind: Kind) -> None:
    lake = scenes.scene_lake(tmp_path)
    plan = scenes.scene_plan(lake, epochs=1)
    planned = PlannedSteps.of_plan(plan)
    fault = Fault(kind=kind, rate=0.5, most=3, per_request=1, hold_s=0.01)
    with PackLoaderRanks(lake, plan) as ranks:
        clean = ranks.program(digests=True, process="inline")
        result = prove_under_faults(
            faulty_program(ranks, [fault]),
            clean,
            clean_packs(clean, planned),
            planned,
            what=kind,
            patience_s=60.0,
        )
    assert result.passed, result.differences


# Writes whose reply is lost were done: what asks again must not do them twice.

_UPLOADS = (r"/trajectories\.lance/data/", r"/trajectories\.lance/_", r"/commits\.lance/_", "")


@pytest.mark.parametrize("path", _UPLOADS)
def test_a_commit_whose_reply_was_lost_is_not_doubled(
    s3_server: S3Server, proxy: S3Proxy, path: str
) -> None:
    name = f"lost-{_UPLOADS.index(path)}.lake"
    create_lake(s3_server.uri(name), storage_options=s3_server.storage_options)
    behind = s3_server.behind(proxy.endpoint)
    lake = open_lake(behind.uri(name), storage_options=behind.storage_options)
    proxy.set_faults([Fault(kind="lose_reply", methods=("PUT", "POST"), path=path, most=4)])
    for _ in range(6):  # the user gives the same command again
        try:
            scenes.fill_lake(lake)
        except LakeError:
            continue
        break
    assert proxy.traffic.faults["lose_reply"] == 4
    fresh = open_lake(s3_server.uri(name), storage_options=s3_server.storage_options)
    wanted = sorted(scenes.scene_episode(number).episode_id for number in range(scenes.EPISODES))
    for table in ("commits", "episodes"):
        assert sorted(fresh.dataset(table).to_table()["episode_id"].to_pylist()) == wanted
    planned = scenes.scene_plan(fresh)
    assert sorted(planned.episodes["episode_id"].to_pylist()) == wanted
    with EpisodeWriter(fresh) as writer:
        assert all(writer.has(scenes.scene_episode(n).ingest_key) for n in range(scenes.EPISODES))


def test_a_plan_whose_reply_was_lost_is_saved_once(
    scene: Scene, s3_server: S3Server, proxy: S3Proxy
) -> None:
    lake, plan = (
        scene.lake(proxy.endpoint),
        scenes.scene_plan(scene.lake(s3_server.endpoint), epochs=1),
    )
    proxy.set_faults([Fault(kind="lose_reply", methods=("PUT", "POST"), rate=0.3, most=6)])
    for _ in range(8):
        try:
            save_plan(lake, plan, "mix")
        except LakeError:
            continue
        break
    assert proxy.traffic.faults["lose_reply"] > 0
    fresh = scene.lake(s3_server.endpoint)
    assert sorted(entry.name for entry in list_plans(fresh)) == ["materialised", "mix"]
    assert load_plan(fresh, "mix").plan_hash == plan.plan_hash

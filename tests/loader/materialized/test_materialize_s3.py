"""Materialised packs in an object store: written, joined, read, listed, removed as on disk."""

import threading

import pytest

from lake import Lake, create_lake, open_lake
from loader import LoaderError, PackLoader
from loader.materialized.materialize import materialize
from loader.materialized.pack_set import list_sets, remove_set
from loader.materialized.settings import MaterializedSettings
from packing.plan_store import save_plan
from tests.loader import scenes
from tests.s3_server import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def remote(s3_server: S3Server) -> Lake:
    uri, options = s3_server.uri("materialized.lake"), s3_server.storage_options
    lake = scenes.fill_lake(create_lake(uri, storage_options=options))
    save_plan(lake, scenes.scene_plan(lake), "mix")
    return lake


def test_an_object_store_holds_the_same_packs(scene: Lake, remote: Lake) -> None:
    plan = scenes.scene_plan(remote)
    with pytest.raises(LoaderError, match="has no materialised packs"):
        PackLoader(remote, "mix", materialized=True)
    errors: list[BaseException] = []

    def write(workers: int) -> None:
        try:
            mine = open_lake(remote.uri, storage_options=remote.storage_options)
            materialize(mine, plan, workers=workers, chunk_packs=9)
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=write, args=(workers,)) for workers in (0, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with PackLoader(scene, scenes.scene_plan(scene), process="inline", framework="numpy") as loader:
        local = [scenes.digest(batch) for batch in loader]
    with PackLoader(remote, "mix", framework="numpy", num_workers=2, materialized=True) as loader:
        assert [scenes.digest(batch) for batch in loader] == local
    assert [(s.name, s.packs, s.num_packs) for s in list_sets(remote, plan.plan_hash)] == [
        ("copy", 36, 36)
    ]
    remove_set(remote, plan.plan_hash, MaterializedSettings())
    assert list_sets(remote, plan.plan_hash) == []

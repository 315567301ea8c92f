"""The same batches from an object store as from local disk."""

import pytest

from lake import Lake, create_lake, open_lake
from loader import PackLoader
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.loader import scenes
from tests.s3_server import S3Server

pytestmark = pytest.mark.s3


def test_an_object_store_gives_the_same_batches(
    scene: Lake, plan: Plan, s3_server: S3Server
) -> None:
    with PackLoader(scene, plan, process="inline", framework="numpy") as loader:
        local = [scenes.digest(batch) for batch in loader]
    uri, options = s3_server.uri("loader.lake"), s3_server.storage_options
    remote = scenes.fill_lake(create_lake(uri, storage_options=options))
    save_plan(remote, scenes.scene_plan(remote), "mix")
    with PackLoader(
        open_lake(uri, storage_options=options), "mix", framework="numpy", num_workers=2
    ) as loader:
        assert loader.plan.plan_hash == plan.plan_hash
        assert [scenes.digest(batch) for batch in loader] == local

"""The same batches from an object store as from local disk, in every way to stream."""

from pathlib import Path

import pytest

from lake import Lake, create_lake, open_lake
from loader import PackLoader
from loader.materialized.materialize import materialize
from loader.proof.digest import batch_digest
from loader.proof.elastic import Variant, prove_elastic
from loader.proof.exactly_once import prove_exactly_once
from loader.proof.pack_loader_ranks import PackLoaderRanks
from loader.proof.planned import PlannedSteps
from loader.storage.settings import StorageSettings
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.window_spans import WindowSpans
from tests.loader import scenes
from tests.s3_server import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def remote(s3_server: S3Server) -> Lake:
    """The scene in the object store, with a saved plan `mix` that is materialised."""
    uri, options = s3_server.uri("loader.lake"), s3_server.storage_options
    lake = scenes.fill_lake(create_lake(uri, storage_options=options))
    plan = scenes.scene_plan(lake)
    save_plan(lake, plan, "mix")
    materialize(lake, plan, workers=1)
    return open_lake(uri, storage_options=options)


def test_every_way_to_stream_gives_the_bytes_of_local_disk(
    scene: Lake, plan: Plan, remote: Lake, tmp_path: Path
) -> None:
    cached = StorageSettings(cache_dir=str(tmp_path / "cache"))
    remote_plan = scenes.scene_plan(remote)
    assert remote_plan.plan_hash == plan.plan_hash
    with PackLoaderRanks(scene, plan) as local, PackLoaderRanks(remote, remote_plan) as ranks:
        inline = ranks.program(digests=True, process="inline")
        through_cache = ranks.program(digests=True, process="inline", storage=cached)
        packs = ranks.program(digests=True, process="inline", materialized=True)
        result = prove_elastic(
            [
                Variant(
                    label="local disk",
                    program=local.program(digests=True, process="inline"),
                    world_sizes=(1,),
                ),
                Variant(label="1 then 3 then 2 ranks", program=inline, world_sizes=(1, 3, 2)),
                Variant(
                    label="2 decode processes",
                    program=ranks.program(digests=True, num_workers=2, storage=cached),
                    world_sizes=(1,),
                ),
                Variant(label="from the cache", program=through_cache, world_sizes=(3,)),
                Variant(label="materialised packs", program=packs, world_sizes=(2,)),
            ],
            PlannedSteps.of_plan(plan),
        )
    assert result.passed, result.differences
    assert result.counts["ways"] == 5


@pytest.mark.parametrize("materialized", [False, True])
def test_killed_ranks_resume_exactly(remote: Lake, *, materialized: bool) -> None:
    plan = scenes.scene_plan(remote)
    with PackLoaderRanks(remote, plan) as ranks:
        result = prove_exactly_once(
            ranks.program(materialized=materialized),
            PlannedSteps.of_plan(plan, 2, 5),
            world_sizes=(1, 2),
            num_kills=2,
            kills=("worker", "rank"),
            seed=int(materialized),
        )
    assert result.passed, result.differences
    assert result.counts["kills"] == 2


def test_a_plan_by_name_and_a_plan_in_memory(remote: Lake) -> None:
    spans = WindowSpans(horizon=5, history=2, history_stride=3)
    with (
        PackLoader(remote, "mix", framework="numpy") as saved,
        PackLoader.from_episodes(
            remote, None, budget_tokens=256, spans=spans, slots_per_step=3, framework="numpy"
        ) as made,
    ):
        batches = [batch_digest(batch) for batch in saved]
        assert len(batches) == saved.num_steps * 3
        quick = [batch.num_spans for batch in made]
        assert len(quick) == made.num_steps * 3
        assert sum(quick) == made.plan.header.num_spans > 0

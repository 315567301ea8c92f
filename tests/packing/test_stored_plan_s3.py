"""A saved plan in an object store: left there, and loaded whole where it has no digests."""

import pytest

from lake import EpisodeWriter, create_lake
from lake.object_store import remove_folder
from packing.errors import PlanError
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.stored_plan import StoredPlan, open_plan
from packing.window_spans import WindowSpans
from tests.episodes import make_episode
from tests.s3_server import S3Server

pytestmark = pytest.mark.s3


def test_a_plan_in_an_object_store(s3_server: S3Server) -> None:
    lake = create_lake(s3_server.uri("stored.lake"), storage_options=s3_server.storage_options)
    with EpisodeWriter(lake) as writer:
        for number in range(3):
            writer.add(make_episode(number))
    lake.refresh()
    plan = make_plan(lake, spans=WindowSpans(horizon=4), budget_tokens=256, slots_per_step=2)
    save_plan(lake, plan, "mix")
    stored = open_plan(lake, "mix")
    assert isinstance(stored, StoredPlan)
    assert stored.take_packs([1, 0]).equals(plan.packs.take([1, 0]))
    assert stored.episodes.equals(plan.episodes)

    folder = f"{lake.uri}/plans/{plan.plan_hash}"
    remove_folder(f"{folder}/digests.lance", lake.storage_options)
    loaded = open_plan(lake, "mix")
    assert isinstance(loaded, Plan)
    assert loaded.packs.equals(plan.packs)
    remove_folder(f"{folder}/packs.lance", lake.storage_options)
    with pytest.raises(PlanError, match="its table packs is unreadable"):
        open_plan(lake, "mix")

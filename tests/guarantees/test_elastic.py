"""Guarantee 2: world size, process mode, worker count and byte bound do not change the sequence.

Each row of the plan must come out as the same bytes, whoever streams it. The public harness does it
(`loader/proof/`).
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from lake import Lake
from loader import PackLoader
from loader.materialized.materialize import materialize
from loader.proof.digest import batch_digest
from loader.proof.elastic import Variant, prove_elastic
from loader.proof.pack_loader_ranks import PackLoaderRanks
from loader.proof.planned import PlannedSteps
from packing.mixture import Mixture
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.loader import scenes

_SLOTS = 4
_MIXTURES: Mapping[str, Mixture | None] = {"plain": None, "mixed": Mixture(per="episode")}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return scenes.scene_lake(Path(tmp_path_factory.mktemp("elastic")))


@pytest.fixture(scope="module")
def plans(lake: Lake) -> dict[str, Plan]:
    made = {
        name: scenes.scene_plan(lake, slots_per_step=_SLOTS, mixture=mixture)
        for name, mixture in _MIXTURES.items()
    }
    save_plan(lake, made["plain"], "plain")
    materialize(lake, made["plain"], workers=1)
    return made


def test_every_way_to_stream_gives_the_same_bytes(lake: Lake, plans: dict[str, Plan]) -> None:
    planned = PlannedSteps.of_plan(plans["plain"])
    with PackLoaderRanks(lake, plans["plain"]) as ranks:
        variants = ranks.variants((2, 3, 4))
        others = [
            Variant(
                label="three decode processes",
                program=ranks.program(digests=True, num_workers=3, buffer_bytes=1 << 21),
                world_sizes=(1,),
            ),
            Variant(
                label="three decode threads",
                program=ranks.program(digests=True, process="inline", decode_threads=3),
                world_sizes=(1,),
            ),
            Variant(
                label="inline in 4 MiB",
                program=ranks.program(digests=True, process="inline", buffer_bytes=1 << 22),
                world_sizes=(2,),
            ),
            Variant(
                label="materialised packs, handed over",
                program=ranks.program(digests=True, process="inline", materialized=True),
                world_sizes=(3, 1, 4),
            ),
        ]
        result = prove_elastic([*variants, *others], planned)
    assert result.passed, result.differences
    assert result.counts["ways"] == len(variants) + len(others)
    assert result.counts["spans"] == result.counts["ways"] * sum(
        len(spans) for _, _, spans in scenes.planned_spans(plans["plain"])
    )


def test_a_mixture_is_elastic_too(lake: Lake, plans: dict[str, Plan]) -> None:
    with PackLoaderRanks(lake, plans["mixed"]) as ranks:
        result = prove_elastic(
            [
                Variant(
                    label=f"world sizes {worlds}",
                    program=ranks.program(digests=True, process="inline"),
                    world_sizes=worlds,
                )
                for worlds in ((1,), (3,), (4, 1, 2))
            ],
            PlannedSteps.of_plan(plans["mixed"]),
        )
    assert result.passed, result.differences


def test_a_change_of_any_byte_would_be_seen(lake: Lake, plans: dict[str, Plan]) -> None:
    """Another size of pictures is another sequence: the proof is not blind to pixels."""
    with PackLoaderRanks(lake, plans["plain"]) as ranks:
        plain = ranks.program(digests=True, process="inline")
        other = ranks.program(digests=True, process="inline", image_size=(32, 46))
        result = prove_elastic(
            [
                Variant(label="plain", program=plain, world_sizes=(1,)),
                Variant(label="other pictures", program=other, world_sizes=(1,)),
            ],
            PlannedSteps.of_plan(plans["plain"], 0, 1),
        )
    assert "other pictures: other bytes than plain" in str(result.differences[0])


def test_a_rank_without_a_slot_learns_nothing(lake: Lake, plans: dict[str, Plan]) -> None:
    empty = 0
    with PackLoader(lake, plans["plain"], 2, 3, process="inline", framework="numpy") as loader:
        for batch in loader:
            if batch.slot >= _SLOTS:
                empty += 1
                assert batch.num_spans == batch.num_action_items == 0
                assert batch.pack == -1
    assert empty == plans["plain"].num_steps


def test_a_digest_covers_every_field(lake: Lake, plans: dict[str, Plan]) -> None:
    with PackLoader(lake, plans["plain"], process="inline", framework="numpy") as loader:
        batch = next(iter(loader))
    seen = {batch_digest(batch)}
    for name, array in batch.arrays():
        if array.size:
            changed = array.copy()
            changed.reshape(-1).view("uint8")[0] ^= 1
            seen.add(batch_digest(batch.with_arrays({**dict(batch.arrays()), name: changed})))
    fields = [name for name, array in batch.arrays() if array.size]
    assert len(seen) == 1 + len(fields)

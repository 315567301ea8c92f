"""Bad bytes in the lake become padding: recorded, and the same for all.

Bits of stored files are flipped. Every span that does not need them must come out as if nothing had
happened; those that do are handed out once, with no weight. Which they are is worked out here from
the lake that was damaged, packet by packet.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lake import Lake
from loader import PackLoader
from loader.bad_spans import BadSpan
from loader.fetch.plan_rows import PlanRows
from loader.storage.settings import StorageSettings
from packing.known_layouts import KNOWN_LAYOUTS
from packing.plan import Plan
from packing.state_text import state_bins
from packing.tokenizer import find_tokenizer
from tests.guarantees.bad_bytes_truth import (
    CASES,
    SLOTS,
    Spans,
    assert_equal,
    assert_padding,
    episode,
    lost,
    planned_rows,
    sound_lake,
    streamed,
)
from tests.loader import scenes
from tests.loader.damage import SpanKey, damaged_copy, spans_of
from tests.packing.small_tokenizers import gemma_like, write


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return sound_lake(Path(tmp_path_factory.mktemp("sound")))


@pytest.fixture(scope="module")
def plan(lake: Lake) -> Plan:
    return scenes.scene_plan(lake, slots_per_step=SLOTS)


@pytest.fixture(scope="module")
def sound(lake: Lake, plan: Plan) -> Spans:
    """Every span as the sound lake gives it."""
    return streamed(lake, plan)[0]


@pytest.mark.parametrize("case", CASES)
def test_only_spans_that_need_the_bad_bytes_are_bad(
    lake: Lake, plan: Plan, sound: Spans, tmp_path: Path, case: str
) -> None:
    needles, packets, rows = CASES[case]()
    spans, bad = streamed(damaged_copy(lake, tmp_path / "damaged.lake", needles), plan)
    expected = lost(plan, packets, rows)
    assert expected
    assert spans.keys() == sound.keys()
    found = {(each.epoch, each.span_id, each.occurrence): each for each in bad}
    assert {key: (each.episode_id, each.camera) for key, each in found.items()} == expected
    places = {
        (r["epoch"], r["span_id"], r["occurrence"]): (r["step"], r["slot"])
        for r in planned_rows(plan)
    }
    for key, values in spans.items():
        if key in expected:
            assert (found[key].step, found[key].slot) == places[key]
            gaps = expected[key][0] == episode(2).episode_id
            assert_padding(values, sound[key], pictures_known=not (gaps and 2 in rows))
        else:
            assert_equal(values, sound[key])


@pytest.fixture(scope="module")
def damaged(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """All kinds of damage at once."""
    return damaged_copy(
        lake, Path(tmp_path_factory.mktemp("damaged")) / "robots.lake", CASES["all kinds"]()[0]
    )


Sequence = tuple[dict[tuple[int, int], str], set[BadSpan]]


def _global_sequence(lake: Lake, plan: Plan, world_size: int, **options: Any) -> Sequence:
    """(step, slot) -> digest over all ranks, and all bad spans."""
    digests: dict[tuple[int, int], str] = {}
    bad: list[BadSpan] = []
    chosen = {"process": "inline", "max_bad_share": 1.0, **options}
    for rank in range(world_size):
        with PackLoader(lake, plan, rank, world_size, framework="numpy", **chosen) as loader:
            for batch in loader:
                if batch.slot < SLOTS:
                    digests[batch.step, batch.slot] = scenes.digest(batch)
            bad += loader.bad_spans
    assert len(set(bad)) == len(bad)
    return digests, set(bad)


@pytest.fixture(scope="module")
def reference(damaged: Lake, plan: Plan) -> Sequence:
    found = _global_sequence(damaged, plan, 1)
    assert found[1]
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"world_size": 2},
        {"world_size": 3},
        {"buffer_bytes": 1 << 20},
        {"decode_threads": 3},
        {"buffer_bytes": 1 << 22, "world_size": 2},
        {"process": "child"},
        {"process": "child", "num_workers": 3, "buffer_bytes": 1 << 21},
        {"process": "child", "num_workers": 2, "world_size": 2},
    ],
    ids=str,
)
def test_what_is_bad_depends_on_lake_and_plan_alone(
    damaged: Lake, plan: Plan, reference: Sequence, options: dict[str, Any]
) -> None:
    world_size = options.get("world_size", 1)
    rest = {name: value for name, value in options.items() if name != "world_size"}
    assert _global_sequence(damaged, plan, world_size, **rest) == reference


def test_a_cache_changes_nothing(
    damaged: Lake, plan: Plan, reference: Sequence, tmp_path: Path
) -> None:
    storage = StorageSettings(cache_dir=str(tmp_path / "cache"))
    for _ in range(2):  # the second time, what was read before is there
        assert _global_sequence(damaged, plan, 1, storage=storage) == reference


def test_going_on_in_the_middle_finds_the_same(
    damaged: Lake, plan: Plan, reference: Sequence
) -> None:
    for step in range(1, plan.num_steps, 7):
        loader = PackLoader(damaged, plan, process="inline", framework="numpy", max_bad_share=1.0)
        state = {**loader.state_dict(), "next_step": step}
        loader.load_state_dict(state)
        digests = {(batch.step, batch.slot): scenes.digest(batch) for batch in loader}
        assert digests == {key: value for key, value in reference[0].items() if key[0] >= step}
        assert set(loader.bad_spans) == {span for span in reference[1] if span.step >= step}


def test_another_picture_size_and_format_find_the_same(
    lake: Lake, damaged: Lake, plan: Plan
) -> None:
    options: dict[str, Any] = {"image_size": (24, 32), "image_format": "yuv"}
    whole, _ = streamed(lake, plan, **options)
    spans, bad = streamed(damaged, plan, **options)
    keys = {(each.epoch, each.span_id, each.occurrence) for each in bad}
    assert keys == lost(plan, *CASES["all kinds"]()[1:]).keys()
    for key, values in spans.items():
        if key in keys:
            assert_padding(values, whole[key], pictures_known=False)
        else:
            assert_equal(values, whole[key])


def test_a_state_written_as_text_is_that_of_a_state_of_zero(
    lake: Lake, damaged: Lake, tmp_path: Path
) -> None:
    layout = dataclasses.replace(KNOWN_LAYOUTS["pi0.5"].layout, image_tokens=4)
    tokenizer = find_tokenizer(write(tmp_path, "gemma.model", gemma_like()))
    plan = scenes.scene_plan(lake, layout=layout, tokenizer=tokenizer, budget_tokens=384)
    whole, _ = streamed(lake, plan)
    spans, bad = streamed(damaged, plan)
    text = plan.header.prompt_ids.state_text
    assert text is not None
    keys = {(each.epoch, each.span_id, each.occurrence) for each in bad}
    assert keys == lost(plan, *CASES["all kinds"]()[1:]).keys()
    q01, q99 = PlanRows(plan).state_quantiles
    for key, values in spans.items():
        if key not in keys:
            assert_equal(values, whole[key])
            continue
        spec = int(values["stats_id"])
        size = plan.header.specs[spec].state_size
        zero = state_bins(np.zeros((1, q01.shape[1]), np.float32), q01[[spec]], q99[[spec]])
        ids = ",".join(map(str, text.ids(zero[0, :size].tolist())))
        assert ids in ",".join(map(str, values["input_ids"].tolist()))


def test_a_batch_without_its_bad_spans_counts_without_them(damaged: Lake, plan: Plan) -> None:
    bad: set[SpanKey] = set()
    with PackLoader(
        damaged, plan, process="inline", framework="numpy", max_bad_share=1.0
    ) as loader:
        for batch in loader:
            bad = {(each.epoch, each.span_id, each.occurrence) for each in loader.bad_spans}
            good = [values for key, values in spans_of(batch).items() if key not in bad]
            counted = [
                int((values["action_loss_weights"][:, None] * values["action_dim_mask"]).sum())
                for values in good
            ]
            assert batch.num_action_items == sum(counted)
            assert batch.num_items_in_batch == 0
            assert batch.num_spans == len(spans_of(batch))
    assert bad

"""Spans that are handed out as padding: their record and their ceiling."""

import json
import logging
from pathlib import Path

import pytest

from lake import Lake
from loader import PackLoader
from loader.bad_spans import BadSpan, BadSpans
from loader.device import on_device
from loader.errors import BadDataError
from loader.observe.metrics import LoaderMetrics
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.stored_plan import open_plan
from tests.loader import scenes
from tests.loader.damage import damaged_copy


def _bad(number: int, *, step: int = 0, slot: int = 0, camera: str = "top") -> BadSpan:
    return BadSpan(
        span_id=number,
        occurrence=0,
        epoch=0,
        step=step,
        slot=slot,
        episode_id="e",
        camera=camera,
        reason="packet 3",
    )


def test_a_bad_span_crosses_as_json() -> None:
    span = _bad(7)
    assert BadSpan.from_dict(json.loads(json.dumps(span.to_dict()))) == span
    assert span.where == "episode e, camera top"
    assert _bad(7, camera="").where == "episode e"


@pytest.mark.parametrize("allowed", [0, 1, 3])
@pytest.mark.parametrize("total", [5, 40, 30_000])
def test_the_ceiling_is_a_share_of_the_plan_s_spans(total: int, allowed: int) -> None:
    for share in (allowed / total, (allowed + 0.9) / total):
        metrics = LoaderMetrics()
        bad = BadSpans(total, share, metrics)
        for number in range(allowed):
            bad.receive([_bad(number)])
        assert metrics.counts["bad_spans"] == allowed
        match = rf"{allowed + 1} spans of this rank .* of the plan's {total} allows {allowed}\."
        with pytest.raises(BadDataError, match=match):
            bad.receive([_bad(allowed)])


def test_a_plan_counts_its_spans_in_memory_and_in_the_lake(tmp_path: Path) -> None:
    lake = scenes.scene_lake(tmp_path)
    plan = scenes.scene_plan(lake)
    save_plan(lake, plan, "mix")
    planned = sum(map(len, plan.packs["span_id"].to_pylist()))
    assert open_plan(lake, "mix").header.num_occurrences == plan.header.num_occurrences == planned


def test_what_is_received_is_listed_once_its_batch_is_handed_out() -> None:
    bad = BadSpans(9, 1.0, LoaderMetrics())
    first, second, third = _bad(1), _bad(2, slot=1), _bad(3, slot=1)
    bad.receive([first])
    bad.receive([second, third])
    bad.hand_out(0, 0)
    assert bad.handed_out == [first]
    bad.hand_out(0, 1)
    assert bad.handed_out == [first, second, third]


def test_each_episode_and_camera_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    bad = BadSpans(9, 1.0, LoaderMetrics())
    with caplog.at_level(logging.WARNING, "headrace.loader"):
        bad.receive([_bad(1), _bad(2), _bad(3, camera="wrist")])
        bad.receive([_bad(4, camera="wrist")])
    assert [record.getMessage().partition(" is damaged")[0] for record in caplog.records] == [
        "episode e, camera top",
        "episode e, camera wrist",
    ]


@pytest.mark.parametrize("ahead", [0, 2])
def test_batches_under_way_to_a_device_do_not_count_as_handed_out(
    scene: Lake, plan: Plan, tmp_path: Path, ahead: int
) -> None:
    state = scenes.scene_episode(1).features["state"][2:4].tobytes()
    damaged = damaged_copy(scene, tmp_path / "damaged.lake", [state])
    with PackLoader(damaged, plan, process="inline", max_bad_share=1.0) as loader:
        seen = 0
        for batch in on_device(loader, "cpu", ahead=ahead):
            here = batch.sample_weights[: batch.num_spans]
            seen += int((here == 0).sum())
            assert len(loader.bad_spans) == seen
    assert seen

"""What is not recorded is masked, weighs nothing and is zero: padded tails and crossed gaps."""

from typing import Any

import numpy as np
import pytest

from lake import EpisodeWriter, Lake
from lake.read import read_episode
from loader import PackLoader
from loader.batch import NumpyBatch
from packing.errors import PlanError
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.spans import SpanMaker
from packing.trajectory_spans import TrajectorySpans
from packing.verify import verify_plan
from packing.window_spans import WindowSpans
from tests.episodes import make_episode

STEPS = (6, 9)
UNKNOWN = {1: [0, 3, 4, 8]}
"""Steps whose state is invalid, per episode; 3 and 4 lie between valid ones."""


@pytest.fixture
def gappy(lake: Lake) -> Lake:
    with EpisodeWriter(lake) as writer:
        for number, steps in enumerate(STEPS):
            base = make_episode(number, steps=steps)
            valid = ~np.isin(np.arange(steps), UNKNOWN.get(number, []))
            state = np.where(valid[:, None], base.features["state"], np.nan).astype(np.float32)
            features = {**base.features, "state": state}
            writer.add(make_episode(number, steps=steps, features=features, valid={"state": valid}))
    lake.refresh()
    return lake


def load(lake: Lake, spans: SpanMaker, **changes: Any) -> tuple[Plan, list[NumpyBatch]]:
    plan = make_plan(
        lake,
        spans=spans,
        layout=TokenLayout(image_tokens=0),
        budget_tokens=128,
        slots_per_step=1,
        **changes,
    )
    verify_plan(plan)
    with PackLoader(lake, plan, process="inline", framework="numpy") as loader:
        return plan, list(loader)


def test_padded_tail_is_zero_and_without_weight(gappy: Lake) -> None:
    plan, batches = load(gappy, WindowSpans(horizon=4, tail="pad"))
    # Windows at 3, 4, 5 of the first episode, at 6 and 7 of the second (8 has no state).
    assert plan.header.audit[0].unscored == (1 + 2 + 3) + (1 + 2)
    actions = [
        read_episode(gappy, e).features["action"] for e in plan.episodes["episode_id"].to_pylist()
    ]
    padded = items = 0
    for batch in batches:
        assert np.diff(batch.cu_seqlens_action)[: batch.num_spans].tolist() == [4] * batch.num_spans
        for span in range(batch.num_spans):
            recorded = actions[batch.episode_ids[span]]
            chunk = recorded[batch.step_index[span] :][:4]
            rows = slice(4 * span, 4 * span + 4)
            missing = 4 - len(chunk)
            assert np.array_equal(batch.actions[rows][: len(chunk)], chunk)
            assert not batch.actions[rows][len(chunk) :].any()
            assert batch.action_loss_weights[rows].tolist() == [1.0] * len(chunk) + [0.0] * missing
            padded += missing
            items += chunk.size
        assert batch.action_dim_mask.all()
    assert padded == plan.header.audit[0].unscored
    assert sum(batch.num_action_items for batch in batches) == items


def test_no_other_tail_acts_past_the_end(gappy: Lake) -> None:
    short, _ = load(gappy, WindowSpans(horizon=4))
    drop, batches = load(gappy, WindowSpans(horizon=4, tail="drop"))
    assert short.header.audit[0].unscored == drop.header.audit[0].unscored == 0
    refused = {"window-touches-invalid-state": 4, "window-without-full-horizon": 3 + 2}
    assert drop.header.audit[0].refused == refused
    assert drop.header.num_spans == sum(STEPS) - 4 - 5
    for batch in batches:
        assert (batch.action_loss_weights == 1).all()
        assert len(batch.actions) == 4 * batch.num_spans


def test_crossed_states_are_zero_and_masked(gappy: Lake) -> None:
    plan, batches = load(gappy, TrajectorySpans(across_gaps=True))
    assert plan.episodes["invalid_state_steps"].to_pylist() == [[], [3, 4]]
    audit = plan.header.audit[0]
    assert (audit.masked, audit.refused) == (2, {"step-with-invalid-state": 2})
    seen: dict[int, list[tuple[int, bool, bool]]] = {0: [], 1: []}
    for batch in batches:
        for span in range(batch.num_spans):
            for row in range(*batch.cu_seqlens_state[span : span + 2]):
                mask = batch.state_dim_mask[row]
                assert mask.all() or not mask.any()
                seen[int(batch.episode_ids[span])].append(
                    (int(batch.state_step_index[row]), bool(mask[0]), bool(batch.state[row].any()))
                )
    assert seen[0] == [(step, True, True) for step in range(6)]
    assert seen[1] == [(step, step not in {3, 4}, step not in {3, 4}) for step in range(1, 8)]


def test_gaps_are_not_crossed_unless_told(gappy: Lake) -> None:
    plan, batches = load(gappy, TrajectorySpans())
    assert plan.episodes["invalid_state_steps"].to_pylist() == [[], []]
    assert plan.header.audit[0].masked == 0
    assert all(batch.state_dim_mask.all() for batch in batches)
    steps = [step for batch in batches for step in batch.state_step_index.tolist()]
    assert sorted(steps) == sorted([*range(6), 1, 2, 5, 6, 7])


def test_padded_layout_tells_masked_states_and_missing_actions(gappy: Lake) -> None:
    _, batches = load(gappy, TrajectorySpans(across_gaps=True))
    for batch in batches:
        out = batch.padded(max_text=99, num_cameras=2, horizon=9, dim=7, num_observed=9)
        for span in range(batch.num_spans):
            first = 9 - int(np.diff(batch.cu_seqlens_state)[span])
            known = [False] * first
            for row in range(*batch.cu_seqlens_state[span : span + 2]):
                known.append(bool(batch.state_dim_mask[row].any()))
            assert out.state_mask[span].tolist() == known
    _, batches = load(gappy, WindowSpans(horizon=4, tail="pad"))
    for batch in batches:
        out = batch.padded(max_text=99, num_cameras=2, horizon=4, dim=7)
        assert out.action_is_pad.ravel().tolist() == (batch.action_loss_weights == 0).tolist()


def test_episodes_too_short_for_any_window_are_an_error_that_says_why(gappy: Lake) -> None:
    refused = r"refused: window-touches-invalid-state 4, window-without-full-horizon 11"
    with pytest.raises(PlanError, match=rf"no span can be made of the 2 .* \({refused}\)"):
        load(gappy, WindowSpans(horizon=99, tail="drop"))

"""What the packing bench packs is what it says."""

import numpy as np
import pytest

from packing.layout import TokenLayout
from packing.spans import EpisodeSteps, SpanLimits
from packing.trajectory_spans import TrajectorySpans
from tools.bench.packing_data import LEAST_STEPS, split_lengths, trajectories, windows


@pytest.mark.parametrize(("budget", "tokens_per_step"), [(8192, 1), (512, 4), (128, 16)])
def test_lengths_are_split_as_trajectory_spans_split_them(
    budget: int, tokens_per_step: int
) -> None:
    steps = np.asarray([1, 8, 16, 17, 127, 128, 129, 500])
    episodes = EpisodeSteps(
        episode_ids=tuple(map(str, steps)),
        step_offsets=np.concatenate([[0], np.cumsum(steps)]),
        frames=np.zeros(steps.sum(), np.int16),
        state_valid=np.ones(steps.sum(), np.bool_),
        text=np.zeros(len(steps), np.int32),
        text_tokens=np.zeros(len(steps), np.int32),
    )
    layout = TokenLayout(image_tokens=0, state_tokens=tokens_per_step, action_tokens=0)
    spans = TrajectorySpans().make(episodes, layout, SpanLimits(tokens=budget)).spans
    assert spans.tokens.tolist() == split_lengths(steps * tokens_per_step, budget).tolist()


def test_there_are_exactly_as_many_spans_as_asked_for_and_none_is_too_long() -> None:
    data = trajectories(10_000, budget=1024, tokens_per_step=4)
    assert data.tokens.shape == (10_000,)
    assert data.tokens.max() == 1024
    assert 0 < data.rows < 10_000
    assert data.lost["split"] == 0.0
    assert 0 < data.lost["truncate"] < data.lost["drop"] < 1
    long = trajectories(10_000, budget=1 << 20, tokens_per_step=4)
    assert long.rows == 10_000
    assert long.lost == {"split": 0.0, "truncate": 0.0, "drop": 0.0}
    assert long.tokens.min() >= 4 * LEAST_STEPS
    assert long.tokens.mean() == pytest.approx(1600, rel=0.05)


def test_what_would_be_lost_is_counted_on_whole_rows() -> None:
    data = trajectories(50_000, budget=2048, tokens_per_step=1)
    rows = trajectories(data.rows, budget=1 << 20, tokens_per_step=1).tokens.astype(np.int64)
    beyond = np.maximum(rows - 2048, 0).sum() / rows.sum()
    assert data.lost["truncate"] == pytest.approx(beyond)
    assert data.lost["drop"] == pytest.approx(rows[rows > 2048].sum() / rows.sum())


def test_windows_are_of_near_equal_length() -> None:
    data = windows(20, cameras=2)
    tokens = data.spans.tokens[data.spans.action_tokens == 50]
    assert tokens.min() >= 577
    assert tokens.max() <= 592
    assert set(data.gop.tolist()) <= {8, 9, 10}
    assert (data.spans.images == 2).all()

"""Trajectories: whole where they fit, split where they must, never across a gap."""

from typing import Any, Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from packing.errors import PackingError
from packing.layout import TokenLayout
from packing.spans import SpanLimits
from packing.trajectory_spans import STEP_WITH_INVALID_STATE, TrajectorySpans
from tests.packing.synthetic import episode_steps

ROOMY = SpanLimits(tokens=1 << 20)
layouts = st.builds(
    TokenLayout,
    image_tokens=st.integers(0, 5),
    state_tokens=st.integers(0, 1),
    action_tokens=st.integers(1, 3),
    extra_tokens=st.integers(0, 3),
)
episodes = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=30),
    min_size=1,
    max_size=4,
)


@given(
    episodes,
    layouts,
    st.integers(1, 4),
    st.sampled_from(["full", "even"]),
    st.integers(20, 90),
    st.one_of(st.none(), st.integers(2, 20)),
    st.one_of(st.none(), st.integers(3, 20)),
)
def test_every_valid_step_acts_once_and_no_piece_is_over_a_limit(
    data: list[list[tuple[int, bool]]],
    layout: TokenLayout,
    every: int,
    split: Literal["full", "even"],
    budget: int,
    max_images: int | None,
    max_queries: int | None,
) -> None:
    steps = episode_steps(
        [len(e) for e in data],
        frames=[[f for f, _ in e] for e in data],
        valid=[[v for _, v in e] for e in data],
    )
    limits = SpanLimits(tokens=budget, images=max_images, action_queries=max_queries)
    made = TrajectorySpans(observe_every=every, split=split).make(steps, layout, limits)
    spans = made.spans
    for number, episode in enumerate(data):
        mine = [i for i in range(len(spans)) if spans.episode[i] == number]
        acted = [t for i in mine for t in range(spans.action_start[i], spans.action_stop[i])]
        assert acted == [t for t, (_, valid) in enumerate(episode) if valid]
        for i in mine:
            observed = range(spans.start[i], spans.stop[i], spans.stride[i])
            assert observed.start == spans.action_start[i]
            images = sum(episode[t][0] for t in observed)
            queries = layout.action_tokens * int(spans.action_stop[i] - spans.action_start[i])
            prefix = layout.extra_tokens + 3 + layout.image_tokens * images
            prefix += layout.state_tokens * len(observed)
            assert (spans.images[i], spans.action_tokens[i]) == (images, queries)
            assert spans.prefix_tokens[i] == prefix
            assert prefix + queries <= budget
            assert max_images is None or images <= max_images
            assert max_queries is None or queries <= max_queries
        invalid = sum(not valid for _, valid in episode)
        assert made.refused[STEP_WITH_INVALID_STATE][number] == invalid
        assert made.split[number] == max(len(mine) - 1, 0)


@given(layouts, st.integers(1, 4), st.integers(20, 60), st.integers(0, 2))
def test_the_derived_maximum_is_the_largest_that_fits(
    layout: TokenLayout, every: int, budget: int, cameras: int
) -> None:
    """With one more step, a full piece would be over the budget."""
    length = 100
    steps = episode_steps([length], frames=[[cameras] * length])
    made = TrajectorySpans(observe_every=every).make(steps, layout, SpanLimits(tokens=budget))
    longest = int((made.spans.stop - made.spans.start).max())
    assume(longest < length)
    observed = -(-(longest + 1) // every)
    tokens = (
        layout.extra_tokens + 3 + (layout.image_tokens * cameras + layout.state_tokens) * (observed)
    )
    assert tokens + layout.action_tokens * (longest + 1) > budget


def test_split_policies() -> None:
    steps, layout = episode_steps([10]), TokenLayout()
    full = TrajectorySpans(max_steps=4).make(steps, layout, ROOMY).spans
    even = TrajectorySpans(max_steps=4, split="even").make(steps, layout, ROOMY).spans
    assert [*zip(full.start.tolist(), full.stop.tolist(), strict=True)] == [(0, 4), (4, 8), (8, 10)]
    assert [*zip(even.start.tolist(), even.stop.tolist(), strict=True)] == [(0, 3), (3, 6), (6, 10)]


def test_split_depends_on_the_cameras_and_text_of_each_episode() -> None:
    steps = episode_steps(
        [20, 20, 20], frames=[[0] * 20, [1] * 20, [2] * 20], text_tokens=[0, 0, 28]
    )
    layout = TokenLayout(image_tokens=10, state_tokens=1, action_tokens=1)
    made = TrajectorySpans().make(steps, layout, SpanLimits(tokens=72))
    lengths = [
        (made.spans.stop - made.spans.start)[made.spans.episode == e].tolist() for e in range(3)
    ]
    assert lengths == [[20], [6, 6, 6, 2], [2] * 10]


@pytest.mark.parametrize(
    ("limits", "match"),
    [
        (SpanLimits(tokens=40), "single step of episode e1.*25 text tokens and 2 images of 16"),
        (SpanLimits(tokens=400, images=1), "single step of episode e1.*and 1 images"),
    ],
)
def test_a_step_that_does_not_fit_is_refused_by_name(limits: SpanLimits, match: str) -> None:
    steps = episode_steps([3, 3], frames=[[1] * 3, [2] * 3], text_tokens=[0, 25])
    with pytest.raises(PackingError, match=match):
        TrajectorySpans().make(steps, TokenLayout(), limits)


def test_given_maximum_over_the_budget_is_refused_by_name() -> None:
    with pytest.raises(PackingError, match=r"episode e0, steps \[0, 9\).*lower max_steps \(9\)"):
        TrajectorySpans(max_steps=9).make(episode_steps([9]), TokenLayout(), SpanLimits(tokens=99))


@pytest.mark.parametrize("changes", [{"max_steps": 0}, {"observe_every": 0}, {"split": "half"}])
def test_bad_parameters(changes: dict[str, Any]) -> None:
    with pytest.raises(PackingError, match=next(iter(changes))):
        TrajectorySpans(**changes)

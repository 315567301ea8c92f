"""Trajectories: whole where they fit, split where they must, never across a gap."""

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from packing.errors import PackingError
from packing.layout import TokenLayout
from packing.spans import SpanLimits, Spans
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


def pieces_of(spans: Spans, episode: int) -> list[tuple[int, int]]:
    mine = np.flatnonzero(spans.episode == episode)
    return [*zip(spans.start[mine].tolist(), spans.stop[mine].tolist(), strict=True)]


def valid_runs(episode: list[tuple[int, bool]], *, across_gaps: bool) -> list[tuple[int, int]]:
    """The trajectories of an episode by plain loops."""
    runs: list[tuple[int, int]] = []
    for step, (_, valid) in enumerate(episode):
        if valid and runs and (across_gaps or runs[-1][1] == step):
            runs[-1] = (runs[-1][0], step + 1)
        elif valid:
            runs.append((step, step + 1))
    return runs


@given(
    episodes,
    layouts,
    st.integers(1, 4),
    st.sampled_from(["full", "even"]),
    st.booleans(),
    st.integers(20, 90),
    st.one_of(st.none(), st.integers(2, 20)),
    st.one_of(st.none(), st.integers(3, 20)),
)
def test_every_step_of_a_trajectory_acts_once_and_no_piece_is_over_a_limit(
    data: list[list[tuple[int, bool]]],
    layout: TokenLayout,
    every: int,
    split: Literal["full", "even"],
    across_gaps: bool,  # noqa: FBT001  (hypothesis passes in order)
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
    maker = TrajectorySpans(observe_every=every, split=split, across_gaps=across_gaps)
    made = maker.make(steps, layout, limits)
    spans = made.spans
    assert (spans.action_start == spans.start).all()
    assert (spans.action_stop == spans.stop).all()
    for number, episode in enumerate(data):
        pieces = pieces_of(spans, number)
        runs = valid_runs(episode, across_gaps=across_gaps)
        # Laid end to end the pieces are the runs, and none is in two of them.
        assert [t for a, b in pieces for t in range(a, b)] == [
            t for a, b in runs for t in range(a, b)
        ]
        assert all(any(a <= start and stop <= b for a, b in runs) for start, stop in pieces)
        if not across_gaps:
            assert all(episode[t][1] for a, b in pieces for t in range(a, b))
        covered = sum(b - a for a, b in runs)
        assert made.refused[STEP_WITH_INVALID_STATE][number] == len(episode) - covered
        assert made.split[number] == max(len(pieces) - 1, 0)
        for i in np.flatnonzero(spans.episode == number):
            observed = range(spans.start[i], spans.stop[i], spans.stride[i])
            images = sum(episode[t][0] for t in observed)
            queries = layout.action_tokens * int(spans.action_stop[i] - spans.action_start[i])
            prefix = layout.extra_tokens + 3 + layout.image_tokens * images
            prefix += layout.state_tokens * len(observed)
            assert (spans.images[i], spans.action_tokens[i]) == (images, queries)
            assert spans.prefix_tokens[i] == prefix
            assert prefix + queries <= budget
            assert max_images is None or images <= max_images
            assert max_queries is None or queries <= max_queries


@given(
    episodes,
    st.sampled_from(["full", "even"]),
    st.booleans(),
    st.integers(1, 12),
)
def test_given_maximum_is_kept_in_as_few_pieces_as_can_be(
    data: list[list[tuple[int, bool]]],
    split: Literal["full", "even"],
    across_gaps: bool,  # noqa: FBT001  (hypothesis passes in order)
    longest: int,
) -> None:
    steps = episode_steps([len(e) for e in data], valid=[[v for _, v in e] for e in data])
    maker = TrajectorySpans(max_steps=longest, split=split, across_gaps=across_gaps)
    made = maker.make(steps, TokenLayout(), ROOMY)
    lengths = made.spans.stop - made.spans.start
    assert (lengths <= longest).all()
    for number, episode in enumerate(data):
        runs = valid_runs(episode, across_gaps=across_gaps)
        pieces = pieces_of(made.spans, number)
        assert len(pieces) == sum(-(-(b - a) // longest) for a, b in runs)
        for first, last in runs:
            mine = [b - a for a, b in pieces if first <= a < last]
            if split == "even":
                assert max(mine) - min(mine) <= 1
            else:
                assert set(mine[:-1]) <= {longest}


@given(episodes, st.booleans(), st.one_of(st.none(), st.integers(1, 30)), st.integers(30, 400))
def test_refusing_makes_whole_trajectories_or_none(
    data: list[list[tuple[int, bool]]],
    across_gaps: bool,  # noqa: FBT001  (hypothesis passes in order)
    longest: int | None,
    budget: int,
) -> None:
    frames = [[f for f, _ in e] for e in data]
    steps = episode_steps(
        [len(e) for e in data], frames=frames, valid=[[v for _, v in e] for e in data]
    )
    maker = TrajectorySpans(max_steps=longest, split="refuse", across_gaps=across_gaps)
    layout = TokenLayout(image_tokens=4)
    runs = [
        (number, a, b)
        for number, episode in enumerate(data)
        for a, b in valid_runs(episode, across_gaps=across_gaps)
    ]
    # 3 tokens of text, an observed state and an action per step, and its images.
    tokens = [3 + 2 * (b - a) + 4 * sum(frames[number][a:b]) for number, a, b in runs]
    long = sum(longest is not None and b - a > longest for _, a, b in runs)
    large = sum(held > budget for held in tokens)
    if long:
        with pytest.raises(PackingError, match=f"^{long} of {len(runs)} trajectories are longer"):
            maker.make(steps, layout, SpanLimits(tokens=budget))
    elif large:
        with pytest.raises(PackingError, match=f"^{large} of {len(runs)} spans do not fit"):
            maker.make(steps, layout, SpanLimits(tokens=budget))
    else:
        made = maker.make(steps, layout, SpanLimits(tokens=budget))
        for number in range(len(data)):
            assert pieces_of(made.spans, number) == [(a, b) for n, a, b in runs if n == number]
        assert made.spans.tokens.tolist() == tokens


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


@pytest.mark.parametrize(
    ("maker", "limits", "match"),
    [
        (
            TrajectorySpans(max_steps=9, split="refuse"),
            ROOMY,
            r"^1 of 3 traj.* than max_steps 9: episode e1, steps \[0, 10\); raise it, leave such",
        ),
        (
            TrajectorySpans(split="refuse"),
            SpanLimits(tokens=184),
            r"^1 of 3 spans .* e2, steps \[2, 9\) needs 241 tokens, .* cap, or leave such episodes",
        ),
    ],
)
def test_trajectory_that_is_not_to_be_split_is_refused_by_name(
    maker: TrajectorySpans, limits: SpanLimits, match: str
) -> None:
    steps = episode_steps(
        [8, 10, 9],
        frames=[[1] * 8, [1] * 10, [2] * 9],
        valid=[[True] * 8, [True] * 10, [False] * 2 + [True] * 7],
    )
    with pytest.raises(PackingError, match=match):
        maker.make(steps, TokenLayout(), limits)


def test_a_gap_is_what_lies_between_valid_states() -> None:
    valid = [[False, True, False, False, True, False], [False] * 3, [True, False, True]]
    steps = episode_steps([6, 3, 3], valid=valid)
    made = TrajectorySpans(across_gaps=True).make(steps, TokenLayout(), ROOMY)
    assert [pieces_of(made.spans, number) for number in range(3)] == [[(1, 5)], [], [(0, 3)]]
    assert made.refused[STEP_WITH_INVALID_STATE].tolist() == [2, 3, 0]
    assert made.split.tolist() == [0, 0, 0]
    none = TrajectorySpans(across_gaps=True).make(
        episode_steps([2], valid=[[False, False]]), TokenLayout(), ROOMY
    )
    assert len(none.spans) == 0


@pytest.mark.parametrize("changes", [{"max_steps": 0}, {"observe_every": 0}, {"split": "half"}])
def test_bad_parameters(changes: dict[str, Any]) -> None:
    with pytest.raises(PackingError, match=next(iter(changes))):
        TrajectorySpans(**changes)

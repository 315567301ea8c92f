"""Windows against their definition, step by step."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from packing.errors import PackingError
from packing.layout import TokenLayout
from packing.spans import SpanLimits
from packing.window_spans import (
    WINDOW_TOUCHES_INVALID_STATE,
    WINDOW_WITHOUT_FULL_HORIZON,
    Tail,
    WindowSpans,
)
from tests.packing.synthetic import episode_steps

LAYOUT = TokenLayout(image_tokens=7, state_tokens=2, action_tokens=3, extra_tokens=5)
ROOMY = SpanLimits(tokens=1 << 20)

episodes = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=15),
    min_size=1,
    max_size=5,
)


@given(
    episodes,
    st.builds(
        WindowSpans,
        horizon=st.integers(1, 9),
        history=st.integers(1, 4),
        stride=st.integers(1, 4),
        history_stride=st.integers(1, 4),
        tail=st.sampled_from(["short", "drop", "pad"]),
    ),
)
def test_windows_equal_their_definition(
    data: list[list[tuple[int, bool]]], maker: WindowSpans
) -> None:
    steps = episode_steps(
        [len(e) for e in data],
        frames=[[f for f, _ in e] for e in data],
        valid=[[v for _, v in e] for e in data],
    )
    made = maker.make(steps, LAYOUT, ROOMY)
    expected = []
    refused = {WINDOW_TOUCHES_INVALID_STATE: [0] * len(data)}
    if maker.tail == "drop":
        refused[WINDOW_WITHOUT_FULL_HORIZON] = [0] * len(data)
    for number, episode in enumerate(data):
        for now in range(0, len(episode), maker.stride):
            wanted = [now - k * maker.history_stride for k in range(maker.history)]
            observed = sorted(t for t in wanted if t >= 0)
            chunk = list(range(now, now + maker.horizon))
            inside = [t for t in chunk if t < len(episode)]
            if not all(episode[t][1] for t in observed):
                refused[WINDOW_TOUCHES_INVALID_STATE][number] += 1
                continue
            if maker.tail == "drop" and inside != chunk:
                refused[WINDOW_WITHOUT_FULL_HORIZON][number] += 1
                continue
            acted = chunk if maker.tail == "pad" else inside
            images = sum(episode[t][0] for t in observed)
            prefix = 5 + 3 + 7 * images + 2 * len(observed)
            expected.append((number, observed, acted, images, prefix, 3 * len(acted)))
    spans = made.spans
    got = [
        (
            int(spans.episode[i]),
            list(range(spans.start[i], spans.stop[i], spans.stride[i])),
            list(range(spans.action_start[i], spans.action_stop[i])),
            int(spans.images[i]),
            int(spans.prefix_tokens[i]),
            int(spans.action_tokens[i]),
        )
        for i in range(len(spans))
    ]
    assert got == expected
    assert spans.observed.tolist() == [len(observed) for _, observed, *_ in expected]
    assert {reason: counts.tolist() for reason, counts in made.refused.items()} == refused
    assert made.split.tolist() == [0] * len(data)


@given(episodes, st.integers(1, 9), st.integers(1, 9), st.sampled_from(["short", "drop", "pad"]))
def test_windows_no_further_apart_than_the_horizon_act_on_each_step(
    data: list[list[tuple[int, bool]]], horizon: int, stride: int, tail: Tail
) -> None:
    assume(stride <= horizon)
    steps = episode_steps([len(e) for e in data])
    spans = WindowSpans(horizon=horizon, stride=stride, tail=tail).make(steps, LAYOUT, ROOMY).spans
    for number, episode in enumerate(data):
        mine = np.flatnonzero(spans.episode == number)
        acted = {t for i in mine for t in range(spans.action_start[i], spans.action_stop[i])}
        if tail == "drop":
            last = (len(episode) - horizon) // stride  # the last window with a full chunk
            assert acted == set(range(last * stride + horizon)) if last >= 0 else not acted
        else:
            assert acted >= set(range(len(episode)))


@pytest.mark.parametrize("field", ["horizon", "history", "stride", "history_stride"])
def test_parameters_below_one(field: str) -> None:
    options: dict[str, Any] = {"horizon": 1, field: 0}
    with pytest.raises(PackingError, match=field):
        WindowSpans(**options)


def test_parameters_beyond_any_pack() -> None:
    with pytest.raises(PackingError, match="horizon is 16777217: no pack holds more"):
        WindowSpans(horizon=(1 << 24) + 1, tail="pad")


def test_unknown_tail() -> None:
    tail: Any = "repeat"
    with pytest.raises(PackingError, match="unknown tail 'repeat': use short, drop or pad"):
        WindowSpans(horizon=1, tail=tail)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (SpanLimits(tokens=26), r"1 of 6 .* e1, steps \[3, 4\) needs 27 tokens, a pack holds 26"),
        (SpanLimits(tokens=99, images=1), r"1 of 6 .* e1, steps \[3, 4\) needs 2 images"),
        (
            SpanLimits(tokens=99, action_queries=8),
            r"2 of 6 .* e1, steps \[0, 3\) needs 9 action queries, a pack holds 8; raise the",
        ),
    ],
)
def test_window_that_does_not_fit_is_refused_by_name(limits: SpanLimits, message: str) -> None:
    steps = episode_steps([2, 4], frames=[[0, 0], [0, 1, 1, 2]])
    assert WindowSpans(horizon=3).make(steps, LAYOUT, ROOMY).spans.tokens.max() == 27
    with pytest.raises(PackingError, match=message):
        WindowSpans(horizon=3).make(steps, LAYOUT, limits)


def test_padded_window_past_the_budget_is_refused_by_name() -> None:
    with pytest.raises(PackingError, match=r"e0, steps \[0, 9\) needs 44 tokens, a pack holds 43"):
        WindowSpans(horizon=9, tail="pad").make(episode_steps([2]), LAYOUT, SpanLimits(tokens=43))


@given(
    episodes,
    st.integers(1, 9),
    st.integers(1, 4),
    st.sampled_from(["short", "drop", "pad"]),
    st.integers(8, 80),
    st.one_of(st.none(), st.integers(1, 8)),
    st.one_of(st.none(), st.integers(1, 30)),
)
def test_no_window_is_over_a_limit_and_how_many_would_be_is_said(
    data: list[list[tuple[int, bool]]],
    horizon: int,
    history: int,
    tail: Tail,
    budget: int,
    max_images: int | None,
    max_queries: int | None,
) -> None:
    steps = episode_steps(
        [len(e) for e in data],
        frames=[[f for f, _ in e] for e in data],
        valid=[[v for _, v in e] for e in data],
    )
    maker = WindowSpans(horizon=horizon, history=history, tail=tail)
    free = maker.make(steps, LAYOUT, ROOMY).spans
    over = [
        (what, int((held > limit).sum()))
        for what, held, limit in (
            ("tokens", free.tokens, budget),
            ("images", free.images, max_images),
            ("action queries", free.action_tokens, max_queries),
        )
        if limit is not None and (held > limit).any()
    ]
    limits = SpanLimits(tokens=budget, images=max_images, action_queries=max_queries)
    if not over:
        made = maker.make(steps, LAYOUT, limits).spans
        assert made.tokens.tolist() == free.tokens.tolist()
        return
    what, count = over[0]
    with pytest.raises(PackingError, match=rf"^{count} of {len(free)} spans .* {what}, a pack"):
        maker.make(steps, LAYOUT, limits)


@pytest.mark.parametrize("num_steps", [128, 65536])
def test_token_counts_beyond_int32_are_refused_not_wrapped(num_steps: int) -> None:
    layout = TokenLayout(image_tokens=1 << 16, state_tokens=1 << 16, action_tokens=1 << 16)
    steps = episode_steps([num_steps], frames=[[300] * num_steps])
    for maker in (
        WindowSpans(horizon=1 << 24, tail="pad"),
        WindowSpans(horizon=1, history=1 << 15),
    ):
        with pytest.raises(PackingError, match="do not fit into a pack"):
            maker.make(steps, layout, SpanLimits(tokens=1 << 24))

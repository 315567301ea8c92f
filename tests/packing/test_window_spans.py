"""Windows against their definition, step by step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.errors import PackingError
from packing.layout import TokenLayout
from packing.spans import SpanLimits
from packing.window_spans import WINDOW_TOUCHES_INVALID_STATE, WindowSpans
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
    refused = [0] * len(data)
    for number, episode in enumerate(data):
        for now in range(0, len(episode), maker.stride):
            wanted = [now - k * maker.history_stride for k in range(maker.history)]
            observed = sorted(t for t in wanted if t >= 0)
            if not all(episode[t][1] for t in observed):
                refused[number] += 1
                continue
            acted = [t for t in range(now, now + maker.horizon) if t < len(episode)]
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
    assert made.refused[WINDOW_TOUCHES_INVALID_STATE].tolist() == refused
    assert made.split.tolist() == [0] * len(data)


@pytest.mark.parametrize("field", ["horizon", "history", "stride", "history_stride"])
def test_parameters_below_one(field: str) -> None:
    with pytest.raises(PackingError, match=field):
        WindowSpans(**{"horizon": 1, field: 0})


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

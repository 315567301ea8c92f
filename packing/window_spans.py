"""Window spans: an observation, with history, and the chunk of actions that follows it."""

from dataclasses import dataclass

import numpy as np

from packing.errors import PackingError
from packing.layout import TokenLayout
from packing.spans import (
    EpisodeSteps,
    SpanLimits,
    SpanSet,
    cost_spans,
    refuse_over_limits,
    sum_strided,
)

WINDOW_TOUCHES_INVALID_STATE = "window-touches-invalid-state"


@dataclass(frozen=True, kw_only=True)
class WindowSpans:
    """The standard sample of a vision-language-action policy.

    The window at step t observes t and up to `history - 1` earlier steps `history_stride` apart,
    and acts on `[t, min(t + horizon, T))`: near the ends of an episode a window is shorter, steps
    that do not exist are not repeated. A window that observes a step with an invalid state is
    refused and counted.

    Attributes:
        horizon: action steps of a full chunk.
        history: observed steps of a full window, 1 for the current one alone.
        stride: distance of windows in steps; they begin at step 0.
        history_stride: distance of observed steps.
    """

    horizon: int
    history: int = 1
    stride: int = 1
    history_stride: int = 1

    def __post_init__(self) -> None:
        for name in ("horizon", "history", "stride", "history_stride"):
            if getattr(self, name) < 1:
                raise PackingError(f"{name} must be at least 1, is {getattr(self, name)}")

    def make(self, steps: EpisodeSteps, layout: TokenLayout, limits: SpanLimits) -> SpanSet:
        """Spans of all episodes (see `SpanMaker`)."""
        length = steps.num_steps
        windows = -(-length // self.stride)
        episode = np.repeat(np.arange(len(length)), windows)
        nth = np.arange(len(episode)) - np.repeat(np.cumsum(windows) - windows, windows)
        now = nth * self.stride
        past = np.minimum(self.history - 1, now // self.history_stride)
        start = now - past * self.history_stride
        refused = np.zeros(len(length), np.int64)
        if not steps.state_valid.all():
            first = steps.step_offsets[episode] + start
            valid = sum_strided(steps.state_valid, first, past + 1, self.history_stride)
            keep = valid == past + 1
            refused = np.bincount(episode[~keep], minlength=len(length))
            episode, now, start = episode[keep], now[keep], start[keep]
        spans = cost_spans(
            steps,
            layout,
            episode=episode,
            start=start,
            stop=now + 1,
            stride=self.history_stride,
            action_start=now,
            action_stop=np.minimum(now + self.horizon, length[episode]),
        )
        refuse_over_limits(
            spans, steps, limits, "raise the budget or cap, or take less history or horizon"
        )
        return SpanSet(
            spans=spans,
            refused={WINDOW_TOUCHES_INVALID_STATE: refused},
            split=np.zeros(len(length), np.int64),
        )

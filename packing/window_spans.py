"""Window spans: an observation, with history, and the chunk of actions that follows it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from packing.errors import PackingError
from packing.layout import TokenLayout
from packing.settings import MAX_BUDGET
from packing.spans import (
    EpisodeSteps,
    Int64s,
    SpanLimits,
    SpanSet,
    cost_spans,
    refuse_over_limits,
    sum_strided,
)

WINDOW_TOUCHES_INVALID_STATE = "window-touches-invalid-state"
WINDOW_WITHOUT_FULL_HORIZON = "window-without-full-horizon"

Tail = Literal["short", "drop", "pad"]


@dataclass(frozen=True, kw_only=True)
class WindowSpans:
    """The standard sample of a vision-language-action policy.

    The window at step t observes t and up to `history - 1` earlier steps `history_stride` apart,
    and acts on the `horizon` steps from t on. A window that observes a step with an invalid state
    is refused and counted. Near the begin of an episode a window observes fewer steps: those that
    do not exist are neither repeated nor waited for.

    Attributes:
        horizon: action steps of a full chunk.
        history: observed steps of a full window, 1 for the current one alone.
        stride: distance of windows in steps; they begin at step 0.
        history_stride: distance of observed steps.
        tail: what becomes of a window whose chunk would pass the end of its episode of T steps.
            `short` acts on `[t, T)`. `drop` refuses and counts it, so that every chunk is full; the
            steps near the end are then observed by no window, and an episode shorter than the
            horizon by none at all. `pad` keeps the full chunk: the action queries past the end
            carry zeros and weight 0, never repeated values, and cost their tokens. It is what a
            policy with a fixed number of queries attends to at inference.
    """

    horizon: int
    history: int = 1
    stride: int = 1
    history_stride: int = 1
    tail: Tail = "short"

    def __post_init__(self) -> None:
        for name in ("horizon", "history", "stride", "history_stride"):
            value = getattr(self, name)
            if value < 1:
                raise PackingError(f"{name} must be at least 1, is {value}")
            if value > MAX_BUDGET:
                raise PackingError(f"{name} is {value}: no pack holds more than {MAX_BUDGET} steps")
        if self.tail not in {"short", "drop", "pad"}:
            raise PackingError(f"unknown tail {self.tail!r}: use short, drop or pad")

    def make(self, steps: EpisodeSteps, layout: TokenLayout, limits: SpanLimits) -> SpanSet:
        """Spans of all episodes (see `SpanMaker`)."""
        length = steps.num_steps
        windows = -(-length // self.stride)
        episode = np.repeat(np.arange(len(length)), windows)
        nth = np.arange(len(episode)) - np.repeat(np.cumsum(windows) - windows, windows)
        now = nth * self.stride
        past = np.minimum(self.history - 1, now // self.history_stride)
        start = now - past * self.history_stride
        invalid = _observes_invalid(steps, episode, start, past + 1, self.history_stride)
        refused = {
            WINDOW_TOUCHES_INVALID_STATE: np.bincount(episode[invalid], minlength=len(length))
        }
        made = ~invalid
        if self.tail == "drop":
            # A window is counted once, be it refused for both reasons.
            cut = made & (now + self.horizon > length[episode])
            refused[WINDOW_WITHOUT_FULL_HORIZON] = np.bincount(episode[cut], minlength=len(length))
            made &= ~cut
        episode, now, start = episode[made], now[made], start[made]
        stop = now + self.horizon
        spans = cost_spans(
            steps,
            layout,
            episode=episode,
            start=start,
            stop=now + 1,
            stride=self.history_stride,
            action_start=now,
            action_stop=stop if self.tail == "pad" else np.minimum(stop, length[episode]),
        )
        refuse_over_limits(
            spans, steps, limits, "raise the budget or cap, or take less history or horizon"
        )
        return SpanSet(
            spans=spans,
            refused=refused,
            split=np.zeros(len(length), np.int64),
        )


def _observes_invalid(
    steps: EpisodeSteps, episode: Int64s, start: Int64s, observed: Int64s, stride: int
) -> NDArray[np.bool_]:
    """Bool [n]: whether each window observes a step with an invalid state."""
    if steps.state_valid.all():
        return np.zeros(len(episode), np.bool_)
    valid = sum_strided(steps.state_valid, steps.step_offsets[episode] + start, observed, stride)
    return np.asarray(valid != observed)

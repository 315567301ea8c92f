"""Spans: the pieces of episodes that are packed, as columns.

A span observes the steps `range(start, stop, stride)` of one episode and acts on the steps
`[action_start, action_stop)`. Spans are never rows of Python objects: a plan of 1e8 of them is a
handful of numpy arrays.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from packing.errors import PackingError
from packing.layout import TokenLayout

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class EpisodeSteps:
    """What a span maker must know of E episodes with T_e steps each, step arrays concatenated.

    Attributes:
        episode_ids: ids, for messages.
        step_offsets: int64 [E+1], where each episode's steps begin in the arrays below.
        frames: int16 [sum T], cameras that show a frame at the step.
        state_valid: bool [sum T], False where the state could not be filled.
        text: int32 [E], index of the episode's text.
        text_tokens: int32 [E], tokens of that text.
    """

    episode_ids: tuple[str, ...]
    step_offsets: Int64s
    frames: NDArray[np.int16]
    state_valid: NDArray[np.bool_]
    text: Int32s
    text_tokens: Int32s

    def __post_init__(self) -> None:
        episodes, steps = len(self.episode_ids), int(self.step_offsets[-1])
        for name, length in (
            ("step_offsets", episodes + 1),
            ("frames", steps),
            ("state_valid", steps),
            ("text", episodes),
            ("text_tokens", episodes),
        ):
            if getattr(self, name).shape != (length,):
                raise PackingError(f"{name} is {getattr(self, name).shape}, expected ({length},)")

    @property
    def num_steps(self) -> Int64s:
        """int64 [E]: steps of each episode."""
        return np.diff(self.step_offsets)


@dataclass(frozen=True, kw_only=True)
class Spans:
    """n spans as columns, all int32 [n], ordered by episode and start.

    Attributes:
        episode: index of the episode.
        start, stop, stride: observed steps are `range(start, stop, stride)`.
        action_start, action_stop: action steps; they begin inside the episode and end there, or
            past its end where a window maker pads its tail.
        text: index of the span's text.
        images: cameras times observed steps that have a frame.
        prefix_tokens: tokens of text, images, state and extras.
        action_tokens: action queries.
    """

    episode: Int32s
    start: Int32s
    stop: Int32s
    stride: Int32s
    action_start: Int32s
    action_stop: Int32s
    text: Int32s
    images: Int32s
    prefix_tokens: Int32s
    action_tokens: Int32s

    def __post_init__(self) -> None:
        for column in fields(self):
            array: NDArray[Any] = getattr(self, column.name)
            if array.dtype != np.int32 or array.shape != self.episode.shape or array.ndim != 1:
                raise PackingError(
                    f"spans: {column.name} is {array.dtype} {array.shape}, expected int32"
                    f" {self.episode.shape}"
                )

    def __len__(self) -> int:
        return len(self.episode)

    @property
    def tokens(self) -> Int32s:
        """int32 [n]: prefix and action tokens, what a pack's budget counts."""
        return self.prefix_tokens + self.action_tokens

    @property
    def observed(self) -> Int32s:
        """int32 [n]: number of observed steps."""
        return -((self.start - self.stop) // self.stride)

    def take(self, rows: NDArray[Any]) -> "Spans":
        """The spans at `rows` (indices or mask), in that order."""
        return Spans(**{c.name: getattr(self, c.name)[rows] for c in fields(self)})


@dataclass(frozen=True, kw_only=True)
class SpanSet:
    """What a span maker made, and what it would not make.

    Attributes:
        spans: the spans.
        refused: reason -> int64 [E], how many were refused per episode.
        split: int64 [E], pieces beyond the first into which an episode was split.
        masked: int64, rows of the step arrays of `EpisodeSteps` whose state is invalid and which
            spans cross all the same; ascending.
    """

    spans: Spans
    refused: Mapping[str, Int64s] = field(default_factory=dict)
    split: Int64s
    masked: Int64s = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, kw_only=True)
class SpanLimits:
    """What one span may hold at most, so that it fits into a pack; None where there is no cap."""

    tokens: int
    images: int | None = None
    action_queries: int | None = None


class SpanMaker(Protocol):
    """Turns episodes into spans. Frozen dataclasses: their fields are part of the plan's hash."""

    def make(self, steps: EpisodeSteps, layout: TokenLayout, limits: SpanLimits) -> SpanSet:
        """All spans of the episodes, in order; none over the limits.

        Raises:
            PackingError: a span cannot fit, named.
        """


def cost_spans(
    steps: EpisodeSteps,
    layout: TokenLayout,
    *,
    episode: Int64s,
    start: Int64s,
    stop: Int64s,
    stride: int,
    action_start: Int64s,
    action_stop: Int64s,
) -> Spans:
    """Count images and tokens of spans given by their steps (all int64 [n])."""
    observed = -((start - stop) // stride)
    first = steps.step_offsets[episode] + start
    images = sum_strided(steps.frames, first, observed, stride).astype(np.int32)
    queries = layout.action_tokens * (action_stop - action_start)
    return Spans(
        episode=episode.astype(np.int32),
        start=start.astype(np.int32),
        stop=stop.astype(np.int32),
        stride=np.full(len(start), stride, np.int32),
        action_start=action_start.astype(np.int32),
        action_stop=action_stop.astype(np.int32),
        text=steps.text[episode],
        images=images,
        prefix_tokens=layout.prefix_tokens(
            steps.text_tokens[episode], images, observed.astype(np.int32)
        ),
        action_tokens=np.minimum(queries, 1 << 29).astype(np.int32),
    )


def sum_strided(values: NDArray[Any], first: Int64s, count: Int64s, stride: int) -> Int64s:
    """For each span the sum of `values[first : first + count*stride : stride]`, int64 [n]."""
    if stride == 1:
        total = np.zeros(len(values) + 1, np.int64)
        np.cumsum(values, dtype=np.int64, out=total[1:])
        return np.asarray(total[first + count] - total[first])
    # One running sum per phase of the stride: column j sums values[j], values[j + stride], ...
    rows = -(-len(values) // stride) + 1
    grid = np.zeros((rows + 1) * stride, np.int64)
    grid[stride : stride + len(values)] = values
    total = np.cumsum(grid.reshape(rows + 1, stride), axis=0).ravel()
    return np.asarray(total[first + count * stride] - total[first])


def refuse_over_limits(spans: Spans, steps: EpisodeSteps, limits: SpanLimits, advice: str) -> None:
    """Raise where a span alone is more than a pack may hold, naming the worst one.

    Raises:
        PackingError: with the episode, its steps, what it holds, the limit and `advice`.
    """
    for what, held, limit in (
        ("tokens", spans.tokens, limits.tokens),
        ("images", spans.images, limits.images),
        ("action queries", spans.action_tokens, limits.action_queries),
    ):
        if limit is None or not len(spans) or int(held.max()) <= limit:
            continue
        worst = int(held.argmax())
        raise PackingError(
            f"{int((held > limit).sum())} of {len(spans)} spans do not fit into a pack: episode"
            f" {steps.episode_ids[spans.episode[worst]]}, steps [{spans.start[worst]},"
            f" {max(spans.stop[worst], spans.action_stop[worst])}) needs {held[worst]} {what}, a"
            f" pack holds {limit}; {advice}"
        )

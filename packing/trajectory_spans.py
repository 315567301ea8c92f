"""Trajectory spans: whole episodes, split where they are longer than a pack or have a gap."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from packing.errors import PackingError
from packing.layout import TokenLayout
from packing.spans import (
    EpisodeSteps,
    Int64s,
    SpanLimits,
    SpanSet,
    cost_spans,
    refuse_over_limits,
)

STEP_WITH_INVALID_STATE = "step-with-invalid-state"

_WHOLE = "leave such episodes out of the selection, or let them be split (split full or even)"


@dataclass(frozen=True, kw_only=True)
class TrajectorySpans:
    """Each episode as one span, or as few pieces where it must be split.

    Every step acts; every `observe_every`-th step, from the first of the piece on, is observed.
    A span does not cross steps whose state is invalid unless told: the episode is split around
    them and the invalid steps are refused and counted.

    Attributes:
        max_steps: longest piece in steps, or None for the longest that fits into a pack with the
            cameras and the text of its episode.
        observe_every: distance of observed steps.
        split: `full` makes pieces of the longest length and one of what remains, which pack well;
            `even` makes pieces of equal length (to a step), none of which is a stub without
            context, but which may leave much of a pack empty; `refuse` splits nothing: a trajectory
            longer than `max_steps` or a pack is an error that names it.
        across_gaps: let a span run across invalid states between valid ones. They are observed with
            a masked state (`state_dim_mask` False, values 0), and the plan lists them; those
            before the first and after the last valid state stay refused.
    """

    max_steps: int | None = None
    observe_every: int = 1
    split: Literal["full", "even", "refuse"] = "full"
    across_gaps: bool = False

    def __post_init__(self) -> None:
        if self.observe_every < 1:
            raise PackingError(f"observe_every must be at least 1, is {self.observe_every}")
        if self.max_steps is not None and self.max_steps < 1:
            raise PackingError(f"max_steps must be at least 1, is {self.max_steps}")
        if self.split not in {"full", "even", "refuse"}:
            raise PackingError(f"unknown split {self.split!r}: use full, even or refuse")

    def make(self, steps: EpisodeSteps, layout: TokenLayout, limits: SpanLimits) -> SpanSet:
        """Spans of all episodes (see `SpanMaker`)."""
        episode, start, stop = self._trajectories(steps)
        run, begin, end = self._cut(steps, layout, limits, episode, start, stop)
        spans = cost_spans(
            steps,
            layout,
            episode=episode[run],
            start=begin,
            stop=end,
            stride=self.observe_every,
            action_start=begin,
            action_stop=end,
        )
        advice = _WHOLE if self.split == "refuse" else f"lower max_steps ({self.max_steps})"
        refuse_over_limits(spans, steps, limits, f"raise the budget or cap, or {advice}")
        pieces = np.bincount(spans.episode, minlength=len(steps.episode_ids))
        covered = _covered(steps, episode, start, stop)
        return SpanSet(
            spans=spans,
            refused={
                STEP_WITH_INVALID_STATE: np.add.reduceat(
                    ~covered, steps.step_offsets[:-1], dtype=np.int64
                )
            },
            split=np.maximum(pieces - 1, 0),
            masked=np.flatnonzero(covered & ~steps.state_valid),
        )

    def _trajectories(self, steps: EpisodeSteps) -> tuple[Int64s, Int64s, Int64s]:
        """What must not be split without need: episode, start and stop inside it, int64 [R]."""
        episode, start, stop = _valid_runs(steps)
        if not self.across_gaps:
            return episode, start, stop
        first = np.flatnonzero(np.diff(episode, prepend=-1))
        last = np.flatnonzero(np.diff(episode, append=-1))
        return episode[first], start[first], stop[last]

    def _cut(
        self,
        steps: EpisodeSteps,
        layout: TokenLayout,
        limits: SpanLimits,
        episode: Int64s,
        start: Int64s,
        stop: Int64s,
    ) -> tuple[Int64s, Int64s, Int64s]:
        """Pieces of trajectories: which one, and start and stop in its episode, int64 [n]."""
        if self.split == "refuse":
            self._require_whole(steps, episode, start, stop)
            return np.arange(len(episode)), start, stop
        longest = self._longest(steps, layout, limits)[episode]
        pieces = -(-(stop - start) // longest)
        run = np.repeat(np.arange(len(pieces)), pieces)
        nth = np.arange(len(run)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        length = (stop - start)[run]
        if self.split == "even":
            begin, end = nth * length // pieces[run], (nth + 1) * length // pieces[run]
        else:
            begin = nth * longest[run]
            end = np.minimum(begin + longest[run], length)
        return run, start[run] + begin, start[run] + end

    def _require_whole(
        self, steps: EpisodeSteps, episode: Int64s, start: Int64s, stop: Int64s
    ) -> None:
        """Raise where a trajectory is longer than `max_steps`, naming the longest."""
        length = stop - start
        if self.max_steps is None or not len(length) or int(length.max()) <= self.max_steps:
            return
        worst = int(length.argmax())
        raise PackingError(
            f"{int((length > self.max_steps).sum())} of {len(length)} trajectories are longer than"
            f" max_steps {self.max_steps}: episode {steps.episode_ids[episode[worst]]}, steps"
            f" [{start[worst]}, {stop[worst]}); raise it, {_WHOLE}"
        )

    def _longest(self, steps: EpisodeSteps, layout: TokenLayout, limits: SpanLimits) -> Int64s:
        """int64 [E]: the longest piece of each episode in steps."""
        if self.max_steps is not None:
            return np.full(len(steps.episode_ids), self.max_steps, np.int64)
        every = self.observe_every
        cameras = np.maximum.reduceat(steps.frames, steps.step_offsets[:-1]).astype(np.int64)
        per_observation = layout.tokens_per_image * cameras + layout.state_tokens
        block = per_observation + every * layout.action_tokens
        room = limits.tokens - layout.extra_tokens - steps.text_tokens
        left = room % np.maximum(block, 1) - per_observation
        tail = np.clip(left // max(layout.action_tokens, 1), 0, every - 1)
        if layout.action_tokens == 0:
            tail = np.where(left >= 0, every - 1, 0)
        unbounded = np.int64(1) << 31
        longest = np.where(block > 0, room // np.maximum(block, 1) * every + tail, unbounded)
        if limits.images is not None:
            by_images = limits.images // np.maximum(cameras, 1) * every
            longest = np.minimum(longest, np.where(cameras > 0, by_images, unbounded))
        if limits.action_queries is not None and layout.action_tokens:
            longest = np.minimum(longest, limits.action_queries // layout.action_tokens)
        if longest.size and int(longest.min()) < 1:
            worst = int(longest.argmin())
            raise PackingError(
                f"a single step of episode {steps.episode_ids[worst]} does not fit into a pack: it"
                f" has {steps.text_tokens[worst]} text tokens and {cameras[worst]} images of"
                f" {layout.image_tokens} tokens; the pack holds {limits.tokens} tokens"
                + (f" and {limits.images} images" if limits.images is not None else "")
                + "; raise the budget or cap"
            )
        return np.asarray(longest)


def _covered(
    steps: EpisodeSteps, episode: Int64s, start: Int64s, stop: Int64s
) -> NDArray[np.bool_]:
    """Bool [sum T]: whether a step is inside one of these disjoint pieces."""
    offset = steps.step_offsets[episode]
    edges = np.zeros(len(steps.state_valid) + 1, np.int8)
    edges[offset + start] += 1
    # A piece may begin where the one before it ends.
    edges[offset + stop] -= 1
    return np.cumsum(edges[:-1], dtype=np.int8) > 0


def _valid_runs(steps: EpisodeSteps) -> tuple[Int64s, Int64s, Int64s]:
    """Maximal runs of steps with valid state: episode, start and stop inside it, int64 [R]."""
    first = np.zeros(len(steps.state_valid), np.bool_)
    first[steps.step_offsets[:-1]] = True
    last = np.zeros(len(steps.state_valid), np.bool_)
    last[steps.step_offsets[1:] - 1] = True
    valid = steps.state_valid
    begins = np.flatnonzero(valid & (first | ~np.concatenate([[False], valid[:-1]])))
    ends = np.flatnonzero(valid & (last | ~np.concatenate([valid[1:], [False]]))) + 1
    episode = np.searchsorted(steps.step_offsets, begins, side="right") - 1
    offset = steps.step_offsets[episode]
    return episode.astype(np.int64), begins - offset, ends - offset

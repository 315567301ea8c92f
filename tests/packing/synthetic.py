"""Spans and episode steps without a lake."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packing.runs import cut_runs, runs_of
from packing.spans import EpisodeSteps, Spans


def spans_of_lengths(
    tokens: Sequence[int] | NDArray[Any],
    *,
    images: Sequence[int] | NDArray[Any] | None = None,
    queries: Sequence[int] | NDArray[Any] | None = None,
    episode: Sequence[int] | NDArray[Any] | None = None,
    step: Sequence[int] | NDArray[Any] | None = None,
) -> Spans:
    """One-step spans of given token counts; each in an episode of its own unless told."""
    n = len(tokens)

    def column(values: Any) -> NDArray[np.int32]:
        return np.asarray(values, np.int32)

    asked = column(np.zeros(n) if queries is None else queries)
    at = column(np.zeros(n) if step is None else step)
    return Spans(
        episode=column(np.arange(n) if episode is None else episode),
        start=at,
        stop=at + np.int32(1),
        stride=np.ones(n, np.int32),
        action_start=at,
        action_stop=at + asked,
        text=np.zeros(n, np.int32),
        images=column(np.zeros(n) if images is None else images),
        prefix_tokens=column(tokens) - asked,
        action_tokens=asked,
    )


def episode_steps(
    lengths: Sequence[int],
    *,
    frames: Sequence[Sequence[int]] | None = None,
    valid: Sequence[Sequence[bool]] | None = None,
    text_tokens: Sequence[int] | None = None,
) -> EpisodeSteps:
    """Episodes of the given lengths; one camera, all valid and three text tokens unless told."""
    total = sum(lengths)
    flat_frames = np.ones(total) if frames is None else np.concatenate([*map(np.array, frames)])
    flat_valid = np.ones(total) if valid is None else np.concatenate([*map(np.array, valid)])
    texts = [3] * len(lengths) if text_tokens is None else list(text_tokens)
    return EpisodeSteps(
        episode_ids=tuple(f"e{number}" for number in range(len(lengths))),
        step_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        frames=flat_frames.astype(np.int16),
        state_valid=flat_valid.astype(np.bool_),
        text=np.arange(len(lengths), dtype=np.int32),
        text_tokens=np.asarray(texts, np.int32),
    )


def lognormal_lengths(n: int, *, seed: int = 0, limit: int = 8192, step: int = 1) -> NDArray[Any]:
    """Lengths as episodes have them: mean about 400 `step`s, long tail, at most `limit`."""
    rng = np.random.default_rng(seed)
    lengths = np.rint(rng.lognormal(5.67, 0.8, n)).clip(16).astype(np.int64) * step
    return np.minimum(lengths, limit)


def runs_of_steps(spans: Spans, run_steps: int) -> NDArray[np.int64]:
    """Runs of so many steps of each episode, where every picture is a key frame."""
    lengths = np.zeros(int(spans.episode.max()) + 1, np.int64)
    np.maximum.at(lengths, spans.episode, spans.stop)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    begins = cut_runs(np.ones(int(offsets[-1]), np.bool_), offsets, run_steps)
    return runs_of(spans, begins, offsets)

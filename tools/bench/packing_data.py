"""What the packing bench packs: synthetic trajectories and windows of lognormal length.

Lengths of robot episodes are skewed: most are short, a few many times longer. A lognormal of mean
400 steps and sigma 0.8, of at least 16 steps, stands for them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from packing.layout import TokenLayout
from packing.spans import EpisodeSteps, Int32s, Int64s, SpanLimits, Spans
from packing.window_spans import WindowSpans

MEAN_STEPS: Final = 400.0
SIGMA: Final = 0.8
LEAST_STEPS: Final = 16
_ROWS: Final = 1 << 20  # made at a time, so that 1e8 of them need no memory of their own

Overflow = Literal["split", "truncate", "drop"]


def lognormal_steps(
    n: int, rng: np.random.Generator, *, mean: float = MEAN_STEPS, sigma: float = SIGMA
) -> Int64s:
    """Lengths of n episodes in steps, int64 [n]."""
    drawn = rng.lognormal(math.log(mean) - sigma**2 / 2, sigma, n)
    return np.maximum(np.rint(drawn), LEAST_STEPS).astype(np.int64)


def split_lengths(lengths: Int64s, budget: int) -> Int64s:
    """Pieces of at most `budget` tokens, int64 [m], row after row.

    What is longer than a pack becomes the full packs that it holds and a rest, as `TrajectorySpans`
    with `split="full"` and TRL's `bfd_split` do it.
    """
    pieces = -(-lengths // budget)
    row = np.repeat(np.arange(len(lengths)), pieces)
    last = np.cumsum(pieces) - 1
    out = np.full(len(row), budget, np.int64)
    out[last] = lengths - (pieces - 1) * budget
    return out


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """Exactly n spans.

    Attributes:
        tokens: int32 [n], none longer than the budget.
        rows: episodes that they are pieces of.
        lost: share of the tokens of these episodes that would be lost if what is longer than the
            budget was cut off (`truncate`) or left out (`drop`), 0 for `split`.
    """

    tokens: Int32s
    rows: int
    lost: dict[Overflow, float]

    def spans(self) -> Spans:
        """As spans of one episode each; all columns but the tokens are one number in memory."""
        zero, one = (np.broadcast_to(np.int32(value), self.tokens.shape) for value in (0, 1))
        return Spans(
            episode=np.arange(len(self.tokens), dtype=np.int32),
            start=zero,
            stop=one,
            stride=one,
            action_start=zero,
            action_stop=zero,
            text=zero,
            images=zero,
            prefix_tokens=self.tokens,
            action_tokens=zero,
        )


def trajectories(n: int, *, budget: int, tokens_per_step: int, seed: int = 0) -> Trajectories:
    """Synthetic trajectories, split at the budget; the last one is cut at the n-th span."""
    tokens = np.empty(n, np.int32)
    at = rows = total = beyond = dropped = 0
    for steps in _chunks(seed):
        lengths = steps * tokens_per_step
        pieces = split_lengths(lengths, budget)[: n - at]
        tokens[at : at + len(pieces)] = pieces
        at += len(pieces)
        used = lengths if at < n else lengths[: _rows_of(lengths, budget, len(pieces))]
        rows += len(used)
        total += int(used.sum())
        beyond += int(np.maximum(used - budget, 0).sum())
        dropped += int(used[used > budget].sum())
        if at == n:
            break
    lost: dict[Overflow, float] = {
        "split": 0.0,
        "truncate": beyond / total,
        "drop": dropped / total,
    }
    return Trajectories(tokens=tokens, rows=rows, lost=lost)


def _chunks(seed: int) -> Iterator[Int64s]:
    rng = np.random.default_rng(seed)
    while True:
        yield lognormal_steps(_ROWS, rng)


def _rows_of(lengths: Int64s, budget: int, pieces: int) -> int:
    """How many rows the first `pieces` pieces come from."""
    return int(np.searchsorted(np.cumsum(-(-lengths // budget)), pieces)) + 1


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Window spans of synthetic episodes, every step of which is filmed.

    Attributes:
        spans: one window per step.
        step_offsets: int64 [E+1], where the steps of each episode begin.
        gop: int64 [E], distance of key frames of each episode.
        layout: what they cost.
        cameras: that show a frame at every step.
    """

    spans: Spans
    step_offsets: Int64s
    gop: Int64s
    layout: TokenLayout
    cameras: int

    @property
    def groups(self) -> NDArray[np.bool_]:
        """Bool [sum T]: steps with a key frame."""
        length = np.diff(self.step_offsets)
        step = np.arange(int(self.step_offsets[-1])) - np.repeat(self.step_offsets[:-1], length)
        return np.asarray(step % np.repeat(self.gop, length) == 0)


def windows(episodes: int, *, cameras: int = 2, horizon: int = 50, seed: int = 0) -> Windows:
    """Windows of a layout as of vision-language-action models: 577 to 592 tokens each.

    256 tokens per image of two cameras, 14 to 29 of text, one of state and 50 actions; episodes of
    200 steps in the mean (sigma 0.5); key frames every 8, 9 or 10 steps, drawn per episode.
    """
    rng = np.random.default_rng(seed)
    length = lognormal_steps(episodes, rng, mean=200.0, sigma=0.5)
    offsets = np.concatenate([[0], np.cumsum(length)])
    layout = TokenLayout(name="bench", image_tokens=256, state_tokens=1, action_tokens=1)
    steps = EpisodeSteps(
        episode_ids=tuple(f"episode-{number}" for number in range(episodes)),
        step_offsets=offsets,
        frames=np.full(offsets[-1], cameras, np.int16),
        state_valid=np.ones(offsets[-1], np.bool_),
        text=np.arange(episodes, dtype=np.int32),
        text_tokens=rng.integers(14, 30, episodes).astype(np.int32),
    )
    made = WindowSpans(horizon=horizon).make(steps, layout, SpanLimits(tokens=1 << 14))
    return Windows(
        spans=made.spans,
        step_offsets=offsets,
        gop=rng.integers(8, 11, episodes),
        layout=layout,
        cameras=cameras,
    )

"""What each step gets of a stream."""

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ingest.alignment.notes import Notes
from ingest.alignment.ordered import OrderedStream
from ingest.alignment.resample import NO_SAMPLE_NS, Chosen, hold, linear, nearest
from ingest.alignment.timing import percentile_ns
from ingest.timed import TimedCamera, TimedValues

_FEW_LOSSES: Final = 0.9  # of the rate of the median gap


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A stream on the grid.

    Attributes:
        values: [T, *shape], NaN, 0 or "" where not valid; of a camera int32 [T], the frame, -1
            where not valid.
        valid: bool [T].
        age_ns: int64 [T], see `Chosen`.
    """

    values: NDArray[Any]
    valid: NDArray[np.bool_]
    age_ns: NDArray[np.int64]

    def at(self, kept: NDArray[np.bool_]) -> Self:
        """Those of the steps where `kept`, bool [T], is true."""
        if kept.all():
            return self
        return type(self)(
            values=self.values[kept], valid=self.valid[kept], age_ns=self.age_ns[kept]
        )


def place(each: OrderedStream, grid: NDArray[np.int64], action_lag: int) -> Steps:
    """Choose or mix what each step gets.

    Args:
        each: the stream.
        grid: int64 [T], the steps.
        action_lag: an action at step t is what step t + `action_lag` has; the last have none.
    """
    stream = each.stream
    if isinstance(stream, TimedCamera):
        frames = stream.video.index.step_to_frame[each.samples]
        found, chosen = _values(each, frames, grid)
        return _steps(found, chosen, np.int32(-1), 0, len(grid))
    native = stream.values.astype(stream.values.dtype.newbyteorder("="), copy=False)
    lag = min(action_lag, len(grid)) if stream.role == "action" else 0
    found, chosen = _values(each, native[each.samples], grid[lag:])
    return _steps(found, chosen, _nothing(stream), lag, len(grid))


def _values(
    each: OrderedStream, values: NDArray[Any], grid: NDArray[np.int64]
) -> tuple[NDArray[Any], Chosen]:
    if each.method == "linear":
        rotation = isinstance(each.stream, TimedValues) and each.stream.quaternion is not None
        return linear(values, each.stamps, grid, each.max_age_ns, rotation=rotation)
    choose = nearest if each.method == "nearest" else hold
    chosen = choose(each.stamps, grid, each.max_age_ns)
    return values[chosen.sample], chosen


def _steps(found: NDArray[Any], chosen: Chosen, nothing: object, lag: int, num_steps: int) -> Steps:
    """The steps of a grid of `num_steps`, whose last `lag` have nothing."""
    values = np.empty((num_steps, *found.shape[1:]), found.dtype)
    valid = np.zeros(num_steps, np.bool_)
    age_ns = np.full(num_steps, NO_SAMPLE_NS)
    there = num_steps - lag
    values[:there], valid[:there], age_ns[:there] = found, chosen.valid, chosen.age_ns
    values[~valid] = nothing
    return Steps(values=values, valid=valid, age_ns=age_ns)


def _nothing(stream: TimedValues) -> object:
    if stream.is_text:
        return ""
    return np.nan if stream.values.dtype.kind == "f" else 0


def tell_ages(each: OrderedStream, steps: Steps, notes: Notes) -> None:
    """Report how a stream came, how old its samples are, and the steps that lack one."""
    has = steps.age_ns != NO_SAMPLE_NS
    ages = np.sort(steps.age_ns[has])
    age = f"; at the steps {percentile_ns(ages, 95) / 1e6:.3f} ms old (p95)" if len(ages) else ""
    notes.add("info", "stream-timing", each.name, f"{each.timing}{age}")
    real, nominal = each.timing.real_hz, each.timing.nominal_hz
    if real is not None and nominal is not None and real < _FEW_LOSSES * nominal:
        notes.add(
            "warning",
            "rate-below-nominal",
            each.name,
            f"{real:.2f} samples/s, {nominal:.2f} by the median gap: samples were lost, paused or"
            " came in bursts (then max_age_ns, or another clock, may suit it better)",
        )
    if steps.valid.all():
        return
    old = steps.age_ns[~steps.valid & has]
    oldest = f", the oldest {int(abs(old).max()) / 1e6:.1f} ms away" if len(old) else ""
    detail = (
        f"{int((~steps.valid).sum())} of {len(steps.valid)} steps have no sample that is fresh"
        f" enough{oldest}, first step {int(np.argmin(steps.valid))}"
    )
    if steps.valid.any():
        notes.add("warning", "steps-without-sample", each.name, f"{detail}; marked, not filled")
    else:
        notes.add("error", "no-step", each.name, f"{detail}; the episode goes in without it")

"""Which steps a sample shows, relative to its own: deltas in seconds as whole steps of the grid.

A delta names a step, never a time to search near: frames are found by number, so no tolerance has
to be guessed. Deltas are accepted when they are the time of a whole step to the nanosecond, which
is the lake's unit of time; `i / fps` always is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loader.errors import LoaderError
from loader.windows.index import WindowIndex
from loader.windows.keys import COUNTERS, SpecKeys

Steps: TypeAlias = NDArray[np.int64]

_NS: Final = 1_000_000_000
_FAR: Final = 1 << 60  # steps, beyond which int64 could overflow
_ULPS: Final = 4 * float(np.finfo(np.float64).eps)


def whole_steps(key: str, deltas_s: Iterable[float], fps: float) -> Steps:
    """int64 [n]: deltas in seconds as steps at a rate of `fps`.

    Args:
        key: for messages.
        deltas_s: seconds, negative for the past.
        fps: steps per second.

    Raises:
        LoaderError: a delta is not the time of a whole step.
    """
    steps = []
    for delta_s in deltas_s:
        exact = _number(delta_s) * fps
        if not abs(exact) < _FAR:
            raise LoaderError(f"delta_timestamps of {key}: {delta_s} is not a time in seconds")
        nearest = round(exact)
        off_s = abs(float(delta_s) - nearest / fps)
        if off_s * _NS > 1 + _ULPS * abs(float(delta_s)) * _NS:
            raise LoaderError(
                f"delta_timestamps of {key}: {delta_s} s is {exact:.12g} steps at"
                f" {fps:.9g} steps/s, not a whole number; the nearest is {nearest} steps ="
                f" {nearest / fps!r} s (write {nearest} / fps, or use delta_steps)"
            )
        steps.append(nearest)
    return np.array(steps, np.int64)


class Deltas:
    """The deltas of a dataset, in seconds for some keys and in steps for others.

    Attributes:
        in_seconds: key -> seconds.
        in_steps: key -> whole steps.

    Raises:
        LoaderError: a key is given both ways, has no list of deltas, or a step is not a whole
            number.
    """

    def __init__(
        self,
        in_seconds: Mapping[str, Sequence[float]] | None,
        in_steps: Mapping[str, Sequence[int]] | None,
    ) -> None:
        self.in_seconds = _lists("delta_timestamps", in_seconds)
        self.in_steps = _lists("delta_steps", in_steps)
        if twice := sorted(self.in_seconds.keys() & self.in_steps.keys()):
            raise LoaderError(
                f"{', '.join(twice)}: give delta_timestamps (seconds) or delta_steps, not both"
            )
        for key, deltas in (*self.in_seconds.items(), *self.in_steps.items()):
            if not deltas:
                raise LoaderError(f"{key}: an empty list of deltas; leave the key out, or use [0]")
        for key, steps in self.in_steps.items():
            if not all(_number(step).is_integer() and abs(step) < _FAR for step in steps):
                raise LoaderError(f"delta_steps of {key}: {list(steps)} are not all whole numbers")

    @property
    def keys(self) -> list[str]:
        """Every key that has deltas."""
        return [*self.in_seconds, *self.in_steps]

    def at(self, fps: float | None, keys: Iterable[str], where: str) -> dict[str, Steps]:
        """The steps of those `keys` that have deltas, for episodes of a rate.

        Args:
            fps: steps per second, None where the episodes have no nominal rate.
            keys: keys that the episodes have.
            where: names the episodes in messages.

        Raises:
            LoaderError: see `whole_steps`; or seconds are asked for without a rate.
        """
        found = {}
        for key in keys:
            if key in self.in_steps:
                found[key] = np.array(self.in_steps[key], np.int64)
            elif key in self.in_seconds:
                if fps is None:
                    raise LoaderError(
                        f"{where} has no nominal rate, so delta_timestamps of {key} cannot be"
                        " steps; use delta_steps"
                    )
                try:
                    found[key] = whole_steps(key, self.in_seconds[key], fps)
                except LoaderError as error:
                    raise LoaderError(f"{where}: {error}") from error
        return found


def _lists(name: str, given: Mapping[str, Sequence[Any]] | None) -> dict[str, tuple[Any, ...]]:
    try:
        return {key: tuple(deltas) for key, deltas in (given or {}).items()}
    except (TypeError, AttributeError) as error:
        raise LoaderError(f"{name}={given!r}: a list for each key, as {{'action': [0]}}") from error


def _number(delta: object) -> float:
    """A delta as a number; NaN where it is none."""
    try:
        return float(delta)  # type: ignore[arg-type]  # what it is not raises
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def resolve_deltas(
    index: WindowIndex, keys: Sequence[SpecKeys], deltas: Deltas
) -> dict[tuple[int, float | None], dict[str, Steps]]:
    """The steps of each spec's keys at each rate that its episodes have.

    Raises:
        LoaderError: no episode has a key, or see `Deltas.at`.
    """
    known = {*COUNTERS, *(key for spec in keys for key in spec.all)}
    if unknown := [key for key in deltas.keys if key not in known]:
        raise LoaderError(
            f"deltas of {', '.join(unknown)}: samples have no such key; they have"
            f" {', '.join(sorted(known))}"
        )
    found: dict[tuple[int, float | None], dict[str, Steps]] = {}
    rates = index.episodes["fps"].to_pylist()
    for row, kind in enumerate(zip(index.spec.tolist(), rates, strict=True)):
        if kind not in found:
            spec, fps = kind
            having = [*COUNTERS, *keys[spec].all]
            found[kind] = deltas.at(fps, having, f"episode {index.episode_id(row)}")
    return found

"""The span makers by the names under which plans record them."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from packing.errors import PlanError
from packing.spans import SpanMaker
from packing.trajectory_spans import TrajectorySpans
from packing.window_spans import WindowSpans

_KINDS: Final[Mapping[str, type[TrajectorySpans] | type[WindowSpans]]] = {
    "trajectory": TrajectorySpans,
    "window": WindowSpans,
}


def describe_spans(spans: SpanMaker) -> dict[str, Any]:
    """Kind and parameters of a span maker, as a plan records them.

    Raises:
        PlanError: none of this package, which a plan could not name.
    """
    for kind, maker in _KINDS.items():
        if isinstance(spans, maker):
            return {"kind": kind, **asdict(spans)}
    raise PlanError(f"unknown span maker {type(spans).__name__}; use {' or '.join(_KINDS)} spans")


def span_maker_of(description: Mapping[str, Any]) -> SpanMaker:
    """The inverse of `describe_spans`.

    Raises:
        PlanError: an unknown kind or parameter.
    """
    parameters = dict(description)
    kind = parameters.pop("kind", None)
    if kind not in _KINDS:
        raise PlanError(f"unknown span maker {kind!r}; there are: {', '.join(_KINDS)}")
    try:
        return _KINDS[kind](**parameters)
    except TypeError as error:
        raise PlanError(f"{kind} spans: {error}") from error

"""Names and roles of RLDS signals, and what the flags of its steps say.

Source: google-research/rlds (README): action t is applied to observation t and reward t follows;
on the step with `is_last` action, reward and discount are not valid; `is_last` without
`is_terminal` is a truncation.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.rlds.features import STEPS
from lake.spec import Role, canonical_name

CONVENTIONS: Final = {
    "action_timing": "action[t] is applied after observation[t]; reward[t] follows action[t]",
    "last_step": "action, reward and discount of the step with is_last are not valid (RLDS)",
}
_OBSERVATION: Final = "observation/"
_ROLES: Final[dict[str, Role]] = {"reward": "reward", "is_terminal": "done"}
_NEGLIGIBLE: Final = 1e-4
_SUCCESS: Final = ("success", "is_success")


def stream_name(path: str) -> str:
    """Canonical name: `steps/observation/state` -> `state`, `episode_metadata/x` in full."""
    return canonical_name(path.removeprefix(STEPS).removeprefix(_OBSERVATION).replace("/", "_"))


def stream_role(path: str, row_shape: tuple[int, ...], paths: Collection[str]) -> Role:
    """Role of numbers.

    Where a dataset has a signal called `action` or `observation/state`, that alone is the policy's;
    else all actions, and all observations that are scalars or vectors and no embeddings of text.
    """
    if not path.startswith(STEPS):
        return "other"
    inner = path.removeprefix(STEPS)
    if inner == "action" or (inner.startswith("action/") and STEPS + "action" not in paths):
        return "action"
    if inner.startswith(_OBSERVATION):
        state = STEPS + _OBSERVATION + "state"
        is_state = path == state or state not in paths
        return "state" if is_state and len(row_shape) <= 1 and "embedding" not in inner else "other"
    return _ROLES.get(inner, "other")


def success_of(arrays: Mapping[str, NDArray[Any]]) -> bool | None:
    """Outcome where the episode's metadata states one as a bool."""
    for name, values in arrays.items():
        is_flag = values.dtype == np.bool_ and values.ndim == 1 and not name.startswith(STEPS)
        if is_flag and name.rpartition("/")[2] in _SUCCESS:
            return bool(values[0])
    return None


def told_by_flags(arrays: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, str, str]]:
    """Severity, reason and sentence for what the flags and the first action say.

    Args:
        arrays: values by source name.
    """
    first, last = _flag(arrays, "is_first"), _flag(arrays, "is_last")
    if first is not None and (not first[0] or first[1:].any()):
        yield (
            "warning",
            "is-first-differs",
            f"is_first is set at steps {_listed(first)}, expected at step 0 alone",
        )
    if last is not None and last[-1] and not last[:-1].any():
        yield (
            "info",
            "last-step-not-valid",
            "action, reward and discount of the last step (is_last) are not valid; they are kept",
        )
    elif last is not None:
        yield (
            "warning",
            "is-last-differs",
            f"is_last is set at steps {_listed(last)}, expected at the last of {len(last)} alone",
        )
    movements = [np.abs(values).max(axis=1, initial=0.0) for values in _movements(arrays)]
    size = np.max(movements, axis=0) if movements else np.zeros(1)
    if size[0] <= _NEGLIGIBLE * size.max() > 0:
        yield "info", "zero-first-action", "the first action moves nothing; it is kept"


def _movements(arrays: Mapping[str, NDArray[Any]]) -> Iterator[NDArray[np.float64]]:
    """Actions [T, n] without the gripper: the last element of a whole action, a part's name."""
    for name, values in arrays.items():
        is_action = (name + "/").startswith(STEPS + "action/") and values.dtype.kind in "fiu"
        if is_action and "gripper" not in name:
            flat = values.reshape(len(values), -1).astype(np.float64)
            yield flat[:, : max(1, flat.shape[1] - 1)] if name == STEPS + "action" else flat


def _flag(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.bool_] | None:
    values = arrays.get(STEPS + name)
    return values.astype(np.bool_) if values is not None and values.ndim == 1 else None


def _listed(flags: NDArray[np.bool_]) -> str:
    steps = np.flatnonzero(flags).tolist()
    return ", ".join(map(str, steps[:5])) + (", ..." if len(steps) > 5 else "") or "none"

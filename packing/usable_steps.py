"""Which steps can be trained on: recorded as valid, and finite in every element.

A NaN in an action would make the loss of its whole training step NaN, whatever the recording says
of its validity, so both count alike.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lake.read import Signals, read_signals
from lake.spec import Spec
from lake.store import Lake
from packing.seeded import chunks

_CHUNK: Final = 256


def usable_steps(
    lake: Lake,
    rows: pa.Table,
    spec: NDArray[np.int32],
    specs: Sequence[Spec],
    features: Sequence[tuple[str, ...]],
    offsets: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """The steps at which all chosen features are valid and finite.

    Only episodes of whose steps the lake's statistics left out some are read.

    Args:
        lake: pinned to the versions of the plan.
        rows: episodes, with `episode_id` and `address`.
        spec: int32 [episodes], index into `specs`.
        specs: of the lake.
        features: names of the chosen features, per spec.
        offsets: int64 [episodes + 1], first step of each episode among all steps.

    Returns:
        bool [sum T].
    """
    usable = np.ones(offsets[-1], np.bool_)
    addresses = rows["address"].to_pylist()
    episode_ids = rows["episode_id"].to_pylist()
    for number, names in enumerate(features):
        suspects = _left_out(lake, specs[number], names)
        read = [
            row for row in np.flatnonzero(spec == number).tolist() if episode_ids[row] in suspects
        ]
        for part in chunks(len(read), _CHUNK):
            chunk = read[part]
            signals = read_signals(lake, [addresses[row] for row in chunk], names)
            for row, of_episode in zip(chunk, signals, strict=True):
                for name in names:
                    usable[offsets[row] : offsets[row + 1]] &= _usable(of_episode, name)
    return usable


def _left_out(lake: Lake, spec: Spec, names: Sequence[str]) -> set[str]:
    """Episodes of a spec with a step that the statistics of a feature do not count."""
    if not names:
        return set()
    quoted = ", ".join("'" + name + "'" for name in names)  # [a-z0-9_] only
    with lake.errors_named("read statistics"):
        table = lake.dataset("stats").to_table(
            columns=["episode_id"],
            filter=f"spec_id = '{spec.spec_id}' AND feature IN ({quoted}) AND invalid > 0",
        )
    return set(table["episode_id"].to_pylist())


def _usable(signals: Signals, name: str) -> NDArray[np.bool_]:
    values = signals.features[name]
    usable = np.ones(len(values), np.bool_)
    if name in signals.valid:
        usable &= signals.valid[name]
    if values.dtype.kind == "f":
        usable &= np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    return usable

"""`steps('episode_id')`: one episode's signals as a SQL table with a row per step.

The catalog stores no signals. Before a query runs, the episodes its `steps(...)` calls name are
read from the lake (at the versions the catalog shows) and registered as Arrow tables; a macro
finds them by name. A call must therefore name its episode by a literal or a parameter.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lake.read import Signals

# md5, since an id may hold dots, which query_table would read as schema.table.
STEPS_MACRO: Final = (
    "CREATE TEMP MACRO steps(episode_id) AS TABLE"
    " SELECT * FROM query_table('steps_' || md5(episode_id))"
)
_OWN_COLUMNS: Final = ("step", "time_s", "timestamp_ns")


def table_name(episode_id: str) -> str:
    """Name under which the macro looks for an episode."""
    return f"steps_{hashlib.md5(episode_id.encode(), usedforsecurity=False).hexdigest()}"


def named_episodes(sql: str, parameters: Iterable[Any]) -> list[str]:
    """Episode ids that `steps(...)` calls of a query may name, comments and strings left alone.

    Where a call has a parameter, every text parameter of the query is a candidate.
    """
    tokens = _tokens(sql)
    found: dict[str, None] = {}
    for at, (text, kind) in enumerate(tokens[:-2]):
        called = kind == duckdb.token_type.identifier and text.strip('"').lower() == "steps"
        if not called or tokens[at + 1][0] != "(":
            continue
        argument, argument_kind = tokens[at + 2]
        if argument_kind == duckdb.token_type.string_const:
            found[argument[1:-1].replace("''", "'")] = None
        else:
            found.update((p, None) for p in parameters if isinstance(p, str))
    return list(found)


def _tokens(sql: str) -> list[tuple[str, duckdb.token_type]]:
    """Text and kind of every token but comments."""
    data = sql.encode()  # DuckDB counts bytes
    starts = duckdb.tokenize(sql)
    stops = [start for start, _ in starts[1:]] + [len(data)]
    return [
        (data[start:stop].decode().strip(), kind)
        for (start, kind), stop in zip(starts, stops, strict=True)
        if kind != duckdb.token_type.comment
    ]


def steps_table(signals: Signals) -> pa.Table:
    """One row per step of an episode.

    Columns: `step` int64; `time_s` float64, seconds since the first step, NULL where the source has
    no clock and its steps are numbered; `timestamp_ns` int64 as recorded; then every feature of
    the episode under its name, a value where its shape is (), else a list of its flattened
    elements. A step that alignment could not fill is NULL.
    """
    steps = signals.num_steps
    since_start_ns = signals.timestamps_ns - signals.timestamps_ns[0]
    numbered = steps > 1 and np.array_equal(since_start_ns, np.arange(steps))
    columns: dict[str, pa.Array] = {
        "step": pa.array(np.arange(signals.step_offset, signals.step_offset + steps)),
        "time_s": pa.nulls(steps, pa.float64()) if numbered else pa.array(since_start_ns / 1e9),
        "timestamp_ns": pa.array(signals.timestamps_ns),
    }
    for name, values in signals.features.items():
        column = f"{name}_feature" if name in _OWN_COLUMNS else name
        columns[column] = _column(values, signals.valid.get(name))
    return pa.table(columns)


def _column(values: NDArray[Any], valid: NDArray[np.bool_] | None) -> pa.Array:
    missing = None if valid is None else ~valid
    if values.dtype == np.float16:
        values = values.astype(np.float32)  # exact; DuckDB has no half floats
    if values.ndim == 1:
        return pa.array(values, mask=missing)
    size = int(np.prod(values.shape[1:], dtype=np.int64))
    return pa.LargeListArray.from_arrays(
        pa.array(np.arange(len(values) + 1, dtype=np.int64) * size),
        pa.array(np.ascontiguousarray(values).ravel()),
        mask=None if missing is None else pa.array(missing),
    )

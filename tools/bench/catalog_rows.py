"""Lakes of many episodes without signals or video, for benching what only reads their facts."""

import time
from typing import Any, Final

import lance
import numpy as np
import pyarrow as pa

from lake import CameraSpec, FeatureSpec, Lake, Spec, insert_new
from lake.tables import STORAGE_VERSION, TABLES

_ROWS_PER_FILE: Final = 8192
_SPEC: Final = Spec(
    features=(
        FeatureSpec(name="state", source_name="state", dtype="float32", shape=(7,), role="state"),
        FeatureSpec(
            name="action", source_name="action", dtype="float32", shape=(7,), role="action"
        ),
    ),
    cameras=(
        CameraSpec(name="top", source_name="top", height=480, width=640),
        CameraSpec(name="wrist", source_name="wrist", height=480, width=640),
    ),
)


def add_episodes(lake: Lake, first: int, count: int) -> None:
    """Commit `count` episodes numbered from `first`, all of two cameras and two features.

    All columns that the catalog reads hold what the writer would put there for 200 steps at 10
    steps per second; signals and video are left out.
    """
    numbers = range(first, first + count)
    ids = [f"dataset_{n % 20}/episode_{n:08d}-{n:012x}" for n in numbers]
    keys = [f"{n:064x}" for n in numbers]
    commit_id = f"bench-{first}-{time.time_ns()}"
    facts: dict[str, Any] = {
        "episode_id": ids,
        "ingest_key": keys,
        "commit_id": [commit_id] * count,
        "source": [f"dataset_{n % 20}" for n in numbers],
        "dataset": [f"dataset_{n % 20}" for n in numbers],
        "embodiment": ["arm"] * count,
        "spec_id": [_SPEC.spec_id] * count,
        "num_steps": [150 + n % 100 for n in numbers],
        "fps": [10.0] * count,
        "duration_ns": [(149 + n % 100) * 10**8 for n in numbers],
        "features": [["state", "action"]] * count,
        "cameras": [["top", "wrist"]] * count,
        "camera_bytes": [[200_000 + n % 1000, 150_000] for n in numbers],
        "camera_codecs": [["h264", "h264"]] * count,
        "format": ["lerobot-v3.0"] * count,
        "source_files": [[f"data/chunk-000/file-{n // 100:03d}.parquet"] for n in numbers],
        "locator": [f"episode {n}" for n in numbers],
        "reader": ["bench"] * count,
        "alignment": ["as-recorded"] * count,
    }
    schema = TABLES["trajectories"]
    lance.write_dataset(
        pa.Table.from_arrays([_column(f, facts, count) for f in schema], schema=schema),
        lake.table_uri("trajectories"),
        mode="append",
        max_rows_per_file=_ROWS_PER_FILE,
        data_storage_version=STORAGE_VERSION,
    )
    spec = {"spec_id": [_SPEC.spec_id], "spec_json": [_SPEC.to_json()]}
    insert_new(lake, "specs", pa.table(spec))
    labels = {
        "episode_id": ids,
        "task": [f"task {n % 50}" for n in numbers],
        "success": [n % 3 == 0 for n in numbers],
    }
    insert_new(lake, "episodes", pa.table(labels))
    values = np.random.default_rng(first).normal(size=(2 * count, 7)).tolist()
    stats = {
        "episode_id": ids * 2,
        "feature": ["state"] * count + ["action"] * count,
        "spec_id": [_SPEC.spec_id] * (2 * count),
        "count": [150] * (2 * count),
        "invalid": [0] * (2 * count),
        **dict.fromkeys(("min", "max", "mean", "m2"), values),
    }
    insert_new(lake, "stats", pa.table(stats))
    ledger = {
        "ingest_key": keys,
        "commit_id": [commit_id] * count,
        "episode_id": ids,
        "time_ns": [time.time_ns()] * count,
    }
    insert_new(lake, "commits", pa.table(ledger))


def _column(field: pa.Field, facts: dict[str, Any], count: int) -> pa.Array:
    """A given column, or two zeros per camera for the lists and zeros for all else."""
    if field.name == "video":
        return lance.blob_array([b"\0"] * count)
    if field.name in facts:
        return pa.array(facts[field.name], field.type)
    if pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
        items = field.type.value_type
        empty: object = b"" if pa.types.is_large_binary(items) else 0
        row = [] if pa.types.is_string(items) else [empty, empty]
        return pa.array([row] * count, field.type)
    if pa.types.is_fixed_size_binary(field.type):
        return pa.array([bytes(field.type.byte_width)] * count, field.type)
    return pa.array([0] * count, field.type)

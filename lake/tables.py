"""The Arrow schemas of a lake's tables, and how feature columns are named and typed.

Every table is one Lance dataset at `<lake>/<name>.lance`. Key columns carry Lance's unenforced
primary key: it is what lets exactly one of several racing insert-only merges win per key.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import lance
import pyarrow as pa

from lake.spec import FeatureSpec

LAYOUT_VERSION: Final = 1
LAYOUT_KEY: Final = b"headrace:layout_version"
STORAGE_VERSION: Final = "2.2"
VALID_SUFFIX: Final = ":valid"
CATALOG_FILE: Final = "catalog.duckdb"
"""File in a lake's folder that is derived from its tables and can be deleted at any time."""
CLOCKS: Final = ("log", "publish", "header", "device")
"""Clocks that a recorder may stamp a message by."""


def _key(name: str, position: int = 1) -> pa.Field:
    return pa.field(
        name,
        pa.string(),
        nullable=False,
        metadata={
            "lance-schema:unenforced-primary-key": "true",
            "lance-schema:unenforced-primary-key:position": str(position),
        },
    )


def _text(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.string()) for name in names]


_TRAJECTORIES: Final = pa.schema(
    [
        pa.field("episode_id", pa.string(), nullable=False),
        pa.field("ingest_key", pa.string(), nullable=False),
        pa.field("commit_id", pa.string(), nullable=False),
        *_text("source", "dataset", "embodiment", "spec_id"),
        pa.field("num_steps", pa.int32(), nullable=False),
        pa.field("fps", pa.float64()),
        pa.field("timestamps_ns", pa.large_list(pa.int64()), nullable=False),
        pa.field("timestamps_checksum", pa.uint64(), nullable=False),
        pa.field("duration_ns", pa.int64(), nullable=False),
        pa.field("features", pa.list_(pa.string()), nullable=False),
        pa.field("feature_checksums", pa.list_(pa.uint64()), nullable=False),
        pa.field("cameras", pa.list_(pa.string()), nullable=False),
        pa.field("camera_bytes", pa.list_(pa.int64()), nullable=False),
        pa.field("camera_codecs", pa.list_(pa.string()), nullable=False),
        pa.field("camera_widths", pa.list_(pa.int32()), nullable=False),
        pa.field("camera_heights", pa.list_(pa.int32()), nullable=False),
        pa.field("camera_frames", pa.list_(pa.int32()), nullable=False),
        pa.field("camera_key_frames", pa.list_(pa.int32()), nullable=False),
        pa.field("camera_missing_steps", pa.list_(pa.int32()), nullable=False),
        pa.field("video_indexes", pa.list_(pa.large_binary()), nullable=False),
        pa.field("video_index_checksums", pa.list_(pa.uint64()), nullable=False),
        lance.blob_field("video", nullable=False),
        pa.field("content_sha256", pa.binary(32), nullable=False),
        pa.field("facts_checksum", pa.uint64(), nullable=False),
        *_text("format"),
        pa.field("source_files", pa.list_(pa.string())),
        *_text("locator", "reader", "alignment"),
        pa.field("findings", pa.list_(pa.string())),
    ]
)

FACTS: Final = (
    *("episode_id", "ingest_key", "source", "dataset", "embodiment", "spec_id", "num_steps", "fps"),
    *("features", "cameras", "camera_bytes"),
    *("format", "source_files", "locator", "reader", "alignment", "findings"),
)
"""Columns of `trajectories` that one checksum guards together."""

_EPISODES: Final = pa.schema(
    [
        _key("episode_id"),
        *_text("dataset", "task", "instruction"),
        pa.field("success", pa.bool_()),
        pa.field("quality", pa.float64()),
        *_text("split"),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("num_steps", pa.int32()),
        pa.field("fps", pa.float64()),
        *_text("embodiment"),
        pa.field("label_version", pa.int32()),
    ]
)

_STATS: Final = pa.schema(
    [
        _key("episode_id", 1),
        _key("feature", 2),
        *_text("spec_id"),
        pa.field("count", pa.int64()),
        pa.field("invalid", pa.int64()),
        *[pa.field(name, pa.list_(pa.float64())) for name in ("min", "max", "mean", "m2")],
        pa.field("sketch", pa.list_(pa.float64())),
    ]
)

_RAW: Final = pa.schema(
    [
        *[pa.field(name, pa.string(), nullable=False) for name in ("episode_id", "ingest_key")],
        pa.field("commit_id", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("chunk", pa.int32(), nullable=False),
        pa.field("num_messages", pa.int32(), nullable=False),
        *_text("schema_name", "schema_encoding"),
        pa.field("schema", pa.large_binary()),
        *_text("message_encoding", "metadata_json"),
        *[pa.field(f"{clock}_ns", pa.large_list(pa.int64())) for clock in CLOCKS],
        pa.field("sequence", pa.large_list(pa.int64())),
        pa.field("sizes", pa.large_list(pa.int32()), nullable=False),
        pa.field("payload", pa.large_binary(), nullable=False),
        *_text("camera"),
        pa.field("frames", pa.large_list(pa.int32())),
        pa.field("frame_at", pa.large_list(pa.int32())),
        pa.field("checksum", pa.uint64(), nullable=False),
    ]
)

_LISTS: Final = ("episode_ids", "hidden", "shown", "views")

_EDITS: Final = pa.schema(
    [
        _key("edit"),
        *_text("kind", "who", "why"),
        pa.field("time_ns", pa.int64()),
        *[pa.field(name, pa.large_list(pa.string())) for name in _LISTS],
        *_text("detail_json"),
    ]
)

TABLES: Final[Mapping[str, pa.Schema]] = MappingProxyType(
    {
        "trajectories": _TRAJECTORIES,
        "episodes": _EPISODES,
        "specs": pa.schema([_key("spec_id"), *_text("spec_json")]),
        "stats": _STATS,
        "quarantine": pa.schema(
            [
                _key("quarantine_key"),
                *_text("source", "dataset", "episode", "stream", "reason", "detail"),
                pa.field("time_ns", pa.int64()),
            ]
        ),
        "selections": pa.schema(
            [
                _key("selection_hash"),
                *_text("name", "sql"),
                pa.field("episode_ids", pa.large_list(pa.string())),
                pa.field("num_episodes", pa.int64()),
                *_text("versions_json"),
                pa.field("time_ns", pa.int64()),
            ]
        ),
        "plans": pa.schema(
            [
                _key("plan_hash"),
                *_text("name", "selection_hash", "location", "header_json", "versions_json"),
                pa.field("time_ns", pa.int64()),
            ]
        ),
        "runs": pa.schema(
            [
                _key("run_id"),
                *_text("plan_hash", "name", "out_dir", "config_json", "versions_json"),
                pa.field("time_ns", pa.int64()),
            ]
        ),
        "evaluations": pa.schema(
            [
                _key("evaluation_id"),
                *_text("run_id", "checkpoint", "task"),
                pa.field("episodes", pa.int64()),
                pa.field("successes", pa.int64()),
                pa.field("wilson_low", pa.float64()),
                pa.field("wilson_high", pa.float64()),
                *_text("detail_json"),
                pa.field("time_ns", pa.int64()),
            ]
        ),
        # Last: a lake exists once its ledger does, so a creation that was cut short is no lake.
        "commits": pa.schema(
            [
                _key("ingest_key"),
                pa.field("commit_id", pa.string(), nullable=False),
                pa.field("episode_id", pa.string(), nullable=False),
                *_text("versions_json"),
                pa.field("time_ns", pa.int64()),
            ],
            metadata={LAYOUT_KEY: str(LAYOUT_VERSION).encode()},
        ),
    }
)
"""Table name -> schema at creation; `trajectories` gains feature columns as episodes need them.

`trajectories` holds one row per episode. A feature is one list column `FeatureSpec.column`, its
values flattened to T * size, with bool [T] in `<column>:valid` where steps could not be filled.
`features` names the feature columns present in the row; `feature_checksums` is XXH3-64 of each
one's bytes, followed by those of its validity where it has one; `facts_checksum` is that of the
columns in `FACTS`. All `camera_*` and
`video_index*` lists run parallel to `cameras`, the order of the streams in `video`.

`stats` holds, per element of a feature, count of valid steps, min, max, mean, m2 and a sketch
(see `lake.feature_stats`).
"""


OPTIONAL_TABLES: Final[Mapping[str, pa.Schema]] = MappingProxyType({"raw": _RAW, "edits": _EDITS})
"""Tables that a lake gets when they are first written; a lake without one has nothing in it.

`raw` holds what was recorded: a row is a chunk of messages of one stream of an episode, see
`lake.raw`. `edits` holds what was changed about episodes since: a row is an edit, see `lake.edit`.
"""


def schema_of(table: str) -> pa.Schema:
    """Schema of a table at its creation."""
    return TABLES[table] if table in TABLES else OPTIONAL_TABLES[table]


def primary_key(table: str) -> list[str]:
    """Key columns of a table, empty for `trajectories` and `raw`."""
    key = b"lance-schema:unenforced-primary-key"
    return [field.name for field in schema_of(table) if key in (field.metadata or {})]


def feature_fields(feature: FeatureSpec) -> tuple[pa.Field, pa.Field]:
    """The value column of a feature and its validity column.

    `large_list`, since one row of a camera-sized feature can pass 2^31 elements.
    """
    item = pa.string() if feature.dtype == "string" else pa.type_for_alias(feature.dtype)
    return (
        pa.field(feature.column, pa.large_list(item)),
        pa.field(feature.column + VALID_SUFFIX, pa.large_list(pa.bool_())),
    )


def equals(column: str, text: str) -> str:
    """A Lance filter for rows whose column holds exactly this text."""
    return f"{column} = {_quoted(text)}"


def among(column: str, texts: Iterable[str]) -> str:
    """A Lance filter for rows whose column holds one of these texts."""
    return f"{column} IN ({', '.join(map(_quoted, texts))})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

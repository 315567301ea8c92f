"""An episode as rows: one of `trajectories`, one of `episodes`, one of `stats` per feature."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from lake.episode import Episode
from lake.errors import SpecError
from lake.feature_arrays import check_values, feature_checksum, one_row
from lake.feature_stats import FeatureStats
from lake.spec import Spec
from lake.tables import FACTS, TABLES, feature_fields

_NO_VIDEO = b"\0"  # null and empty blobs have a history of corruption in Lance


@dataclass(frozen=True)
class EpisodeRows:
    """All rows of one episode, ready to be written.

    Attributes:
        trajectory: record batch of one row; holds the video by reference where it is one buffer.
        label: row of `episodes`.
        stats: rows of `stats`.
        spec: the episode's spec.
        num_bytes: bytes that the trajectory row keeps in memory.
    """

    trajectory: pa.RecordBatch
    label: dict[str, Any]
    stats: list[dict[str, Any]]
    spec: Spec
    num_bytes: int


def episode_rows(episode: Episode, commit_id: str) -> EpisodeRows:
    """Turn an episode into rows that carry `commit_id`.

    Raises:
        SpecError: the episode holds what the lake would not give back as it is.
    """
    where = f"episode {episode.episode_id}"
    if episode.timestamps_ns.dtype != np.int64:
        raise SpecError(f"{where}: timestamps_ns is {episode.timestamps_ns.dtype}, not int64")
    spec_id = episode.spec.spec_id
    features: dict[str, tuple[pa.Field, pa.Array]] = {}
    names, checksums, stats = [], [], []
    for name, values in episode.features.items():
        spec = episode.spec.feature(name)
        valid = episode.valid.get(name)
        check_values(where, spec, values, valid)
        value_field, valid_field = feature_fields(spec)
        features[value_field.name] = (value_field, one_row(values, value_field.type.value_type))
        if valid is not None:
            features[valid_field.name] = (valid_field, one_row(valid, pa.bool_()))
        names.append(spec.column)
        checksums.append(feature_checksum(values, valid))
        stats.append(_stats_row(episode.episode_id, spec_id, name, values, valid))
    indexes = [video.index.to_bytes() for video in episode.cameras.values()]
    provenance = episode.provenance
    row: dict[str, Any] = {
        "episode_id": episode.episode_id,
        "ingest_key": episode.ingest_key,
        "commit_id": commit_id,
        "source": episode.source,
        "dataset": episode.dataset,
        "embodiment": episode.embodiment,
        "spec_id": spec_id,
        "num_steps": episode.num_steps,
        "fps": episode.fps,
        "timestamps_ns": one_row(episode.timestamps_ns, pa.int64()),
        "timestamps_checksum": feature_checksum(episode.timestamps_ns, None),
        "duration_ns": int(episode.timestamps_ns[-1]) - int(episode.timestamps_ns[0]),
        "features": names,
        "feature_checksums": checksums,
        "cameras": list(episode.cameras),
        "camera_bytes": [len(video.payload) for video in episode.cameras.values()],
        "camera_codecs": [video.index.codec for video in episode.cameras.values()],
        "camera_widths": [video.index.width for video in episode.cameras.values()],
        "camera_heights": [video.index.height for video in episode.cameras.values()],
        "camera_frames": [video.index.num_frames for video in episode.cameras.values()],
        "camera_key_frames": [
            int((i.packet_key & (i.packet_frame >= 0)).sum())
            for i in (video.index for video in episode.cameras.values())
        ],
        "camera_missing_steps": [
            int((video.index.step_to_frame < 0).sum()) for video in episode.cameras.values()
        ],
        "video_indexes": indexes,
        "video_index_checksums": [xxhash.xxh3_64_intdigest(index) for index in indexes],
        "video": _blob([video.payload for video in episode.cameras.values()]),
        "content_sha256": episode.content_sha256(),
        "format": provenance.format,
        "source_files": list(provenance.files),
        "locator": provenance.locator,
        "reader": provenance.reader,
        "alignment": provenance.alignment,
        "findings": list(provenance.findings),
    }
    row["facts_checksum"] = facts_checksum(row)
    schema = TABLES["trajectories"]
    arrays = [
        value if isinstance(value := row[f.name], pa.Array) else pa.array([value], f.type)
        for f in schema
    ]
    trajectory = pa.RecordBatch.from_arrays(
        [*arrays, *(array for _, array in features.values())],
        schema=pa.schema([*schema, *(field for field, _ in features.values())]),
    )
    return EpisodeRows(trajectory, _label(episode), stats, episode.spec, trajectory.nbytes)


def facts_checksum(row: Mapping[str, Any]) -> int:
    """XXH3-64 of the canonical JSON of a row's `FACTS`."""
    facts = {name: row[name] for name in FACTS}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return xxhash.xxh3_64_intdigest(text.encode())


def _blob(payloads: list[bytes | memoryview]) -> pa.Array:
    """A blob array of one row; one payload is borrowed, several are joined once."""
    whole = payloads[0] if len(payloads) == 1 else b"".join(payloads) or _NO_VIDEO
    data = pa.Array.from_buffers(
        pa.large_binary(),
        1,
        [None, pa.py_buffer(np.array([0, len(whole)], np.int64)), pa.py_buffer(whole)],
    )
    nulls = [pa.nulls(1, pa.utf8()), pa.nulls(1, pa.uint64()), pa.nulls(1, pa.uint64())]
    storage = pa.StructArray.from_arrays([data, *nulls], names=["data", "uri", "position", "size"])
    return pa.ExtensionArray.from_storage(lance.blob_field("video").type, storage)


def _label(episode: Episode) -> dict[str, Any]:
    return {
        "episode_id": episode.episode_id,
        "dataset": episode.dataset,
        "task": episode.task,
        "instruction": episode.instruction,
        "success": episode.success,
        "quality": None,
        "split": episode.split,
        "tags": list(episode.tags),
        "num_steps": episode.num_steps,
        "fps": episode.fps,
        "embodiment": episode.embodiment,
        "label_version": 0,
    }


def _stats_row(
    episode_id: str,
    spec_id: str,
    feature: str,
    values: NDArray[Any],
    valid: NDArray[np.bool_] | None,
) -> dict[str, Any]:
    stats = FeatureStats.of(values, valid)
    return {
        "episode_id": episode_id,
        "feature": feature,
        "spec_id": spec_id,
        "count": stats.count,
        "invalid": stats.invalid,
        "min": stats.min.tolist(),
        "max": stats.max.tolist(),
        "mean": stats.mean.tolist(),
        "m2": stats.m2.tolist(),
        "sketch": stats.quantiles.ravel().tolist(),
    }

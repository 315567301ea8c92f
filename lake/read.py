"""Reading episodes: signals of many rows in one call, checksums verified."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lake.episode import CameraVideo, Episode, Provenance
from lake.episode_row import facts_checksum
from lake.errors import CorruptDataError, LakeError, SpecError
from lake.feature_arrays import feature_checksum, row_values
from lake.find import find_episode
from lake.read_video import ByteRange, read_ranges, read_video_indexes
from lake.spec import RESERVED_COLUMNS, FeatureSpec, Spec
from lake.store import Lake
from lake.tables import FACTS, VALID_SUFFIX, equals
from lake.take import take_rows
from lake.video_runs import verify_packets

_SIGNAL_COLUMNS: Final = (
    *("episode_id", "spec_id", "num_steps", "timestamps_ns", "timestamps_checksum"),
    *("features", "feature_checksums"),
)


@dataclass(frozen=True, kw_only=True)
class Signals:
    """The signals of an episode, or of a range of its steps. Arrays may be read-only.

    Attributes:
        episode_id: which episode.
        address: its row.
        spec: meaning of the features.
        timestamps_ns: int64 [T].
        features: name -> [T, *shape] in the recorded dtype; text as an object array of str.
        valid: name -> bool [T]; absent where every step of the feature is valid.
        step_offset: step of the episode at which T starts; 0 for whole episodes.
    """

    episode_id: str
    address: int
    spec: Spec
    timestamps_ns: NDArray[np.int64]
    features: Mapping[str, NDArray[Any]]
    valid: Mapping[str, NDArray[np.bool_]]
    step_offset: int = 0

    @property
    def num_steps(self) -> int:
        """Number of steps, T."""
        return len(self.timestamps_ns)


def read_signals(
    lake: Lake, addresses: Sequence[int], features: Sequence[str] | None = None
) -> list[Signals]:
    """Signals of whole episodes, in the order of `addresses`, in one request to the lake.

    Args:
        lake: where.
        addresses: row addresses, as `visible_episodes` gives them.
        features: names of the features to read; None reads all. An episode that lacks one of
            them (another spec) simply does not have it in its `features`.

    Raises:
        EpisodeNotFoundError: an address that is not (or no longer) a row.
        CorruptDataError: stored values do not match their checksum.
        SpecError: a feature that no episode of the lake has.
    """
    columns = signal_columns(lake, features)
    return parse_signals(lake, take_rows(lake, addresses, columns), addresses, columns)


def signal_columns(lake: Lake, features: Sequence[str] | None = None) -> list[str]:
    """Columns of `trajectories` that `parse_signals` needs for these features, None for all.

    Raises:
        SpecError: a feature that no episode of the lake has.
    """
    return [*_SIGNAL_COLUMNS, *_feature_columns(lake, features)]


def parse_signals(
    lake: Lake, rows: pa.Table, addresses: Sequence[int], columns: Sequence[str]
) -> list[Signals]:
    """The signals in rows of `trajectories` that were read with `signal_columns`, verified.

    Args:
        lake: of the rows.
        rows: one per address, single-chunk columns; more columns do no harm.
        addresses: of the rows.
        columns: as `signal_columns` gave them.

    Raises:
        CorruptDataError: stored values do not match their checksum.
    """
    known = set(columns)
    return [_signals(lake, rows, row, address, known) for row, address in enumerate(addresses)]


def read_steps(
    lake: Lake,
    episode_id: str,
    start: int,
    stop: int,
    features: Sequence[str] | None = None,
) -> Signals:
    """Signals of the steps [start, stop) of one episode.

    Raises:
        EpisodeNotFoundError: no such episode.
        SpecError: the range is not inside the episode.
    """
    whole = read_signals(lake, [find_episode(lake, episode_id)], features)[0]
    if not 0 <= start < stop <= whole.num_steps:
        raise SpecError(
            f"episode {episode_id}: steps [{start}, {stop}) are not inside its"
            f" {whole.num_steps} steps"
        )
    return Signals(
        episode_id=whole.episode_id,
        address=whole.address,
        spec=whole.spec,
        timestamps_ns=whole.timestamps_ns[start:stop],
        features={name: values[start:stop] for name, values in whole.features.items()},
        valid={name: mask[start:stop] for name, mask in whole.valid.items()},
        step_offset=start,
    )


def read_episode(lake: Lake, episode_id: str) -> Episode:
    """A whole episode as it was written, packets included, every checksum verified.

    Raises:
        EpisodeNotFoundError: no such episode.
        CorruptDataError: stored bytes do not match their checksum.
    """
    return read_episode_at(lake, find_episode(lake, episode_id))


def read_episode_at(lake: Lake, address: int) -> Episode:
    """As `read_episode`, by the address of the row, be the episode hidden or not.

    Raises:
        EpisodeNotFoundError: an address that is not (or no longer) a row.
        CorruptDataError: stored bytes do not match their checksum.
    """
    signals = read_signals(lake, [address])[0]
    episode_id = signals.episode_id
    columns = [*FACTS, "facts_checksum", "content_sha256"]
    row: dict[str, Any] = take_rows(lake, [address], columns).to_pylist()[0]
    if facts_checksum(row) != row["facts_checksum"]:
        raise CorruptDataError(f"episode {episode_id}: its facts do not match their checksum")
    label = _label(lake, episode_id)
    episode = Episode(
        episode_id=episode_id,
        ingest_key=row["ingest_key"],
        source=row["source"],
        dataset=row["dataset"],
        embodiment=row["embodiment"],
        spec=signals.spec,
        fps=row["fps"],
        timestamps_ns=signals.timestamps_ns,
        features=signals.features,
        valid=signals.valid,
        cameras=_cameras(lake, address),
        task=label["task"],
        instruction=label["instruction"],
        success=label["success"],
        split=label["split"],
        tags=tuple(label["tags"] or ()),
        provenance=Provenance(
            format=row["format"],
            files=tuple(row["source_files"]),
            locator=row["locator"],
            reader=row["reader"],
            alignment=row["alignment"],
            findings=tuple(row["findings"]),
        ),
    )
    if episode.content_sha256() != row["content_sha256"]:
        raise CorruptDataError(f"episode {episode_id}: content does not match its SHA-256")
    return episode


def _feature_columns(lake: Lake, features: Sequence[str] | None) -> list[str]:
    """Columns that may hold the features: one per dtype in which some dataset recorded them."""
    stored = [n for n in lake.dataset("trajectories").schema.names if n not in RESERVED_COLUMNS]
    if features is None:
        return stored
    wanted = set(features)
    known = {name.split(":")[0] for name in stored}
    if unknown := sorted(wanted - known):
        raise SpecError(
            f"{lake.uri}: no episode has a feature {', '.join(unknown)}; there are"
            f" {', '.join(sorted(known)) or 'none'}"
        )
    return [name for name in stored if name.split(":")[0] in wanted]


def _signals(lake: Lake, table: pa.Table, row: int, address: int, columns: set[str]) -> Signals:
    episode_id = table["episode_id"][row].as_py()
    where = f"episode {episode_id}"
    spec = lake.spec(table["spec_id"][row].as_py())
    steps = table["num_steps"][row].as_py()
    timestamps = _column(table, "timestamps_ns", row, "int64", where)
    _verify(where, "timestamps_ns", timestamps, None, table["timestamps_checksum"][row].as_py())
    if len(timestamps) != steps:
        raise CorruptDataError(f"{where}: {len(timestamps)} timestamps for {steps} steps")
    by_column = {feature.column: feature for feature in spec.features}
    features: dict[str, NDArray[Any]] = {}
    valid: dict[str, NDArray[np.bool_]] = {}
    present = table["features"][row].as_py()
    checksums = table["feature_checksums"][row].as_py()
    for column, checksum in zip(present, checksums, strict=True):
        if column not in columns:
            continue
        feature = by_column.get(column)
        if feature is None:
            raise CorruptDataError(f"{where}: column {column} is not in its spec")
        values = _column(table, column, row, feature.dtype, where)
        mask = None
        if column + VALID_SUFFIX in columns and table[column + VALID_SUFFIX][row].is_valid:
            mask = _column(table, column + VALID_SUFFIX, row, "bool", where)
            valid[feature.name] = mask
        _verify(where, feature.name, values, mask, checksum)
        features[feature.name] = _shaped(where, feature, values, steps)
    return Signals(
        episode_id=episode_id,
        address=address,
        spec=spec,
        timestamps_ns=timestamps,
        features=features,
        valid=valid,
    )


def _column(table: pa.Table, column: str, row: int, dtype: str, where: str) -> NDArray[Any]:
    if not table[column][row].is_valid:
        raise CorruptDataError(f"{where}: column {column} is empty")
    try:
        return row_values(table[column], row, dtype)
    except CorruptDataError as error:
        raise CorruptDataError(f"{where}: column {column}: {error}") from error


def _verify(
    where: str,
    name: str,
    values: NDArray[Any],
    valid: NDArray[np.bool_] | None,
    checksum: int,
) -> None:
    if feature_checksum(values, valid) != checksum:
        raise CorruptDataError(
            f"{where}: {name} does not match its checksum; restore the lake's files from a copy,"
            " or ingest the source into a new lake"
        )


def _shaped(where: str, feature: FeatureSpec, values: NDArray[Any], steps: int) -> NDArray[Any]:
    if len(values) != steps * feature.size:
        raise CorruptDataError(
            f"{where}: {feature.name} has {len(values)} values for {steps} steps of {feature.size}"
        )
    return values.reshape(steps, *feature.shape)


def _cameras(lake: Lake, address: int) -> dict[str, CameraVideo]:
    videos = read_video_indexes(lake, [address])[0]
    ranges = [
        ByteRange(address, videos.base_offsets[name], index.num_bytes)
        for name, index in videos.cameras.items()
    ]
    payloads = read_ranges(lake, ranges)
    cameras = {}
    for (name, index), payload in zip(videos.cameras.items(), payloads, strict=True):
        try:
            verify_packets(index, 0, payload)
        except CorruptDataError as error:
            raise CorruptDataError(
                f"episode {videos.episode_id}, camera {name}: {error}"
            ) from error
        cameras[name] = CameraVideo(index=index, payload=payload)
    return cameras


def _label(lake: Lake, episode_id: str) -> dict[str, Any]:
    with lake.errors_named("read labels"):
        rows: list[dict[str, Any]] = (
            lake.dataset("episodes").to_table(filter=equals("episode_id", episode_id)).to_pylist()
        )
    if len(rows) != 1:
        raise LakeError(f"{lake.uri}: {len(rows)} label rows for episode {episode_id}, expected 1")
    return rows[0]

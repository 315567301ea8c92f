"""Episodes that training and evaluation share, under the same name or under another.

An episode of the evaluation leaks where the training set holds, in this order of certainty:

    episode    the same episode id
    content    an episode with the same content hash: every value, packet and stamp is equal
    recording  an episode from the same place in the same source: ingested again after its files
               changed, or with other choices
    stream     an episode with a camera, a state or an action that is equal bit for bit: the same
               recording in another format, with other features, or relabelled

Streams that prove nothing are left out of the last: what never changes, and what several episodes
of one set have in common (a black picture, an arm at rest).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog.selection import Selection
from lake.store import Lake
from lake.visible import visible_episodes
from packing.episode_sets import EpisodeSet, episode_set
from packing.errors import PlanError
from packing.plan import Plan

LEAK_KINDS: Final = ("episode", "content", "recording", "stream")

_COLUMNS: Final = (
    *("episode_id", "content_sha256", "dataset", "source", "source_files", "locator", "spec_id"),
    *("features", "feature_checksums", "cameras", "video_index_checksums"),
)
_LEAKS: Final = pa.schema(
    [
        (name, pa.string())
        for name in (
            *("kind", "episode_id", "dataset", "trained_episode_id", "trained_dataset"),
            "equal",
        )
    ]
)
_SEPARATOR: Final = "\0"


@dataclass(frozen=True, kw_only=True)
class LeakCheck:
    """What one evaluation set shares with the training set.

    Attributes:
        train, held_out: the two sets.
        leaks: one row per leaked episode of the evaluation, by kind (the most certain that holds,
            see `LEAK_KINDS`), then id; strings `kind`, `episode_id`, `dataset`,
            `trained_episode_id` and `trained_dataset` (the first such episode), and `equal`: what
            they have in common.
    """

    train: EpisodeSet
    held_out: EpisodeSet
    leaks: pa.Table

    @property
    def num_leaks(self) -> int:
        """Episodes of the evaluation that leaked."""
        return int(self.leaks.num_rows)

    def counts(self) -> dict[str, dict[str, int]]:
        """Dataset of the evaluation -> kind -> leaked episodes, where there are any."""
        grouped = self.leaks.group_by(["dataset", "kind"]).aggregate([([], "count_all")])
        counts: dict[str, dict[str, int]] = {}
        for row in grouped.sort_by([("dataset", "ascending"), ("kind", "ascending")]).to_pylist():
            counts.setdefault(row["dataset"], {})[row["kind"]] = row["count_all"]
        return counts


def check_leaks(
    lake: Lake, train: Plan | Selection | str, against: Sequence[Plan | Selection | str]
) -> tuple[LeakCheck, ...]:
    """Compare a training set with each of some evaluation sets of the same lake.

    Args:
        lake: not pinned; every set is read at the versions that it was made from.
        train: see `packing.episode_sets.episode_set`, also for each of `against`.
        against: evaluation sets.

    Raises:
        PlanError, CatalogError: a set cannot be found, or its episodes are gone.
        LakeError: the lake cannot be read.
    """
    ours = episode_set(lake, train)
    theirs = [episode_set(lake, what) for what in against]
    facts = _facts(lake, ours)
    return tuple(
        LeakCheck(train=ours, held_out=each, leaks=_leaks(lake, facts, each, _facts(lake, each)))
        for each in theirs
    )


def _facts(lake: Lake, episodes: EpisodeSet) -> pa.Table:
    """`_COLUMNS` of the episodes, sorted by id."""
    rows = visible_episodes(lake.at(episodes.versions), _COLUMNS)
    wanted = pa.array(episodes.episode_ids, pa.string())
    rows = rows.filter(pc.is_in(rows["episode_id"], value_set=wanted)).sort_by("episode_id")
    if rows.num_rows != len(episodes):
        gone = wanted.filter(pc.invert(pc.is_in(wanted, value_set=rows["episode_id"])))
        raise PlanError(
            f"{lake.uri}: {len(gone)} episodes of {episodes} are not in the lake, first {gone[0]}"
        )
    return rows.combine_chunks()


def _leaks(lake: Lake, train: pa.Table, theirs: EpisodeSet, held_out: pa.Table) -> pa.Table:
    found = np.full(held_out.num_rows, -1, np.int64)  # row of `train`
    kind = np.zeros(held_out.num_rows, np.int64)
    equal = np.full(held_out.num_rows, "", object)

    def enter(number: int, row: NDArray[np.int64], what: NDArray[np.object_] | str) -> None:
        new = (found < 0) & (row >= 0)
        found[new], kind[new] = row[new], number
        equal[new] = what if isinstance(what, str) else what[new]

    enter(0, _first(train["episode_id"], held_out["episode_id"]), "episode id")
    enter(1, _first(train["content_sha256"], held_out["content_sha256"]), "content")
    enter(2, _first(_places(train), _places(held_out)), "source, files and place in them")
    enter(3, *_equal_streams(lake.at(theirs.versions), train, held_out))
    leaked = np.flatnonzero(found >= 0)
    leaked = leaked[np.argsort(kind[leaked], kind="stable")]
    theirs_rows, our_rows = held_out.take(pa.array(leaked)), train.take(pa.array(found[leaked]))
    return pa.table(
        {
            "kind": [LEAK_KINDS[number] for number in kind[leaked].tolist()],
            "episode_id": theirs_rows["episode_id"],
            "dataset": theirs_rows["dataset"],
            "trained_episode_id": our_rows["episode_id"],
            "trained_dataset": our_rows["dataset"],
            "equal": equal[leaked].tolist(),
        },
        schema=_LEAKS,
    )


def _first(train: pa.ChunkedArray, held_out: pa.ChunkedArray) -> NDArray[np.int64]:
    """int64 [held out]: the first row of `train` with the same key, -1 for none or a null key."""
    keys = train.combine_chunks()
    if pa.types.is_fixed_size_binary(keys.type):
        keys, held_out = keys.cast(pa.binary()), held_out.cast(pa.binary())
    distinct = pc.unique(keys.drop_null())
    row = pc.fill_null(pc.index_in(held_out, value_set=distinct), -1).to_numpy().astype(np.int64)
    first = pc.index_in(distinct, value_set=keys).to_numpy().astype(np.int64)
    return np.where(row >= 0, first[row] if len(first) else -1, -1)


def _places(rows: pa.Table) -> pa.ChunkedArray:
    """Where in which source each episode lies; null where its source does not say."""
    files = pc.binary_join(rows["source_files"].cast(pa.list_(pa.string())), "\n")
    place = pc.binary_join_element_wise(rows["source"], files, rows["locator"], _SEPARATOR)
    return pc.if_else(pc.equal(rows["locator"], ""), pa.scalar(None, pa.string()), place)


def _equal_streams(
    lake: Lake, train: pa.Table, held_out: pa.Table
) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
    """Of each held-out episode the first row of `train` with an equal stream, and which it is."""
    ours, theirs = _streams(lake, train), _streams(lake, held_out)
    row = _first(ours["checksum"], theirs["checksum"])
    match = np.flatnonzero(row >= 0)
    match = match[_changes(lake, held_out, theirs.take(pa.array(match)))]
    episode = theirs["row"].to_numpy()[match]
    source = ours["row"].to_numpy()[row[match]]
    names = np.array(theirs["name"].take(pa.array(match)).to_pylist(), object)
    found = np.full(held_out.num_rows, -1, np.int64)
    equal = np.full(held_out.num_rows, "", object)
    _, at = np.unique(episode, return_index=True)  # the first stream of each
    found[episode[at]], equal[episode[at]] = source[at], names[at]
    return found, equal


def _streams(lake: Lake, rows: pa.Table) -> pa.Table:
    """Streams that tell episodes apart: `row` int64, `name`, `feature` (or null), `checksum`."""
    cameras = _listed(rows, "cameras", "video_index_checksums")
    names = pc.binary_join_element_wise("camera", cameras["name"], " ")
    features = _listed(rows, "features", "feature_checksums")
    features = features.filter(pa.array(_is_signal(lake, rows, features)))
    columns = features["name"]
    feature = pc.list_element(pc.split_pattern(columns, ":", max_splits=1), 0)
    streams = pa.table(
        {
            "row": _joined(cameras["row"], features["row"]),
            "name": _joined(names, feature),
            "feature": _joined(pa.nulls(len(names), pa.string()), feature),
            "checksum": _joined(cameras["checksum"], features["checksum"]),
        }
    )
    # A checksum that episodes of different content have in common identifies none of them.
    content = pc.dictionary_encode(rows["content_sha256"].combine_chunks()).indices.to_numpy()
    of_stream = content[streams["row"].to_numpy()]
    checksums, number = np.unique(streams["checksum"].to_numpy(), return_inverse=True)
    pairs = np.unique(number.astype(np.int64) * len(content) + of_stream)
    contents = np.bincount(pairs // len(content), minlength=len(checksums))
    return streams.filter(pa.array(contents[number] == 1))


def _listed(rows: pa.Table, names: str, checksums: str) -> pa.Table:
    """Two parallel list columns, flattened, with the row of each element."""
    lists = rows[names].combine_chunks()
    return pa.table(
        {
            "row": pc.list_parent_indices(lists).cast(pa.int64()),
            "name": pc.list_flatten(lists),
            "checksum": pc.list_flatten(rows[checksums].combine_chunks()),
        }
    )


def _joined(*parts: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = [c for p in parts for c in (p.chunks if isinstance(p, pa.ChunkedArray) else [p])]
    return pa.chunked_array(chunks, chunks[0].type)


def _is_signal(lake: Lake, rows: pa.Table, features: pa.Table) -> NDArray[np.bool_]:
    """Whether each feature, bool [features], is a state or an action in floating point."""
    specs = pc.dictionary_encode(rows["spec_id"].combine_chunks())
    columns = pc.dictionary_encode(features["name"].combine_chunks())
    number = {name: index for index, name in enumerate(columns.dictionary.to_pylist())}
    table = np.zeros((len(specs.dictionary), len(number)), np.bool_)
    for row, spec_id in enumerate(specs.dictionary.to_pylist()):
        for feature in lake.spec(spec_id).features:
            is_float = feature.dtype.startswith("float")
            if is_float and feature.role in {"state", "action"} and feature.column in number:
                table[row, number[feature.column]] = True
    spec, column = specs.indices.to_numpy()[features["row"]], columns.indices.to_numpy()
    signal: NDArray[np.bool_] = table[spec, column]
    return signal


def _changes(lake: Lake, rows: pa.Table, streams: pa.Table) -> NDArray[np.bool_]:
    """Which streams change, bool [streams]: not a feature that is the same at every step."""
    changes = np.ones(streams.num_rows, np.bool_)
    wanted = pc.unique(streams["feature"].drop_null())
    if not len(wanted):
        return changes
    names = ", ".join(f"'{name}'" for name in wanted.to_pylist())  # [a-z0-9_] only
    with lake.errors_named("read statistics"):
        stats = lake.dataset("stats").to_table(
            columns=["episode_id", "feature", "m2"], filter=f"feature IN ({names})"
        )
    m2 = stats["m2"].combine_chunks()
    moving = pc.list_parent_indices(m2).filter(pc.greater(pc.list_flatten(m2), 0.0))
    stats = stats.take(pc.unique(moving))
    moved = pc.binary_join_element_wise(stats["episode_id"], stats["feature"], _SEPARATOR)
    episode = rows["episode_id"].take(streams["row"])
    key = pc.binary_join_element_wise(episode, streams["feature"], _SEPARATOR)
    is_feature = pc.is_valid(streams["feature"]).to_numpy()
    changes[is_feature] = pc.is_in(key, value_set=moved.combine_chunks()).to_numpy()[is_feature]
    return changes

"""Is a copy of rows the same rows? Compared value by value, and against their own checksums."""

from collections.abc import Collection, Sequence
from typing import Final

import lance
import pyarrow as pa

from lake.episode_row import facts_checksum
from lake.errors import CorruptDataError
from lake.raw_read import parse_chunk
from lake.read import parse_signals, signal_columns
from lake.read_video import INDEX_COLUMNS, ByteRange, parse_video_indexes, read_ranges
from lake.store import Lake
from lake.tables import FACTS, TABLES
from lake.take_stored import take_stored_rows
from lake.video_runs import verify_packets

_ROWS: Final = 16
_PLAIN_ROWS: Final = 8192


def check_rows(
    lake: Lake,
    table: str,
    old: tuple[int, Collection[int]],
    new: tuple[int, Collection[int]],
) -> None:
    """Compare fragments with their copy, row by row in order.

    Args:
        lake: where.
        table: name of the table.
        old: its version, and ids of the fragments that were copied.
        new: version that has the copy, and ids of the fragments that are the copy.

    Raises:
        CorruptDataError: names the episode, or the rows, that do not match.
    """
    with lake.errors_named(f"verify the copy of {table}"):
        ours = lake.open_dataset(lake.table_uri(table), version=old[0])
        theirs = lake.open_dataset(lake.table_uri(table), version=new[0])
        mine, its = addresses_of(ours, old[1]), addresses_of(theirs, new[1])
    if len(mine) != len(its):
        raise CorruptDataError(f"table {table}: {len(its)} of {len(mine)} rows were copied")
    step = _ROWS if table in ("trajectories", "raw") else _PLAIN_ROWS
    pinned = lake.at({**lake.newest().versions(), table: new[0]})
    for start in range(0, len(mine), step):
        part = slice(start, start + step)
        if table == "trajectories":
            _check_trajectories(pinned, ours, mine[part], its[part])
            continue
        with lake.errors_named(f"verify the copy of {table}"):
            before = ours._take_rows(mine[part]).combine_chunks()  # noqa: SLF001 - no public take by address
            after = theirs._take_rows(its[part]).combine_chunks()  # noqa: SLF001
        if not _same(before, after):
            raise CorruptDataError(f"table {table}: its rows were not copied as they are")
        if table == "raw":
            for row in range(after.num_rows):
                parse_chunk(after.slice(row, 1), f"table raw, row {its[start + row]}")


def _check_trajectories(
    pinned: Lake, ours: lance.LanceDataset, mine: Sequence[int], its: Sequence[int]
) -> None:
    """The copy has the facts and checksums of the rows, and its values and packets match them."""
    names = [name for name in TABLES["trajectories"].names if name != "video"]
    with pinned.errors_named("verify the copy of trajectories"):
        before = ours._take_rows(list(mine), columns=names).combine_chunks()  # noqa: SLF001
    columns = list(dict.fromkeys([*names, *signal_columns(pinned), *INDEX_COLUMNS]))
    after = take_stored_rows(pinned, its, columns)
    if not _same(before, after.select(names)):
        raise CorruptDataError("table trajectories: its rows were not copied as they are")
    parse_signals(pinned, after, its, columns)
    for row in after.select([*FACTS, "facts_checksum"]).to_pylist():
        if facts_checksum(row) != row["facts_checksum"]:
            raise CorruptDataError(
                f"episode {row['episode_id']}: its facts do not match their checksum"
            )
    for videos in parse_video_indexes(after, its):
        for camera, index in videos.cameras.items():
            at = ByteRange(videos.address, videos.base_offsets[camera], index.num_bytes)
            try:
                verify_packets(index, 0, read_ranges(pinned, [at])[0])
            except CorruptDataError as error:
                raise CorruptDataError(
                    f"episode {videos.episode_id}, camera {camera}: {error}; nothing was changed"
                ) from error


def addresses_of(dataset: lance.LanceDataset, numbers: Collection[int]) -> list[int]:
    """Addresses of the rows of some fragments that were not deleted, ascending."""
    fragments = [f for f in dataset.get_fragments() if f.fragment_id in numbers]
    if not fragments:
        return []
    columns = [dataset.schema.names[0]]
    rows = dataset.scanner(columns=columns, fragments=fragments, with_row_address=True).to_table()
    return sorted(rows["_rowaddr"].to_pylist())


def _same(before: pa.Table, after: pa.Table) -> bool:
    """Equal, where NaN equals NaN."""
    return before.equals(after) or repr(before.to_pylist()) == repr(after.to_pylist())

"""Rewrite fragments of a table into new ones: copied, read back and compared, then switched.

The copy is written beside the table and committed as a detached version, which nobody sees. Only
where every row in it is the row that was there, and matches its checksums, the table is switched to
it by one commit; killed before that, nothing has changed. Older versions keep their files.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import lance
import pyarrow as pa
from lance.fragment import write_fragments

from lake.errors import CommitConflictError, LakeError
from lake.files import delete_files
from lake.rewrite_check import addresses_of, check_rows
from lake.store import Lake
from lake.tables import STORAGE_VERSION

_ATTEMPTS: Final = 12
_VIDEO_BYTES: Final = 8 << 20
_ROWS: Final = 1024
_RAW_ROWS: Final = 8


def rewrite_fragments(lake: Lake, table: str, numbers: Sequence[int]) -> int:
    """Replace fragments by one with their rows, in their order; returns the table's new version.

    Args:
        lake: where; what it sees does not matter.
        table: name of the table.
        numbers: ids of fragments of its newest version.

    Raises:
        CorruptDataError: a row does not match its checksums, or its copy is not the same; nothing
            was changed.
        CommitConflictError: another writer changed these fragments meanwhile; nothing was changed.
        LakeError: the lake cannot be read or written.
    """
    source = lake.latest(table)
    found = {f.fragment_id: f.metadata for f in source.get_fragments()}
    old = [found[number] for number in numbers]
    options = dict(lake.storage_options)
    with lake.errors_named(f"rewrite {table}"):
        copy = write_fragments(
            pa.RecordBatchReader.from_batches(source.schema, _rows(source, numbers)),
            lake.table_uri(table),
            mode="append",
            return_transaction=True,
            data_storage_version=STORAGE_VERSION,
            storage_options=options,
        )
        change = lance.LanceOperation.Rewrite(
            groups=[
                lance.LanceOperation.RewriteGroup(
                    old_fragments=old,
                    new_fragments=copy.operation.fragments,  # type: ignore[attr-defined] # an Append
                )
            ],
            rewritten_indices=[],
        )
        detached = lance.LanceDataset.commit(
            lake.table_uri(table),
            change,
            read_version=source.version,
            detached=True,
            storage_options=options,
        )
    try:
        its = {f.fragment_id for f in detached.get_fragments()} - found.keys()
        check_rows(lake, table, (source.version, numbers), (detached.version, its))
    finally:
        # It keeps no file alive, but nobody needs it any more.
        delete_files(lake, [f"{table}.lance/_versions/d{detached.version}.manifest"])
    return _switch(lake, table, source, old, change)


def _rows(dataset: lance.LanceDataset, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The rows of fragments, in order, as they are to be written."""
    if "video" not in dataset.schema.names:
        rows = _RAW_ROWS if "payload" in dataset.schema.names else _ROWS
        for fragment in (f for f in dataset.get_fragments() if f.fragment_id in numbers):
            yield from dataset.scanner(fragments=[fragment], batch_size=rows).to_batches()
        return
    names = [name for name in dataset.schema.names if name != "video"]
    for addresses in _by_video(dataset, addresses_of(dataset, numbers)):
        rows = dataset._take_rows(addresses, columns=names).combine_chunks()  # noqa: SLF001 - no public take by address
        blobs = dataset.read_blobs("video", addresses=addresses, preserve_order=True)
        if len(blobs) != len(addresses) or rows.num_rows != len(addresses):
            raise LakeError(f"{len(blobs)} blobs and {rows.num_rows} of {len(addresses)} rows came")
        video = lance.blob_array([data for _, data in blobs])
        arrays = [
            video if name == "video" else rows[name].chunk(0) for name in dataset.schema.names
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=dataset.schema)


def _by_video(dataset: lance.LanceDataset, addresses: list[int]) -> Iterator[list[int]]:
    """The addresses in groups whose video fits into memory."""
    group: list[int] = []
    held = 0
    for start in range(0, len(addresses), _ROWS):
        part = addresses[start : start + _ROWS]
        sizes = dataset._take_rows(part, columns=["camera_bytes"])["camera_bytes"].to_pylist()  # noqa: SLF001
        for address, cameras in zip(part, sizes, strict=True):
            if group and held + sum(cameras) > _VIDEO_BYTES:
                yield group
                group, held = [], 0
            group.append(address)
            held += sum(cameras)
    if group:
        yield group


def _switch(
    lake: Lake,
    table: str,
    source: lance.LanceDataset,
    old: Sequence[lance.FragmentMetadata],
    change: lance.LanceOperation.Rewrite,
) -> int:
    """Commit the change on top of whatever others committed, if they left `old` alone."""
    for _ in range(_ATTEMPTS):
        latest = lake.latest(table)
        now = {f.fragment_id: f.metadata for f in latest.get_fragments()}
        if latest.schema != source.schema or any(now.get(f.id) != f for f in old):
            raise CommitConflictError(
                f"{lake.uri}: table {table} was changed while it was being rewritten; nothing was"
                " changed by this, run the same command again"
            )
        try:
            with lake.errors_named(f"switch {table} to its copy"):
                done = lance.LanceDataset.commit(
                    lake.table_uri(table),
                    change,
                    read_version=latest.version,
                    max_retries=0,
                    storage_options=dict(lake.storage_options),
                )
            return int(done.version)
        except LakeError:
            newest = lake.latest(table)
            after = {f.fragment_id for f in newest.get_fragments()}
            if not after.intersection(f.id for f in old):
                return int(newest.version)  # it came through, its reply did not
            if newest.version == latest.version:
                raise
    raise CommitConflictError(
        f"{lake.uri}: other writers to {table} were first {_ATTEMPTS} times; nothing was changed by"
        " this, run the same command again"
    )

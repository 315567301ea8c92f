"""Chunks of recordings on their way into the table `raw`."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import write_fragments
from numpy.typing import NDArray

from lake.append import commit_append
from lake.create import ensure_table
from lake.episode import Episode
from lake.errors import SpecError
from lake.feature_arrays import one_row
from lake.raw import RawChunk
from lake.store import Lake
from lake.tables import CLOCKS, OPTIONAL_TABLES, STORAGE_VERSION

_TOGETHER_BYTES: Final = 8 << 20
_SCHEMA: Final = OPTIONAL_TABLES["raw"]


class RawBatch:
    """The raw rows of one commit: written as they come, in the table only with `commit`.

    Rows of an episode that has little are held, and share a file with those of others; what is
    more goes to a file of its own chunk by chunk, so memory does not grow with the recording.

    Attributes:
        num_bytes: bytes of the rows that are held.
    """

    def __init__(self, lake: Lake, commit_id: str) -> None:
        self.num_bytes = 0
        self._lake = lake
        self._commit_id = commit_id
        self._held: list[pa.RecordBatch] = []
        self._written: list[lance.Transaction] = []

    def add(self, episode: Episode, chunks: Iterable[RawChunk]) -> None:
        """Take the chunks of an episode; where they end in an error, none of them counts.

        Raises:
            SpecError: a chunk refers to a frame that the episode does not have.
        """
        rows = _rows(episode, self._commit_id, chunks)
        held: list[pa.RecordBatch] = []
        num_bytes = 0
        for row in rows:
            held.append(row)
            num_bytes += row.nbytes
            if num_bytes > _TOGETHER_BYTES:
                self._written.append(self._write(held, rows))
                return
        self._held += held
        self.num_bytes += num_bytes

    def commit(self) -> int | None:
        """Put the rows into the table; returns its version, None where there are no rows.

        Raises:
            CommitConflictError: see `commit_append`.
        """
        if self._held:
            self._written.append(self._write(self._held, iter(())))
            self._held, self.num_bytes = [], 0
        if not self._written:
            return None
        written, self._written = self._written, []
        return commit_append(self._lake, "raw", written, self._commit_id)

    def _write(
        self, first: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]
    ) -> lance.Transaction:
        """Write rows to files that no version of the table names yet."""
        if not self._written:
            ensure_table(self._lake, "raw")
        failed: list[BaseException] = []

        def rows() -> Iterator[pa.RecordBatch]:
            while first:
                yield first.pop(0)
            try:
                yield from rest
            except BaseException as error:  # Lance would raise one of its own, with text alone
                failed.append(error)
                raise

        try:
            with self._lake.errors_named("write raw"):
                return write_fragments(
                    pa.RecordBatchReader.from_batches(_SCHEMA, rows()),
                    self._lake.table_uri("raw"),
                    mode="append",
                    return_transaction=True,
                    data_storage_version=STORAGE_VERSION,
                    storage_options=dict(self._lake.storage_options),
                )
        except BaseException:
            if failed:
                raise failed[0] from None
            raise


def _rows(episode: Episode, commit_id: str, chunks: Iterable[RawChunk]) -> Iterator[pa.RecordBatch]:
    number: dict[str, int] = {}
    for chunk in chunks:
        name = chunk.stream.name
        _check_frames(episode, chunk)
        yield _row(episode, commit_id, chunk, number.get(name, 0))
        number[name] = number.get(name, 0) + 1


def _check_frames(episode: Episode, chunk: RawChunk) -> None:
    if chunk.camera is None or chunk.frames is None:
        return
    where = f"episode {episode.episode_id}, raw stream {chunk.stream.name}"
    if chunk.camera not in episode.cameras:
        raise SpecError(f"{where}: it refers to camera {chunk.camera}, which the episode lacks")
    wanted = chunk.frames[chunk.frames >= 0]
    missing = wanted[~np.isin(wanted, episode.cameras[chunk.camera].index.packet_frame)]
    if len(missing):
        raise SpecError(f"{where}: camera {chunk.camera} has no frame {missing[0]}")


def _row(episode: Episode, commit_id: str, chunk: RawChunk, number: int) -> pa.RecordBatch:
    stream = chunk.stream
    lists: dict[str, NDArray[Any] | None] = {
        f"{clock}_ns": chunk.clocks.get(clock) for clock in CLOCKS
    }
    for name in ("sequence", "sizes", "frames", "frame_at"):
        lists[name] = getattr(chunk, name)
    row: dict[str, object] = {
        "episode_id": episode.episode_id,
        "ingest_key": episode.ingest_key,
        "commit_id": commit_id,
        "stream": stream.name,
        "chunk": number,
        "num_messages": chunk.num_messages,
        "schema_name": stream.schema_name,
        "schema_encoding": stream.schema_encoding,
        "schema": stream.schema,
        "message_encoding": stream.message_encoding,
        "metadata_json": json.dumps(dict(stream.metadata), sort_keys=True),
        "camera": chunk.camera,
        "checksum": chunk.checksum(),
    }
    arrays = []
    for column in _SCHEMA:
        values = lists.get(column.name)
        if column.name == "payload":
            arrays.append(_binary(chunk.payload))
        elif values is not None:
            arrays.append(one_row(values, column.type.value_type))
        else:
            arrays.append(pa.array([row.get(column.name)], column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _binary(payload: bytes | memoryview) -> pa.Array:
    """One row of large_binary that borrows the payload."""
    ends = pa.py_buffer(np.array([0, len(payload)], np.int64))
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(payload)])

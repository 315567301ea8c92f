"""The rows of one episode out of a parquet file, found by value and read by row group.

Row groups and episodes need not coincide: the groups that hold an episode are read, and kept until
another episode needs others, so a file with one big group is decoded once.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.lerobot.episodes import EpisodeRecord
from ingest.lerobot.parquet_errors import PARQUET_ERRORS
from ingest.source import Finding


class DataFile:
    """One open parquet file of a dataset.

    Attributes:
        where: path relative to the dataset's root.
        schema: Arrow schema of its rows.
        num_rows: rows in the file.
        episode_index: int64 [num_rows], or None where the file has no such column.
    """

    def __init__(self, root: Path, where: str) -> None:
        """Open `root / where`.

        Raises:
            EpisodeError: `missing-data-file`, `empty-file`, `unfinished-parquet` (its writer was
                killed before the footer), `unreadable-file`.
        """
        self.where = where
        path = root / where
        if not path.is_file():
            raise EpisodeError(
                f"{path}: missing file, listed in the metadata; download it, then ingest again",
                reason="missing-data-file",
            )
        try:
            if path.stat().st_size == 0:
                raise EpisodeError(f"{path}: empty file (0 bytes)", reason="empty-file")
            self._file = pq.ParquetFile(path)
            self.schema: pa.Schema = self._file.schema_arrow
            self.num_rows: int = self._file.metadata.num_rows
            self.episode_index = self._read_ints("episode_index")
        except PARQUET_ERRORS as error:
            unfinished = "magic bytes" in str(error)
            hint = " (its writer was stopped before it finished the file)" if unfinished else ""
            raise EpisodeError(
                f"{path}: {error}{hint}",
                reason="unfinished-parquet" if unfinished else "unreadable-file",
            ) from error
        groups = self._file.metadata
        sizes = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
        self._group_starts: NDArray[np.int64] = np.cumsum([0, *sizes], dtype=np.int64)
        self._cached: tuple[int, int, pa.Table] | None = None

    def close(self) -> None:
        """Close the file and drop the cached rows."""
        self._file.close()
        self._cached = None

    def episode_rows(
        self, record: EpisodeRecord, *, shared: bool, first_row: int
    ) -> tuple[pa.Table, list[Finding]]:
        """All columns of one episode's rows, in the order of the file.

        Args:
            record: the episode.
            shared: True where the file holds several episodes (v3): rows are chosen by their
                `episode_index`. Otherwise all rows are the episode's.
            first_row: global row at which the file starts, for files without `episode_index`.

        Raises:
            EpisodeError: `missing-rows`: the file holds no row of the episode.
        """
        findings: list[Finding] = []
        rows = self._choose(record, shared=shared, first_row=first_row)
        if rows.size == 0:
            raise EpisodeError(
                f"{self.where}: holds no row of {record.locator}", reason="missing-rows"
            )

        def warn(reason: str, detail: str, stream: str = "") -> None:
            findings.append(
                Finding(
                    severity="warning",
                    reason=reason,
                    where=self.where,
                    detail=detail,
                    episode=record.locator,
                    stream=stream,
                )
            )

        if record.length is not None and record.length != rows.size:
            warn(
                "wrong-count",
                f"{record.length} steps are declared, {rows.size} rows are there; all rows are"
                " used",
            )
        own = self.episode_index
        if not shared and own is not None and (own != record.index).any():
            warn(
                "wrong-episode-index",
                f"rows say episode {own[own != record.index][0]}; the file's place says"
                f" {record.index} and is used",
                "episode_index",
            )
        start, stop = int(rows[0]), int(rows[-1]) + 1
        table = self._read(start, stop)
        if stop - start != rows.size:
            warn("scattered-rows", "rows of other episodes lie between; they are left out")
            table = table.take(pa.array(rows - start))
        return table, findings

    def count_unlisted(self, listed: Sequence[int]) -> int:
        """Rows whose `episode_index` is not among `listed`."""
        if self.episode_index is None:
            return 0
        return int((~np.isin(self.episode_index, np.asarray(listed, dtype=np.int64))).sum())

    def _choose(self, record: EpisodeRecord, *, shared: bool, first_row: int) -> NDArray[np.int64]:
        if not shared:
            return np.arange(self.num_rows, dtype=np.int64)
        if self.episode_index is not None:
            return np.flatnonzero(self.episode_index == record.index).astype(np.int64)
        if record.row_range is None:
            return np.empty(0, np.int64)
        start, stop = (min(max(r - first_row, 0), self.num_rows) for r in record.row_range)
        return np.arange(start, stop, dtype=np.int64)

    def _read(self, start: int, stop: int) -> pa.Table:
        first = int(np.searchsorted(self._group_starts, start, side="right")) - 1
        last = int(np.searchsorted(self._group_starts, stop, side="left"))
        if self._cached is None or self._cached[:2] != (first, last):
            try:
                table = self._file.read_row_groups(list(range(first, last)), use_threads=False)
            except PARQUET_ERRORS as error:
                raise EpisodeError(
                    f"{self.where}: rows {start} to {stop} cannot be read ({error})",
                    reason="unreadable-rows",
                ) from error
            self._cached = (first, last, table)
        offset = start - int(self._group_starts[first])
        return self._cached[2].slice(offset, stop - start)

    def _read_ints(self, name: str) -> NDArray[np.int64] | None:
        if name not in self.schema.names or not pa.types.is_integer(self.schema.field(name).type):
            return None
        column = self._file.read(columns=[name], use_threads=False)[name]
        if column.null_count:
            return None
        return np.asarray(column.to_numpy(), dtype=np.int64)

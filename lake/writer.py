"""Writing episodes: batched, atomic, resumable, safe against other writers.

One commit is three steps, in this order:

1. `specs`, `episodes`, `stats`: insert-only merges by key, so doing them twice changes nothing;
   then `raw`, where there are recordings: one append, rows tagged with a fresh commit id;
2. `trajectories`: one append, rows tagged with the same commit id, not yet visible;
3. the ledger: one insert-only merge, one row per episode; from here on they are visible.

Killed between any two, the lake reads as before the commit, and the next writer adopts what
step 2 left (see `lake.ledger`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from lance.fragment import write_fragments

from lake.append import commit_append
from lake.edit.log import edit_state
from lake.episode import Episode
from lake.episode_row import EpisodeRows, episode_rows
from lake.errors import LakeError, SpecError
from lake.insert import insert_new
from lake.ledger import LedgerEntry, ledger_rows, new_commit_id, orphans, record
from lake.object_store import require_conditional_put
from lake.quarantine import QuarantineEntry, quarantine_rows
from lake.raw import RawChunk
from lake.raw_write import RawBatch
from lake.retry import until_won
from lake.store import Lake
from lake.tables import STORAGE_VERSION, TABLES

_ROWS_PER_FILE: Final = 8192


@dataclass(kw_only=True)
class WriteReport:
    """What a writer did.

    Attributes:
        written: episodes made visible by this writer.
        adopted: episodes a dead writer had left, made visible by this one.
        present: episodes that were there already, deleted ones and purged ones included (or that
            a racing writer made visible first).
        quarantined: refusals recorded for the first time.
        commits: commits made.
    """

    written: int = 0
    adopted: int = 0
    present: int = 0
    quarantined: int = 0
    commits: int = 0


class EpisodeWriter:
    """Adds episodes to a lake; a context manager.

    Commits whenever `batch_episodes` or `batch_bytes` are pending, and the rest on a clean exit.
    When the block raises, pending episodes are dropped uncommitted and what was committed stays.
    Any number of writers may work on one lake; one writer belongs to one thread.

    Args:
        lake: an unpinned lake.
        batch_episodes: episodes per commit. Commits are not free: at scale use 1,000 and more.
        batch_bytes: bytes held in memory before a commit.

    Raises:
        LakeError: the lake is pinned to versions.
        CommitConflictError: the object store cannot promise an atomic commit.
    """

    def __init__(
        self, lake: Lake, *, batch_episodes: int = 1024, batch_bytes: int = 256 << 20
    ) -> None:
        if lake.pinned is not None:
            raise LakeError(f"{lake.uri}: a lake pinned to versions cannot be written")
        require_conditional_put(lake.uri, lake.storage_options)
        self.report = WriteReport()
        self._lake = lake
        self._batch_episodes = batch_episodes
        self._batch_bytes = batch_bytes
        lake.refresh()
        edits = edit_state(lake)
        ledger = ledger_rows(lake)
        # What was purged is not to come back, nor may another episode be taken for it.
        self._visible = {*ledger["ingest_key"].to_pylist(), *edits.purged_keys}
        self._ids = {*ledger["episode_id"].to_pylist(), *edits.hidden, *edits.views}
        left = orphans(lake, ledger)
        self._orphans = {e.ingest_key: e for e in left if e.ingest_key not in self._visible}
        self._specs: set[str] = set()
        self._met: set[str] = set()
        self._adopt: list[LedgerEntry] = []
        self._refused: list[QuarantineEntry] = []
        self._begin()

    def _begin(self) -> None:
        self._commit_id = new_commit_id()
        self._pending: list[EpisodeRows] = []
        self._pending_keys: dict[str, str] = {}
        self._pending_bytes = 0
        self._raw = RawBatch(self._lake, self._commit_id)

    def has(self, ingest_key: str) -> bool:
        """True where the episode need not be read again.

        That is: it is visible, or pending in this writer, or a dead writer left its row; in the
        last case it becomes visible with the next commit.
        """
        entry = self._orphans.pop(ingest_key, None)
        if entry is not None:
            self._adopt.append(entry)
            self._visible.add(ingest_key)
            self._met.add(ingest_key)
            self._ids.add(entry.episode_id)
            return True
        if ingest_key in self._visible:
            if ingest_key not in self._met:
                self._met.add(ingest_key)
                self.report.present += 1
            return True
        return ingest_key in self._pending_keys

    def add(self, episode: Episode, raw: Iterable[RawChunk] | None = None) -> None:
        """Add an episode; one that `has` knows is not written again, and its `raw` not read.

        Args:
            episode: the episode.
            raw: its recording, chunk by chunk (see `lake.raw_chunks.chunk_messages`); the chunks
                of a stream in order, streams in any. Long ones are written as they come.

        Raises:
            SpecError: the episode holds what the lake would not give back as it is, or its id
                belongs to another episode.
        """
        if self.has(episode.ingest_key):
            return
        if episode.episode_id in self._ids:
            raise SpecError(
                f"episode {episode.episode_id}: the lake holds another episode of this id; give"
                " the dataset another name"
            )
        rows = episode_rows(episode, self._commit_id)
        if raw is not None:
            self._raw.add(episode, raw)
        self._pending.append(rows)
        self._pending_keys[episode.ingest_key] = episode.episode_id
        self._ids.add(episode.episode_id)
        self._pending_bytes += rows.num_bytes
        held = self._pending_bytes + self._raw.num_bytes
        if len(self._pending) >= self._batch_episodes or held >= self._batch_bytes:
            self.commit()

    def refuse(self, entry: QuarantineEntry) -> None:
        """Record a refusal with the next commit; the same refusal met again is one row."""
        self._refused.append(entry)

    def commit(self) -> None:
        """Commit what is pending; does nothing where nothing is.

        Raises:
            CommitConflictError: other writers kept winning, or it is unknown whether the append
                came through; in both cases run again, nothing is lost or doubled.
        """
        if not (self._pending or self._adopt or self._refused):
            return
        if self._refused:
            rows = quarantine_rows(self._refused)
            self.report.quarantined += insert_new(self._lake, "quarantine", rows)
            self._refused = []
        versions: dict[str, int] = {}
        if self._pending:
            versions = self._insert_labels()
            raw = self._raw.commit()
            if raw is not None:
                versions["raw"] = raw
            versions["trajectories"] = append_trajectories(
                self._lake, [rows.trajectory for rows in self._pending], self._commit_id
            )
        self._record(versions)
        self.report.commits += 1
        self._begin()

    def _insert_labels(self) -> dict[str, int]:
        specs = {rows.spec.spec_id: rows.spec for rows in self._pending}
        new = {spec_id: spec for spec_id, spec in specs.items() if spec_id not in self._specs}
        insert_new(
            self._lake,
            "specs",
            pa.table(
                {"spec_id": list(new), "spec_json": [spec.to_json() for spec in new.values()]}
            ),
        )
        self._specs |= set(new)
        labels = pa.Table.from_pylist([r.label for r in self._pending], schema=TABLES["episodes"])
        insert_new(self._lake, "episodes", labels)
        stats = [row for rows in self._pending for row in rows.stats]
        insert_new(self._lake, "stats", pa.Table.from_pylist(stats, schema=TABLES["stats"]))
        return {name: self._lake.latest(name).version for name in ("specs", "episodes", "stats")}

    def _record(self, versions: dict[str, int]) -> None:
        mine = [LedgerEntry(k, self._commit_id, e) for k, e in self._pending_keys.items()]
        self.report.adopted += record(self._lake, self._adopt, versions)
        written = record(self._lake, mine, versions)
        self.report.written += written
        self.report.present += len(mine) - written
        self._visible.update(self._pending_keys)
        self._met.update(self._pending_keys)
        self._adopt = []
        self._lake.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()


def append_trajectories(lake: Lake, rows: Sequence[pa.RecordBatch], commit_id: str) -> int:
    """Append rows as one Lance commit; returns the table's version that holds them.

    Columns that the table lacks are added first, all null, which touches no data.

    Raises:
        CommitConflictError: see `EpisodeWriter.commit`.
    """
    schema = pa.unify_schemas([batch.schema for batch in rows])
    add_missing_columns(lake, schema)
    reader = pa.RecordBatchReader.from_batches(schema, (_widened(b, schema) for b in rows))
    options = dict(lake.storage_options)
    with lake.errors_named("write trajectories"):
        transaction = write_fragments(
            reader,
            lake.table_uri("trajectories"),
            mode="append",
            return_transaction=True,
            max_rows_per_file=_ROWS_PER_FILE,
            data_storage_version=STORAGE_VERSION,
            storage_options=options,
        )
    return commit_append(lake, "trajectories", [transaction], commit_id)


def add_missing_columns(lake: Lake, schema: pa.Schema) -> None:
    """Add the schema's columns that `trajectories` lacks, whoever else is doing so.

    Raises:
        CommitConflictError: other writers kept winning.
    """

    def add() -> None:
        table = lake.latest("trajectories")
        missing = [field for field in schema if field.name not in table.schema.names]
        if missing:
            table.add_columns(missing)

    until_won(lake, "add feature columns", add)


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with null columns for those of `schema` that it lacks."""
    have = set(batch.schema.names)
    arrays = [
        batch.column(field.name) if field.name in have else pa.nulls(1, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

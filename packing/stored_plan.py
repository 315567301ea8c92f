"""A saved plan whose tables stay where they lie: a part is read when it is asked for, and checked.

A plan of ten million spans takes half a gigabyte in memory. A loader eats it from front to back, so
that two chunks of its packs are enough at any time; of the episodes and texts it wants all.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, Self

import lance
import numpy as np
import pyarrow as pa

from lake.errors import LakeError
from lake.store import Lake
from packing.errors import PlanError
from packing.plan import TABLE_SCHEMAS, Plan
from packing.plan_digests import DIGESTS_SCHEMA, ChunkDigests, match_header
from packing.plan_header import PlanHeader
from packing.plan_store import (
    PlanEntry,
    find_plan,
    load_plan,
    plan_location,
    read_header_json,
)
from packing.reading import Reading, read_once

_CHUNKS_HELD: Final = 2  # packs of one look-ahead may lie on both sides of a boundary
_CACHE_BYTES: Final = 4 << 20  # where pages of the tables lie; Lance's own default is 1 GiB


class StoredPlan:
    """A saved plan, with what a loader asks of a `Plan`; safe to share between threads.

    Nothing of the tables is read before it is asked for. Like a `Lake`, it is not inherited
    through fork; it may be pickled, and where it is unpickled nothing is read either.

    Attributes:
        header: everything but the tables.
        digests: the plan's table `digests`.

    Args:
        lake: that holds the plan.
        header: as saved.
        digests: see `packing.plan_digests`.
        reading: how tables are read.

    Raises:
        PlanError: the digests are of another plan.
    """

    def __init__(
        self,
        lake: Lake,
        header: PlanHeader,
        digests: pa.Table,
        reading: Reading = read_once,
    ) -> None:
        self.header: Final = header
        self.digests: Final = digests
        self._lake = lake
        self._reading = reading
        try:
            self._chunks = {
                table: ChunkDigests.of(digests, table) for table in ("packs", "episodes", "texts")
            }
        except PlanError as error:
            raise PlanError(f"plan {header.plan_hash}: {error}") from error
        packs = header.num_steps * header.slots_per_step
        if self._chunks["packs"].num_rows != packs:
            raise PlanError(
                f"plan {header.plan_hash}: it has {packs} packs, but its digests are of"
                f" {self._chunks['packs'].num_rows}"
            )
        self._lock = threading.RLock()
        self._datasets: dict[str, lance.LanceDataset] = {}
        self._whole: dict[str, pa.Table] = {}
        self._held: OrderedDict[int, pa.Table] = OrderedDict()

    def read_by(self, lake: Lake, reading: Reading) -> Self:
        """The same plan with nothing read yet, to be read through another handle on its lake."""
        return type(self)(lake, self.header, self.digests, reading)

    @property
    def plan_hash(self) -> str:
        """Hash of the plan's content."""
        return self.header.plan_hash

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole plan."""
        return self.header.num_steps

    @property
    def episodes(self) -> pa.Table:
        """The whole table `episodes`, read once.

        Raises:
            PlanError: it cannot be read, or is not what was saved.
        """
        return self._table("episodes")

    @property
    def texts(self) -> pa.Table:
        """The whole table `texts`, read once.

        Raises:
            PlanError: it cannot be read, or is not what was saved.
        """
        return self._table("texts")

    def take_packs(self, rows: Sequence[int]) -> pa.Table:
        """Some rows of `packs`, in their order; near ones are read together.

        Raises:
            PlanError: they cannot be read, or are not what was saved.
        """
        wanted = np.asarray(rows, np.int64)
        begins = self._chunks["packs"].first_row
        chunk_of = np.searchsorted(begins, wanted, side="right") - 1
        chunks, which = np.unique(chunk_of, return_inverse=True)
        tables = [self._packs(int(number)) for number in chunks]
        lengths = np.array([table.num_rows for table in tables], np.int64)
        moved = np.cumsum(lengths) - lengths - begins[chunks]  # from the plan's rows to theirs
        together = pa.concat_tables(tables) if tables else TABLE_SCHEMAS["packs"].empty_table()
        return together.take(pa.array(wanted + moved[which], pa.int64())).combine_chunks()

    def _packs(self, number: int) -> pa.Table:
        with self._lock:
            if number not in self._held:
                first, stop = self._chunks["packs"].first_row[number : number + 2].tolist()
                self._held[number] = self._read("packs", first, stop)
                while len(self._held) > _CHUNKS_HELD:
                    self._held.popitem(last=False)
            self._held.move_to_end(number)
            return self._held[number]

    def _table(self, table: str) -> pa.Table:
        with self._lock:
            if table not in self._whole:
                self._whole[table] = self._read(table, 0, self._chunks[table].num_rows)
            return self._whole[table]

    def _read(self, table: str, first: int, stop: int) -> pa.Table:
        """Rows of a table, whole chunks of it; what arrives damaged is read once more."""
        where = f"{self._lake.uri}: plan {self.plan_hash}: table {table}"
        damaged: tuple[int, int] | None = None
        for _ in range(2):
            try:
                rows = self._reading(
                    lambda: f"the plan's table {table}", lambda: self._rows(table, first, stop)
                )
            except LakeError as error:
                raise PlanError(f"{where}, rows {first} to {stop - 1}: {error}") from error
            damaged = self._chunks[table].first_damaged(rows, first, stop)
            if damaged is None:
                break
            del self._datasets[table]
        if damaged is not None:
            raise PlanError(
                f"{where}, rows {damaged[0]} to {damaged[1] - 1} are not what was saved: they were"
                f" damaged or changed; restore {plan_location(self.plan_hash)}/{table}.lance from a"
                " copy, or make another plan (of another seed, say)"
            )
        return rows

    def _rows(self, table: str, first: int, stop: int) -> pa.Table:
        try:
            with self._lake.errors_named("cannot be read"):
                if table not in self._datasets:
                    self._datasets[table] = _open(self._lake, self.plan_hash, table)
                rows = self._datasets[table].to_table(offset=first, limit=stop - first)
                return rows.cast(TABLE_SCHEMAS[table]).combine_chunks()
        except LakeError:
            self._datasets.pop(table, None)  # what is read next may need other credentials
            raise

    def __getstate__(self) -> dict[str, Any]:
        options = dict(self._lake.storage_options)
        lake = (self._lake.uri, options)
        return {"lake": lake, "header": self.header, "digests": self.digests}

    def __setstate__(self, state: dict[str, Any]) -> None:
        lake = Lake(*state["lake"])  # which was opened where this plan was
        self.__init__(lake, state["header"], state["digests"])  # type: ignore[misc] # as if made anew


AnyPlan = Plan | StoredPlan


def open_plan(lake: Lake, name_or_hash: str, reading: Reading = read_once) -> AnyPlan:
    """A saved plan for streaming: left in the lake, or in memory where it was saved before digests.

    Args:
        lake: that holds it.
        name_or_hash: see `packing.plan_store.find_plan`.
        reading: how the registry and the digests are read, and the tables where there are none.

    Raises:
        PlanError: unknown or ambiguous, of another layout version, or damaged.
        LakeError: the lake cannot be read.
    """

    def registered() -> tuple[PlanEntry, str]:
        entry = find_plan(lake, name_or_hash)
        return entry, read_header_json(lake, entry)

    def read_digests() -> pa.Table:
        with lake.errors_named("read its digests"):
            return _open(lake, entry.plan_hash, "digests").to_table().cast(DIGESTS_SCHEMA)

    entry, header_json = reading(lambda: f"the entry of plan {name_or_hash}", registered)
    header = PlanHeader.from_json(header_json)
    try:
        digests = reading(lambda: f"the digests of plan {entry.name}", read_digests)
    except LakeError as error:
        if "was not found" not in str(error):
            raise PlanError(f"plan {entry.name}: {error}") from error
        return load_plan(lake, entry.plan_hash, reading)
    if header.plan_hash != entry.plan_hash or not match_header(digests, header_json):
        raise PlanError(
            f"plan {entry.name}: its header, or its table digests, is not what was saved: it was"
            f" damaged or changed; where `headrace plan verify {lake.uri} {entry.name}` finds the"
            f" plan whole, delete {plan_location(entry.plan_hash)}/digests.lance, and it is loaded"
            " whole from then on"
        )
    return StoredPlan(lake, header, digests)


def _open(lake: Lake, plan_hash: str, table: str) -> lance.LanceDataset:
    return lake.open_dataset(
        f"{lake.uri}/{plan_location(plan_hash)}/{table}.lance",
        metadata_cache_size_bytes=_CACHE_BYTES,
        index_cache_size_bytes=_CACHE_BYTES,
    )

"""Writing the packs of a plan one after the other, so that a loader reads each in one go.

Processes write chunks of packs into data files; this one commits them in the plan's order (see
`loader.materialized.pack_set`). Killed anywhere, what was committed stays, and the same call goes
on behind it. Several at once do not harm each other: whoever is first with the next rows adds them.
"""

from collections.abc import Callable, Iterator
from typing import Final

from lance.fragment import FragmentMetadata

from lake.errors import LakeError
from lake.object_store import require_conditional_put
from lake.store import Lake
from loader.errors import LoaderError
from loader.materialized.pack_set import MaterializedSet
from loader.materialized.process_pool import Chunk, InlinePool, ProcessPool
from loader.materialized.settings import MaterializedSettings
from packing.plan_store import find_plan
from packing.stored_plan import AnyPlan

_CHUNK_PACKS: Final = 128
_CHUNKS_PER_COMMIT: Final = 1 / 64  # of those that are committed

OnProgress = Callable[[int, int, int], None]


def materialize(
    lake: Lake,
    plan: AnyPlan,
    settings: MaterializedSettings | None = None,
    *,
    workers: int = 1,
    chunk_packs: int = _CHUNK_PACKS,
    on_progress: OnProgress = lambda _done, _total, _size: None,
) -> MaterializedSet:
    """Write the packs of a saved plan as a set, or complete one; a complete set is left as it is.

    What the set holds depends on plan and settings alone, whatever the number of workers and
    however often it was interrupted.

    Args:
        lake: that holds the plan, not pinned.
        plan: saved there.
        settings: how pictures are kept; by default packets are copied.
        workers: processes that write; 0 writes in this one.
        chunk_packs: packs that a process writes in one go, and that are lost when it is killed.
        on_progress: called with the packs written so far, those of the plan, and the bytes written
            by this call.

    Returns:
        The complete set.

    Raises:
        PlanError: the plan is not saved in this lake.
        LoaderError: an argument is not usable, or a process died.
        LakeError: an episode cannot be read, or the set cannot be written; names which.
    """
    if workers < 0 or chunk_packs < 1:
        raise LoaderError(f"workers={workers}, chunk_packs={chunk_packs}: at least 0 and 1")
    if lake.pinned is not None:
        raise LakeError(f"{lake.uri}: a lake pinned to versions cannot be written")
    find_plan(lake, plan.plan_hash)
    require_conditional_put(lake.uri, lake.storage_options)
    target = MaterializedSet.create(lake, plan.header, settings or MaterializedSettings())
    ours = target.complete
    if not target.complete:
        pool = ProcessPool(target, plan, workers) if workers else InlinePool(target, plan)
        with pool:
            ours = _Writing(target, pool, chunk_packs, on_progress).run()
    # Whoever committed last cleans up; if it was killed before it did, the next call does.
    if ours and target.has_former_versions:
        target.clean_up()
    return target


class _Writing:
    """One call of `materialize`: which chunks are under way, and which wait to be committed."""

    def __init__(
        self,
        target: MaterializedSet,
        pool: ProcessPool | InlinePool,
        chunk_packs: int,
        on_progress: OnProgress,
    ) -> None:
        self._target = target
        self._pool = pool
        self._chunk_packs = chunk_packs
        self._on_progress = on_progress
        self._under_way: set[Chunk] = set()
        self._waiting: dict[int, tuple[int, list[FragmentMetadata]]] = {}  # first -> stop, files
        self._packs = target.packs
        self._bytes = 0

    def run(self) -> bool:
        """Until the set is complete; whether it was completed here."""
        self._on_progress(self._packs, self._target.num_packs, 0)
        ours = False
        while not self._target.complete:
            self._submit()
            try:
                self._collect()
            except LakeError:
                # Who completes a set cleans up, also files that we are still writing.
                self._target.reload()
                if self._target.packs < self._target.num_packs:
                    raise
                return False
            ours = self._commit()
        return ours

    def _collect(self) -> None:
        for written in self._pool.written(self._count):
            self._under_way.discard(written.chunk)
            first, stop = written.chunk
            if first >= self._target.packs:  # else others were first
                self._waiting[first] = stop, written.fragments

    def _submit(self) -> None:
        """Keep the processes busy with the next chunks."""
        for chunk in self._missing():
            if not self._pool.idle:
                break
            self._pool.submit(chunk)
            self._under_way.add(chunk)

    def _missing(self) -> Iterator[Chunk]:
        """The chunks that nobody has written or is writing, in order."""
        first = self._target.packs
        under_way = dict(self._under_way)
        while first < self._target.num_packs:
            if first in self._waiting:
                first = self._waiting[first][0]
            elif first in under_way:
                first = under_way[first]
            else:
                # On a grid, so that those who write at once write the same chunks.
                stop = (first // self._chunk_packs + 1) * self._chunk_packs
                stop = min(stop, self._target.num_packs)
                yield first, stop
                first = stop

    def _count(self, size: int) -> None:
        self._packs += 1
        self._bytes += size
        self._on_progress(
            min(self._packs, self._target.num_packs), self._target.num_packs, self._bytes
        )

    def _commit(self) -> bool:
        """Commit the chunks that follow what is committed, once they are enough to be worth it.

        Each commit writes the list of all data files again, so the number of commits must not grow
        with that of the chunks. True where one was made and no other writer was first.
        """
        fragments: list[FragmentMetadata] = []
        stop, chunks = self._target.packs, 0
        while stop in self._waiting:
            stop, more = self._waiting[stop]
            fragments += more
            chunks += 1
        committed = self._target.packs / self._chunk_packs
        if not chunks or (
            chunks < committed * _CHUNKS_PER_COMMIT and stop < self._target.num_packs
        ):
            return False
        won = self._target.commit(fragments)
        there = self._target.packs
        self._waiting = {first: rest for first, rest in self._waiting.items() if first >= there}
        self._under_way = {chunk for chunk in self._under_way if chunk[0] >= there}
        if not won:
            self._packs = max(self._packs, there)
        return won

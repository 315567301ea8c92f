"""Processes that write chunks of packs, and what they report; or the same in this process."""

import contextlib
import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Self

from lance.fragment import FragmentMetadata

from loader.errors import WorkerDiedError
from loader.fetch.plan_rows import PlanRows
from loader.materialized.chunk import ChunkWriter
from loader.materialized.job import MaterializeJob
from loader.materialized.pack_set import MaterializedSet
from loader.process.child_process import ChildProcess
from loader.process.error_wire import error_from_message
from loader.process.plan_wire import plan_to_memfd
from packing.stored_plan import AnyPlan

_MODULE: Final = "loader.materialized.worker"
_SHOW_S: Final = 1.0

Chunk = tuple[int, int]  # packs [first, stop), rows of the plan


@dataclass(frozen=True, kw_only=True)
class WrittenChunk:
    """A chunk in data files that nobody sees yet."""

    chunk: Chunk
    fragments: list[FragmentMetadata]


class ProcessPool:
    """Chunk writers in `workers` processes; a context manager.

    Raises:
        LoaderError: a process cannot be started.
    """

    def __init__(self, target: MaterializedSet, plan: AnyPlan, workers: int) -> None:
        job = MaterializeJob(
            lake_uri=target.lake.uri,
            storage_options=dict(target.lake.storage_options),
            set_name=target.settings.name,
        )
        self._stack = contextlib.ExitStack()
        plan_fd = plan_to_memfd(plan)
        try:
            self._idle = [self._start(job, plan_fd) for _ in range(workers)]
        except BaseException:
            self._stack.close()
            raise
        finally:
            os.close(plan_fd)
        self._busy: dict[int, ChildProcess] = {}

    def _start(self, job: MaterializeJob, plan_fd: int) -> ChildProcess:
        process = ChildProcess(
            _MODULE,
            what="materialising process",
            hint="workers=0 needs none",
        )
        self._stack.enter_context(contextlib.closing(process))
        process.send(job.to_message(), (plan_fd,))
        return process

    @property
    def idle(self) -> int:
        """Processes that could take a chunk."""
        return len(self._idle)

    def submit(self, chunk: Chunk) -> None:
        """Hand a chunk to an idle process."""
        process = self._idle.pop()
        process.send({"chunk": chunk})
        self._busy[process.channel.fileno()] = process

    def written(self, on_pack: Callable[[int], None]) -> Iterator[WrittenChunk]:
        """Wait for reports; the chunks that were finished meanwhile.

        Args:
            on_pack: told the bytes of each pack as it is written.

        Raises:
            HeadraceError: what a process raised.
            WorkerDiedError: one ended without a word.
        """
        poll = select.poll()
        for fd in self._busy:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(_SHOW_S * 1000):
            process = self._busy[fd]
            received = process.channel.receive()
            if received is None:
                raise WorkerDiedError(process.obituary())
            message = received[0]
            if "error" in message:
                raise error_from_message(message)
            if "pack_bytes" in message:
                on_pack(message["pack_bytes"])
                continue
            self._idle.append(self._busy.pop(fd))
            first, stop = message["chunk"]
            told = [FragmentMetadata.from_json(text) for text in message["fragments"]]
            yield WrittenChunk(chunk=(first, stop), fragments=told)
        for process in self._busy.values():
            process.stderr.show()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()


class InlinePool:
    """The same in this process, a chunk at a time, when its report is asked for."""

    def __init__(self, target: MaterializedSet, plan: AnyPlan) -> None:
        self._writer = ChunkWriter(target=target, plan=plan, rows=PlanRows(plan))
        self._chunk: Chunk | None = None

    @property
    def idle(self) -> int:
        """1 where a chunk could be taken, else 0."""
        return int(self._chunk is None)

    def submit(self, chunk: Chunk) -> None:
        """Take a chunk."""
        self._chunk = chunk

    def written(self, on_pack: Callable[[int], None]) -> Iterator[WrittenChunk]:
        """See `ProcessPool.written`."""
        if self._chunk is None:
            return
        chunk, self._chunk = self._chunk, None
        yield WrittenChunk(chunk=chunk, fragments=self._writer.write(*chunk, on_pack))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

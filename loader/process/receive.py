"""The batches of a rank in the order of positions, from its own thread or from decode processes."""

import contextlib
import os
from collections.abc import Generator, Iterator, Sequence

from lake.store import Lake
from loader.cursor import Cursor
from loader.errors import LoaderError
from loader.fetch.fetcher import WINDOW_PACKS
from loader.observe.metrics import LoaderMetrics
from loader.process.child import DecodeProcess
from loader.process.inline import inline_batches
from loader.process.job import Job
from loader.process.plan_wire import plan_to_memfd
from loader.process.received import Received
from packing.stored_plan import AnyPlan


def received_in_order(
    lake: Lake | None,
    plan: AnyPlan,
    cursor: Cursor,
    jobs: Sequence[Job],
    metrics: LoaderMetrics,
) -> Generator[Received]:
    """Batches from the jobs' first step to the plan's end; closing it ends what it started.

    Args:
        lake: to decode in this thread, None to start a process for each job.
        plan: of the jobs.
        cursor: what positions mean.
        jobs: one for each worker, alike but for its number.
        metrics: where to count.

    Raises:
        LoaderError: no process can be started, or one gave another batch than was due.
        HeadraceError: what reading or decoding raised.
    """
    with contextlib.ExitStack() as stack:
        if lake is not None:
            sources = [inline_batches(lake, plan, cursor, jobs[0], metrics)]
        else:
            sources = [child.batches(metrics) for child in _started(plan, jobs, stack)]
        blocks = cursor.blocks(jobs[0].first_step, WINDOW_PACKS)
        for number, block in enumerate(blocks):
            yield from _block(block, sources[number % len(sources)], cursor, metrics)


def _started(
    plan: AnyPlan, jobs: Sequence[Job], stack: contextlib.ExitStack
) -> list[DecodeProcess]:
    plan_fd = plan_to_memfd(plan)
    try:
        return [
            stack.enter_context(contextlib.closing(DecodeProcess(job, plan_fd))) for job in jobs
        ]
    finally:
        os.close(plan_fd)


def _block(
    positions: range, source: Iterator[Received], cursor: Cursor, metrics: LoaderMetrics
) -> Iterator[Received]:
    for position in positions:
        with metrics.waiting(cursor.place(position)):
            received = next(source, None)
        if received is None or received.position != position:
            raise LoaderError(
                f"the stream broke at position {position}: got"
                f" {received.position if received else 'its end'}; please report this"
            )
        yield received
        del received

"""The decode process of a rank: `python -P -m loader.process.worker FD`.

It imports neither torch nor the user's program. Its first message is a `Job` with the plan's memfd;
then it sends batches as they are ready, as far ahead as its bytes allow, until the plan ends or the
consumer is gone. Messages out: `{"batch": ...}` (with a memfd the first time a buffer is used),
`{"end": ...}`, `{"error": ...}`. Messages in: `{"taken": [...], "released": [...]}`, both buffer
numbers.
"""

import faulthandler
import os
import signal
import socket
import sys
import threading
import traceback
from typing import Any

from lake.errors import HeadraceError
from lake.store import Lake
from loader.assembly.shape import BatchShape
from loader.cursor import Cursor
from loader.fetch.fetcher import WINDOW_PACKS
from loader.observe.metrics import LoaderMetrics
from loader.process.buffer_pool import BufferPool
from loader.process.channel import Channel
from loader.process.error_wire import error_to_message
from loader.process.job import Job
from loader.process.plan_wire import plan_from_memfd
from loader.process.stacks import tell_stacks_when_asked
from loader.storage.opening import opened_lake
from loader.storage.request_budget import limit_requests_per_read
from loader.stream import Filled, split_bytes, stream_batches
from packing.stored_plan import AnyPlan

_PARENT_CHECK_S = 2.0


def main() -> None:
    """Serve one job on the socket whose descriptor is the first argument."""
    faulthandler.enable()  # a crash in C code says where
    tell_stacks_when_asked()  # and so does a hang, to a consumer who has waited long
    # An interrupt at the keyboard, or a scheduler's SIGTERM, reaches the whole group; the consumer
    # decides what it means (a last checkpoint, say), and this process ends with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    pool: BufferPool | None = None
    try:
        if (first := channel.receive()) is not None:
            message, (plan_fd,) = first
            job = Job.from_message(message)
            limit_requests_per_read(job.storage.requests_per_node)
            metrics = LoaderMetrics()
            lake = opened_lake(
                job.lake_uri, job.storage, metrics, storage_options=job.storage_options
            )
            plan = plan_from_memfd(plan_fd, lake)
            os.close(plan_fd)
            pool = BufferPool(split_bytes(job.buffer_bytes)[0], shared=True)
            threading.Thread(target=_listen, args=(channel, pool), daemon=True).start()
            _serve(channel, job, lake, plan, pool, metrics)
    except ConnectionError:
        os._exit(0)  # the consumer is gone: nobody to tell
    except BaseException as error:  # noqa: BLE001  # panics of native code are no Exceptions
        if not isinstance(error, HeadraceError):
            traceback.print_exc()
        _tell(channel, error)
    # To exit with messages of the consumer unread would reset the socket and lose our last ones.
    if pool is None:
        while channel.receive() is not None:
            pass
    else:
        threading.Event().wait()


def _serve(
    channel: Channel,
    job: Job,
    lake: Lake,
    plan: AnyPlan,
    pool: BufferPool,
    metrics: LoaderMetrics,
) -> None:
    cursor = Cursor(
        plan_hash=plan.plan_hash,
        num_steps=plan.num_steps,
        slots_per_step=plan.header.slots_per_step,
        rank=job.rank,
        world_size=job.world_size,
    )
    batches = stream_batches(
        lake,
        plan,
        cursor,
        cursor.blocks(job.first_step, WINDOW_PACKS, worker=job.worker, num_workers=job.num_workers),
        shape=BatchShape.of(plan.header, job.image_size, job.image_format),
        pool=pool,
        limits=split_bytes(job.buffer_bytes)[1],
        metrics=metrics,
        materialized=job.materialized,
        decode_threads=job.decode_threads,
        storage=job.storage,
    )
    known: set[int] = set()
    for filled in batches:
        _send(channel, pool, filled, known, metrics)
    channel.send({"end": True, "metrics": metrics.drain(), "ahead_bytes": 0, "cpu_s": _cpu_s()})


def _send(
    channel: Channel, pool: BufferPool, filled: Filled, known: set[int], metrics: LoaderMetrics
) -> None:
    buffer = filled.buffer
    fds = () if buffer.number in known else (buffer.fd,)
    known.add(buffer.number)
    dropped = pool.take_dropped()
    known.difference_update(dropped)
    message: dict[str, Any] = {
        "batch": {
            "buffer": buffer.number,
            "capacity": buffer.capacity,
            "position": filled.place.position,
            "spans": filled.spans,
            "steps": filled.steps,
            "bad": len(filled.bad),  # they are in the buffer: a message has its limit
        },
        "dropped": dropped,
        "metrics": metrics.drain(),
        "ahead_bytes": pool.ahead_bytes,
        "cpu_s": _cpu_s(),
    }
    channel.send(message, fds)


def _listen(channel: Channel, pool: BufferPool) -> None:
    """Follow the consumer, and end with it however it ends."""
    parent = os.getppid()
    while True:
        try:
            received = channel.receive(_PARENT_CHECK_S)
        except TimeoutError:
            # A process that the consumer forked may still hold its end of the socket open.
            if os.getppid() != parent:
                os._exit(0)
            continue
        if received is None:
            os._exit(0)
        message, _ = received
        for number in message["taken"]:
            pool.taken(number)
        for number in message["released"]:
            pool.release(number)


def _tell(channel: Channel, error: BaseException) -> None:
    try:
        channel.send(error_to_message(error))
    except OSError:
        print(f"headrace loader: {error}", file=sys.stderr)


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    main()

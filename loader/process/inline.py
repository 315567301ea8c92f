"""The same stream without a decode process: for debugging, and where processes are unwelcome."""

import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from lake.store import Lake
from loader.assembly.shape import BatchShape
from loader.cursor import Cursor
from loader.decode.decode_frames import Frames
from loader.fetch.fetcher import WINDOW_PACKS
from loader.observe.metrics import LoaderMetrics
from loader.process.buffer_pool import BufferPool
from loader.process.job import Job
from loader.process.received import Received
from loader.stream import split_bytes, stream_batches
from packing.stored_plan import AnyPlan


def inline_batches(
    lake: Lake, plan: AnyPlan, cursor: Cursor, job: Job, metrics: LoaderMetrics
) -> Iterator[Received]:
    """Batches of a job, decoded in the caller's thread when asked for."""
    ahead_bytes, limits = split_bytes(job.buffer_bytes)
    shape = BatchShape.of(plan.header, job.image_size, job.image_format)
    frames: Frames | None = None
    if job.decode_device is not None:
        # It imports torch, and what it keeps are RGB pictures: twice the bytes of YUV 4:2:0.
        from loader.decode.torchcodec_frames import TorchcodecFrames  # noqa: PLC0415

        frames = TorchcodecFrames(shape, job.decode_device, metrics)
        limits = replace(limits, kept_frame_bytes=limits.kept_frame_bytes // 2)
    pool = BufferPool(ahead_bytes, shared=False)
    released: deque[int] = deque()
    filled_batches = stream_batches(
        lake,
        plan,
        cursor,
        cursor.blocks(job.first_step, WINDOW_PACKS),
        shape=shape,
        pool=pool,
        limits=limits,
        metrics=metrics,
        materialized=job.materialized,
        decode_threads=job.decode_threads,
        storage=job.storage,
        frames=frames,
    )
    for filled in filled_batches:
        pool.taken(filled.buffer.number)
        memory = filled.buffer.memory()
        weakref.finalize(memory, released.append, filled.buffer.number).atexit = False
        yield Received(
            position=filled.place.position,
            memory=memory,
            spans=filled.spans,
            steps=filled.steps,
            bad=filled.bad,
            pictures=filled.pictures,
        )
        del memory
        while released:
            pool.release(released.popleft())

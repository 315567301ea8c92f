"""From positions to filled buffers: the one code path that both process modes run."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lake.store import Lake
from loader.assembly.assemble import assemble
from loader.assembly.shape import BatchShape
from loader.bad_spans import BadSpan
from loader.batch import dtype_name
from loader.cursor import Cursor, Place
from loader.decode.decode_frames import Frames, PictureDecoder
from loader.fetch.bad_bytes import BadBytes, bad_spans_of, checked
from loader.fetch.fetched import FetchedPack
from loader.fetch.fetcher import Fetcher, FetchLimits
from loader.fetch.plan_rows import PlanRows
from loader.materialized.fetch import MaterializedFetcher
from loader.materialized.pack_set import MaterializedSet
from loader.observe.metrics import LoaderMetrics
from loader.process.buffer_pool import Buffer, BufferPool
from loader.process.wire import Frame
from loader.storage.origin import Origin, bounded
from loader.storage.pack_tiers import PackTiers
from loader.storage.settings import StorageSettings
from loader.storage.tiers import Tiers
from packing.stored_plan import AnyPlan, StoredPlan


@dataclass(frozen=True, kw_only=True)
class Filled:
    """A batch in a buffer of the pool; `steps` counts its observed steps, `bad` its bad spans.

    `pictures` are its buckets where the buffer does not hold them.
    """

    place: Place
    buffer: Buffer
    spans: int
    steps: int
    bad: tuple[BadSpan, ...]
    pictures: tuple[Any, ...]


def split_bytes(buffer_bytes: int) -> tuple[int, FetchLimits]:
    """Divide a rank's byte bound: half for batches ahead of the consumer, the rest for reading."""
    eighth = buffer_bytes // 8
    return 4 * eighth, FetchLimits(
        packet_bytes=eighth, kept_frame_bytes=2 * eighth, episode_bytes=eighth
    )


def stream_batches(
    lake: Lake,
    plan: AnyPlan,
    cursor: Cursor,
    blocks: Iterable[range],
    *,
    shape: BatchShape,
    pool: BufferPool,
    limits: FetchLimits,
    metrics: LoaderMetrics,
    storage: StorageSettings,
    materialized: str | None = None,
    frames: Frames | None = None,
    decode_threads: int = 1,
) -> Iterator[Filled]:
    """Batches at the given positions, in order, each in a buffer acquired from the pool.

    They are read from the set `materialized` where it is named, else from the episodes; pictures
    are decoded by `frames`, where not given by PyAV in `decode_threads` threads.

    Raises:
        LakeError, LoaderError: as `Fetcher.packs`, `MaterializedFetcher.packs` and
            `PictureDecoder.decode` do; the stream ends there.
    """
    asked = bounded(lake, storage)
    with closing(Origin(asked, storage, metrics)) as origin:
        if isinstance(plan, StoredPlan):
            plan = plan.read_by(asked, origin.read)
        rows = PlanRows(plan)
        fetcher: Fetcher | MaterializedFetcher
        tiers: Tiers | PackTiers
        if materialized is None:
            tiers = Tiers(lake.at(plan.header.versions), rows.content_key, storage, metrics)
            fetcher = Fetcher(tiers, rows, cursor, limits, metrics, partial(checked, tiers))
        else:
            packs_set = origin.read(
                lambda: "materialised packs",
                partial(MaterializedSet.open, asked, plan.header, materialized),
            )
            tiers = PackTiers(packs_set.require_complete(), storage, metrics)
            fetcher = MaterializedFetcher(tiers, rows, cursor, shape, limits, metrics)
        bad_bytes = BadBytes(plan.header.cameras)
        decoder = PictureDecoder(shape, metrics, frames, threads=decode_threads)
        packs = fetcher.packs(blocks)
        # Reads are given up first, so that their threads end at once.
        with closing(decoder), closing(packs), tiers, closing(origin):
            for fetched in packs:
                yield _fill(bad_bytes.settled(fetched), rows, shape, pool, decoder, metrics)


def _fill(
    fetched: FetchedPack,
    rows: PlanRows,
    shape: BatchShape,
    pool: BufferPool,
    decoder: PictureDecoder,
    metrics: LoaderMetrics,
) -> Filled:
    with metrics.stage("assemble"):
        assembled = assemble(fetched.row, fetched.images, fetched.signals, rows, shape, fetched.bad)
        bad = bad_spans_of(fetched, rows)
        described: dict[str, tuple[str, tuple[int, ...]]] = {
            name: (dtype_name(array), array.shape) for name, array in assembled.arrays.items()
        }
        elsewhere = decoder.allocate(assembled.image_shapes)
        held = assembled.image_shapes if elsewhere is None else ()
        buckets = [f"images.{number}" for number in range(len(held))]
        for name, bucket in zip(buckets, held, strict=True):
            described[name] = ("uint8", bucket)
        frame = Frame.plan(assembled.scalars, described, bad)
    with metrics.stage("send"):
        buffer = pool.acquire(frame.nbytes)
    with metrics.stage("assemble"):
        views = frame.views(buffer.memory())
        for name, array in assembled.arrays.items():
            views[name][...] = array
    with metrics.stage("decode"):
        pictures: Sequence[Any] = elsewhere or [views[name] for name in buckets]
        decoder.decode(fetched, _destinations(assembled.bucket, assembled.bucket_row, pictures))
    return Filled(
        place=fetched.row.place,
        buffer=buffer,
        spans=len(fetched.row),
        steps=int(fetched.row.observed.sum()),
        bad=bad,
        pictures=tuple(elsewhere or ()),
    )


def _destinations(
    bucket: NDArray[np.int32], row: NDArray[np.int32], pictures: Sequence[Any]
) -> list[Any]:
    """The view of each picture of the pack's table."""
    return [pictures[b][r] for b, r in zip(bucket.tolist(), row.tolist(), strict=True)]

"""Writing some packs of a plan into a data file: what each process of `materialize` does."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import xxhash
from lance.fragment import FragmentMetadata

from lake.errors import CorruptDataError
from loader.assembly.shape import BatchShape
from loader.cursor import Cursor
from loader.fetch.bad_bytes import BadBytes, bad_spans_of, checked
from loader.fetch.fetched import FetchedPack
from loader.fetch.fetcher import WINDOW_PACKS, Fetcher, FetchLimits
from loader.fetch.plan_rows import PlanRows
from loader.materialized.pack import PackContent, pack_to_bytes
from loader.materialized.pack_set import SCHEMA, MaterializedSet
from loader.materialized.reencode import PackEncoder
from loader.observe.metrics import LoaderMetrics
from loader.storage.settings import StorageSettings
from loader.storage.tiers import Tiers
from packing.stored_plan import AnyPlan

# Rows are gathered before they are written: a generator handed to Lance runs in its threads, and
# what many threads allocate, the allocator does not give back.
_FILE_BYTES: Final = 128 << 20
_LIMITS: Final = FetchLimits(
    packet_bytes=64 << 20, kept_frame_bytes=128 << 20, episode_bytes=64 << 20
)


@dataclass(frozen=True, kw_only=True)
class ChunkWriter:
    """Writes any packs of a plan into files of a set, which are not committed here.

    Memory is bounded by bytes that do not depend on how many packs are asked for, and two packs.

    Attributes:
        target: the set.
        plan: its plan.
        rows: the plan's tables.
    """

    target: MaterializedSet
    plan: AnyPlan
    rows: PlanRows

    def write(
        self, first: int, stop: int, on_pack: Callable[[int], None]
    ) -> list[FragmentMetadata]:
        """Write packs [first, stop), into one file or several.

        Args:
            first: row of the plan.
            stop: row after the last.
            on_pack: told the bytes of each pack as it is written.

        Raises:
            LakeError, LoaderError: as streaming the packs does, or the set cannot be written.
        """
        fragments: list[FragmentMetadata] = []
        rows: list[pa.RecordBatch] = []
        held = 0
        for row in self._rows_of(first, stop):
            on_pack(row["data_bytes"])
            rows.append(pa.RecordBatch.from_pylist([row], schema=SCHEMA))
            held += row["data_bytes"]
            if held >= _FILE_BYTES:
                fragments += self.target.write_rows(rows)
                rows, held = [], 0
        return fragments + (self.target.write_rows(rows) if rows else [])

    def _rows_of(self, first: int, stop: int) -> Iterator[Mapping[str, Any]]:
        header = self.plan.header
        cursor = Cursor(
            plan_hash=header.plan_hash,
            num_steps=header.num_steps,
            slots_per_step=header.slots_per_step,
            rank=0,
            world_size=1,  # then positions are rows of the plan
        )
        settings, metrics = self.target.settings, LoaderMetrics()
        copy = settings.codec == "copy"
        # A copied pack needs the packets of all its pictures, also of those shown just before.
        limits = replace(_LIMITS, kept_frame_bytes=0) if copy else _LIMITS
        pinned = self.target.lake.at(header.versions)
        tiers = Tiers(pinned, self.rows.content_key, StorageSettings(), metrics)
        fetcher = Fetcher(tiers, self.rows, cursor, limits, metrics, partial(checked, tiers))
        packs = fetcher.packs(
            range(at, min(at + WINDOW_PACKS, stop)) for at in range(first, stop, WINDOW_PACKS)
        )
        bad_bytes = BadBytes(header.cameras)
        shape = BatchShape.of(header, settings.image_size)
        encoder = None if copy else PackEncoder(settings, shape, metrics)
        with closing(packs), tiers:
            for pack, fetched in zip(range(first, stop), packs, strict=True):
                _require_sound(bad_bytes.settled(fetched), self.rows)
                yield _row(pack, fetched, encoder)


def _require_sound(pack: FetchedPack, rows: PlanRows) -> None:
    """A set holds no spans without data: their number is bounded where they are handed out.

    Raises:
        CorruptDataError: a span shows what is damaged in the lake.
    """
    for span in bad_spans_of(pack, rows):
        raise CorruptDataError(
            f"span {span.span_id}, {span.where}: {span.reason}; restore the lake's files from a"
            " copy, or make a plan without the episode (`headrace doctor` lists what is damaged)"
        )


def _row(pack: int, fetched: FetchedPack, encoder: PackEncoder | None) -> dict[str, Any]:
    error = values = 0
    if encoder is None:
        content = PackContent(images=fetched.images, signals=fetched.signals, runs=fetched.runs)
    else:
        encoded = encoder.encode(fetched)
        content, error, values = encoded.content, encoded.squared_error, encoded.pixel_values
    data = pack_to_bytes(content)
    return {
        "pack": pack,
        "data": data,
        "checksum": xxhash.xxh3_64_intdigest(data),
        "data_bytes": len(data),
        "video_bytes": content.video_bytes,
        "spans": len(fetched.row),
        "pictures": len(fetched.images),
        "squared_error": error,
        "pixel_values": values,
    }

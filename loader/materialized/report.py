"""What a set of materialised packs costs, and how near its pictures are to the recorded ones."""

import math
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from lake.store import Lake
from lake.take import take_rows
from loader.fetch.plan_rows import PlanRows
from loader.materialized.pack_set import MaterializedSet
from packing.stored_plan import AnyPlan

_BLOCK = 4096
_PEAK = 255


@dataclass(frozen=True, kw_only=True)
class MaterializedReport:
    """Figures of a set.

    Attributes:
        name, uri: of the set.
        exact: whether batches equal those read from the episodes, bit for bit.
        packs, num_packs: packs that are there, of the plan's.
        spans, pictures: of these packs.
        data_bytes, video_bytes: of these packs; `video_bytes` are packets.
        episode_bytes: what the plan's episodes take in the lake: the packets of the plan's cameras,
            and state and action of every step as float32.
        psnr_db: peak signal-to-noise ratio over all pictures, against those that were encoded
            (scaled, where they were); None where they are equal.
    """

    name: str
    uri: str
    exact: bool
    packs: int
    num_packs: int
    spans: int
    pictures: int
    data_bytes: int
    video_bytes: int
    episode_bytes: int
    psnr_db: float | None

    @property
    def bytes_per_pack(self) -> float:
        """Mean size of a pack."""
        return self.data_bytes / max(self.packs, 1)

    @property
    def bytes_per_span(self) -> float:
        """Mean size of a pack's share of a span."""
        return self.data_bytes / max(self.spans, 1)

    @property
    def amplification(self) -> float:
        """Bytes of the set over those of the episodes, all epochs of the plan in one."""
        return self.data_bytes / max(self.episode_bytes, 1)


def report_of(target: MaterializedSet, plan: AnyPlan) -> MaterializedReport:
    """The figures of a set.

    Raises:
        LakeError: the set or the lake cannot be read.
    """
    columns = [
        "spans",
        "pictures",
        "data_bytes",
        "video_bytes",
        "squared_error",
        "pixel_values",
    ]
    with target.lake.errors_named("read materialised packs"):
        rows = target.dataset.to_table(columns=columns)
    sums = {name: int(pc.sum(rows[name]).as_py() or 0) for name in columns}
    error, values = sums.pop("squared_error"), sums.pop("pixel_values")
    return MaterializedReport(
        name=target.settings.name,
        uri=target.uri,
        exact=target.settings.codec == "copy",
        packs=target.packs,
        num_packs=target.num_packs,
        episode_bytes=episode_bytes(target.lake, plan),
        psnr_db=10 * math.log10(_PEAK**2 * values / error) if error else None,
        **sums,
    )


def episode_bytes(lake: Lake, plan: AnyPlan) -> int:
    """Bytes of the plan's episodes in the lake; see `MaterializedReport`."""
    header, rows = plan.header, PlanRows(plan)
    sizes = np.asarray([s.state_size + s.action_size for s in header.specs], np.int64)
    total = int((4 * sizes[rows.spec] * rows.num_steps.astype(np.int64)).sum())
    pinned = lake.at(header.versions)
    for first in range(0, len(rows.address), _BLOCK):
        block = range(first, min(first + _BLOCK, len(rows.address)))
        addresses = [int(rows.address[episode]) for episode in block]
        stored = take_rows(pinned, addresses, ["cameras", "camera_bytes"]).to_pylist()
        for episode, row in zip(block, stored, strict=True):
            of_plan = {header.cameras[camera] for camera in rows.cameras(episode).tolist()}
            pairs = zip(row["cameras"], row["camera_bytes"], strict=True)
            total += sum(size for camera, size in pairs if camera in of_plan)
    return total

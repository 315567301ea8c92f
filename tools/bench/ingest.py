"""How fast recordings settle in a lake when their video is copied, not re-encoded.

Contenders read the same LeRobot v3.0 dataset, two cameras at 640x480, in the same order:

- `ingest`: the whole of `headrace ingest`: demux, Annex-B, packet index, a checksum per packet,
  SHA-256 of the content, Lance write, ledger;
- `demux`: plain PyAV reading every packet of the same files and throwing it away: the limit.
"""

import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import av

from tools.bench.framework import BenchResult, interleave, spread
from tools.bench.lerobot_data import DatasetShape, write_lerobot_v3


def run(quick: bool) -> BenchResult:  # noqa: FBT001  the one signature of all benches
    """Measure; `quick` uses a smaller dataset and 3 repetitions in place of 5."""
    from ingest.pipeline import ingest_sources
    from lake import create_lake

    shape = DatasetShape(
        episodes=20 if quick else 80, mean_steps=225, height=480, width=640, gop=15
    )
    repetitions = 3 if quick else 5
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        root = write_lerobot_v3(Path(folder) / "dataset", shape)
        frames = int(shape.lengths().sum()) * len(shape.cameras)
        size = sum(path.stat().st_size for path in root.rglob("*.mp4"))
        target = Path(folder) / "bench.lake"

        def ingest() -> None:
            shutil.rmtree(target, ignore_errors=True)
            report = ingest_sources([root], create_lake(target))
            copied = sum(source.frames for source in report.sources)
            if copied != frames or report.quarantined:
                raise RuntimeError(f"ingested {copied} of {frames} frames")

        contenders: dict[str, Callable[[], object]] = {
            "ingest": ingest,
            "demux": lambda: _demux(root),
        }
        timings = interleave(contenders, repetitions=repetitions)
    rows = []
    for name, runs in timings.items():
        rows.append(
            {
                "contender": name,
                "frames": frames,
                "MB": round(size / 1e6, 1),
                "frames per CPU s": spread([frames / t.cpu_s for t in runs]),
                "frames per s": spread([frames / t.wall_s for t in runs]),
                "MB per CPU s": spread([size / 1e6 / t.cpu_s for t in runs]),
            }
        )
    ratio = statistics.median(frames / t.cpu_s for t in timings["ingest"])
    limit = statistics.median(frames / t.cpu_s for t in timings["demux"])
    return BenchResult(
        name="ingest",
        rows=rows,
        ratios={
            "stream_copy_frames_per_cpu_s": ratio,
            "stream_copy_over_demux": ratio / limit,
        },
        notes=(
            (
                f"{shape.episodes} episodes, 2 cameras 640x480 H.264 GOP {shape.gop}"
                f", {size / frames:.0f} bytes per frame, one file per camera; {repetitions} rounds"
                " interleaved, median [least, most]; warm page cache, local disk"
            ),
            "making an empty lake (all tables) is inside the time of `ingest`",
        ),
    )


def _demux(root: Path) -> int:
    total = 0
    for path in sorted(root.rglob("*.mp4")):
        with av.open(str(path)) as container:
            total += sum(packet.size for packet in container.demux(video=0))
    return total

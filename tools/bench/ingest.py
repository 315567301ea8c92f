"""How fast recordings settle in a lake: video that is copied, and raw pictures encoded once.

Per recording, two contenders read the same files in the same order:

- `ingest`: the whole of `headrace ingest`: demux, Annex-B, packet index, a checksum per packet,
  SHA-256 of the content, statistics, Lance write, ledger;
- its limit: of video, plain PyAV reading every packet and throwing it away; of raw pictures, plain
  h5py and PyAV encoding them with the same settings and throwing the packets away.
"""

import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import h5py
from av.video.codeccontext import VideoCodecContext
from av.video.reformatter import ColorRange

from tools.bench.framework import BenchResult, Timing, interleave, spread
from tools.bench.hdf5_data import write_aloha
from tools.bench.lerobot_data import DatasetShape, write_lerobot_v3

_SPACE_SMPTE170M = 6  # AVColorSpace


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What is ingested.

    Attributes:
        name: as the table shows it.
        root: the dataset.
        frames: frames of all cameras.
        num_bytes: bytes of video files or raw pictures.
        limit_name: the plain contender.
        limit: its work, given `root`.
    """

    name: str
    root: Path
    frames: int
    num_bytes: int
    limit_name: str
    limit: Callable[[Path], int]


def run(quick: bool) -> BenchResult:  # noqa: FBT001  the one signature of all benches
    """Measure; `quick` uses smaller datasets and 3 repetitions in place of 5.

    Its videos have about 20,000 frames each, so that making an empty lake does not hide the rest.
    """
    episodes, steps, repetitions = (45, 60, 3) if quick else (160, 200, 5)

    def shape(gop: int) -> DatasetShape:
        return DatasetShape(episodes=episodes, height=480, width=640, gop=gop)

    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        recordings = {
            "stream_copy": video_recording(folder / "gop15", shape(15)),
            "stream_copy_gop2": video_recording(folder / "gop2", shape(2)),
            "encode": picture_recording(folder / "raw", replace(shape(15), episodes=1), steps),
        }
        return compare(recordings, folder / "bench.lake", repetitions=repetitions)


def compare(recordings: Mapping[str, Recording], target: Path, *, repetitions: int) -> BenchResult:
    """Time the ingest of every recording, into a new lake at `target`, and its limit.

    Args:
        recordings: prefix of the ratios -> recording.
        target: path for the lake.
        repetitions: timed rounds.
    """
    contenders: dict[str, Callable[[], object]] = {}
    for key, recording in recordings.items():
        contenders[f"{key} ingest"] = partial(ingest, recording, target)
        contenders[f"{key} limit"] = partial(recording.limit, recording.root)
    timings = interleave(contenders, repetitions=repetitions)
    rows: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    for key, recording in recordings.items():
        own, limit = timings[f"{key} ingest"], timings[f"{key} limit"]
        rows += [_row(recording, "ingest", own), _row(recording, recording.limit_name, limit)]
        rate, limit_rate = (_frames_per_cpu_s(recording, runs) for runs in (own, limit))
        ratios[f"{key}_frames_per_cpu_s"] = rate
        ratios[f"{key}_over_{recording.limit_name}"] = rate / limit_rate
    return BenchResult(
        name="ingest",
        rows=rows,
        ratios=ratios,
        notes=(
            (
                f"2 cameras of 640x480; {repetitions} rounds interleaved, median [least, most];"
                " warm page cache, local disk"
            ),
            (
                "stream_copy_frames_per_cpu_s is the copy of GOP 15; GOP 2 is what LeRobot writes"
                " unless told otherwise: larger frames, so hashing and writing weigh more"
            ),
            "making an empty lake (all tables), about 0.02 CPU s, is inside the time of `ingest`",
        ),
    )


def video_recording(root: Path, shape: DatasetShape) -> Recording:
    """A LeRobot v3.0 dataset with one file per camera."""
    write_lerobot_v3(root, shape)
    return Recording(
        name=f"H.264 GOP {shape.gop}",
        root=root,
        frames=int(shape.lengths().sum()) * len(shape.cameras),
        num_bytes=sum(path.stat().st_size for path in root.rglob("*.mp4")),
        limit_name="demux",
        limit=demux,
    )


def picture_recording(root: Path, shape: DatasetShape, steps: int) -> Recording:
    """ALOHA files with raw RGB pictures."""
    write_aloha(root, shape, steps=steps)
    frames = shape.episodes * steps * len(shape.cameras)
    return Recording(
        name="raw RGB",
        root=root,
        frames=frames,
        num_bytes=frames * shape.height * shape.width * 3,
        limit_name="plain_encode",
        limit=plain_encode,
    )


def ingest(recording: Recording, target: Path) -> int:
    """Ingest into a new lake at `target`; returns the bytes of video in it.

    Raises:
        RuntimeError: a frame is missing.
    """
    from ingest.pipeline import ingest_sources
    from lake import create_lake

    shutil.rmtree(target, ignore_errors=True)
    report = ingest_sources([recording.root], create_lake(target))
    settled = sum(source.frames for source in report.sources)
    if settled != recording.frames or report.quarantined:
        raise RuntimeError(f"ingested {settled} of {recording.frames} frames")
    return sum(source.video_bytes for source in report.sources)


def demux(root: Path) -> int:
    """Bytes of all packets of all videos, read with PyAV."""
    total = 0
    for path in sorted(root.rglob("*.mp4")):
        with av.open(str(path)) as container:
            total += sum(packet.size for packet in container.demux(video=0))
    return total


def plain_encode(root: Path) -> int:
    """Bytes of all pictures encoded as `lake.video_encode` does, with PyAV alone."""
    total = 0
    for path in sorted(root.glob("*.hdf5")):
        with h5py.File(path) as file:
            for pictures in file["observations/images"].values():
                encoder = _encoder(pictures.shape[1], pictures.shape[2])
                for picture in pictures:
                    frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                    total += sum(packet.size for packet in encoder.encode(frame))
                total += sum(packet.size for packet in encoder.encode(None))
    return total


def _encoder(height: int, width: int) -> VideoCodecContext:
    encoder = av.CodecContext.create("libx264", "w")
    assert isinstance(encoder, VideoCodecContext)
    encoder.height, encoder.width, encoder.pix_fmt = height, width, "yuv420p"
    encoder.framerate, encoder.time_base, encoder.thread_count = Fraction(30), Fraction(1, 30), 1
    encoder.color_range, encoder.colorspace = int(ColorRange.MPEG), _SPACE_SMPTE170M
    encoder.options = {
        "preset": "veryfast",
        "crf": "18",
        "g": "15",
        "bf": "0",
        "sc_threshold": "0",
        "x264-params": "cpu-independent=1",
    }
    return encoder


def _frames_per_cpu_s(recording: Recording, runs: list[Timing]) -> float:
    return statistics.median(recording.frames / run.cpu_s for run in runs)


def _row(recording: Recording, contender: str, runs: list[Timing]) -> dict[str, Any]:
    frames, num_bytes = recording.frames, recording.num_bytes
    return {
        "recording": recording.name,
        "contender": contender,
        "frames": frames,
        "bytes per frame": round(num_bytes / frames),
        "frames per CPU s": spread([frames / run.cpu_s for run in runs]),
        "frames per s": spread([frames / run.wall_s for run in runs]),
        "MB per CPU s": spread([num_bytes / 1e6 / run.cpu_s for run in runs]),
    }

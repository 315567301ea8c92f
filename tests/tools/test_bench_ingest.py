"""The ingest bench compares like with like, on recordings small enough for a test."""

from dataclasses import replace
from pathlib import Path

import pytest

from tools.bench.ingest import compare, ingest, picture_recording, plain_encode, video_recording
from tools.bench.lerobot_data import DatasetShape

SHAPE = DatasetShape(episodes=2, mean_steps=60, height=48, width=64, dims=2)


def test_plain_encode_makes_the_bytes_that_ingest_keeps(tmp_path: Path) -> None:
    recording = picture_recording(tmp_path / "raw", SHAPE, 40)
    assert recording.frames == 2 * 2 * 40
    assert ingest(recording, tmp_path / "a.lake") == plain_encode(recording.root)


def test_every_recording_has_a_row_and_ratios_for_itself_and_its_limit(tmp_path: Path) -> None:
    recordings = {
        "copy": video_recording(tmp_path / "video", SHAPE),
        "encode": picture_recording(tmp_path / "raw", SHAPE, 10),
    }
    result = compare(recordings, tmp_path / "a.lake", repetitions=1)
    assert [(row["recording"], row["contender"], row["frames"]) for row in result.rows] == [
        ("H.264 GOP 2", "ingest", 2 * SHAPE.lengths().sum()),
        ("H.264 GOP 2", "demux", 2 * SHAPE.lengths().sum()),
        ("raw RGB", "ingest", 40),
        ("raw RGB", "plain_encode", 40),
    ]
    assert set(result.ratios) == {
        *("copy_frames_per_cpu_s", "copy_over_demux"),
        *("encode_frames_per_cpu_s", "encode_over_plain_encode"),
    }
    assert all(ratio > 0 for ratio in result.ratios.values())


def test_a_missing_frame_is_no_speed(tmp_path: Path) -> None:
    recording = picture_recording(tmp_path / "raw", SHAPE, 5)
    with pytest.raises(RuntimeError, match="ingested 20 of 21 frames"):
        ingest(replace(recording, frames=21), tmp_path / "a.lake")

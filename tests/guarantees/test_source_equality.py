"""What is in the lake is what was recorded, on every real LeRobot dataset at hand.

The truth is read here without any reader of ours: rows by pyarrow, frames by a plain PyAV decode of
the source file from its first frame, counted. Expected episodes, files and frame numbers come from
the metadata through pyarrow and json alone.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from ingest.doctor import check_recordings
from ingest.pipeline import ingest_sources
from lake import Episode, Lake, create_lake, read_episode, visible_episodes
from lake.video_decode import FrameDecoder
from lake.video_runs import decode_runs

FPS_OF_OURS = 30


@dataclass(frozen=True)
class Expected:
    """One episode by the metadata: its rows, and camera -> (video file, number of frame 0)."""

    index: int
    rows: pa.Table
    videos: dict[str, tuple[Path, int]]


def expected_v2(root: Path) -> Iterator[Expected]:
    for line in (root / "meta/episodes.jsonl").read_text().splitlines():
        index = json.loads(line)["episode_index"]
        data = root / f"data/chunk-000/episode_{index:06d}.parquet"
        if data.is_file():
            videos = root.glob(f"videos/chunk-000/*/episode_{index:06d}.mp4")
            yield Expected(
                index, pq.ParquetFile(data).read(), {p.parent.name: (p, 0) for p in videos}
            )


def expected_v3(root: Path) -> Iterator[Expected]:
    data = pq.ParquetFile(root / "data/chunk-000/file-000.parquet").read()
    (listed,) = (root / "meta/episodes").glob("**/*.parquet")
    for row in pq.ParquetFile(listed).read().to_pylist():
        index = row["episode_index"]
        videos = {}
        for name in row:
            if name.endswith("/from_timestamp"):
                camera = name.split("/")[1]
                file = root / (
                    f"videos/{camera}/chunk-{row[f'videos/{camera}/chunk_index']:03d}"
                    f"/file-{row[f'videos/{camera}/file_index']:03d}.mp4"
                )
                if file.is_file():
                    videos[camera] = (file, round(row[name] * FPS_OF_OURS))
        rows = data.filter(pc.equal(data["episode_index"], index))
        yield Expected(index, rows, videos)


def plain_frames(path: Path, wanted: set[int]) -> dict[int, NDArray[Any]]:
    """Frames by number, of a decode from the start."""
    found = {}
    with av.open(str(path)) as container:
        container.streams.video[0].thread_type = "AUTO"
        for number, frame in enumerate(container.decode(video=0)):
            if number in wanted:
                found[number] = frame.to_ndarray(format="rgb24")
                if len(found) == len(wanted):
                    break
    return found


def stored_frames(episode: Episode, camera: str, steps: Sequence[int]) -> dict[int, NDArray[Any]]:
    """RGB frames of steps, decoded from the packets in the lake."""
    video = episode.cameras[camera]
    ordinals = video.index.step_to_frame[list(steps)]
    assert (ordinals >= 0).all()
    offsets, data = video.index.packet_offsets(), memoryview(video.payload)
    decoder, frames = FrameDecoder(), {}
    for run in decode_runs(video.index, ordinals):
        packets = data[offsets[run.first_packet] : offsets[run.stop_packet]]
        for number, frame in decoder.decode(video.index, run, packets):
            frames[number] = frame.to_ndarray(format="rgb24")
    return {step: frames[int(n)] for step, n in zip(steps, ordinals, strict=True)}


def check_values(expected: Expected, episode: Episode) -> None:
    """Every column, bit for bit."""
    by_source = {feature.source_name: feature for feature in episode.spec.features}
    assert set(by_source) == set(expected.rows.column_names)
    for key in expected.rows.column_names:
        truth = np.asarray(expected.rows[key].to_pylist())
        feature = by_source[key]
        values = episode.features[feature.name]
        element = expected.rows.schema.field(key).type
        if pa.types.is_list(element) or pa.types.is_fixed_size_list(element):
            element = element.value_type
        assert pa.from_numpy_dtype(values.dtype) == element, key
        assert values.tobytes() == truth.astype(values.dtype).tobytes(), key
    times = np.asarray(expected.rows["timestamp"].to_pylist(), np.float64)
    assert episode.timestamps_ns.tolist() == [round(t * 1e9) for t in times.tolist()]


def check_frames(expected: Sequence[Expected], episodes: dict[int, Episode], every: int) -> int:
    """Frames of each camera against a plain decode; returns how many were compared."""
    steps_of = {
        e.index: sorted({0, *range(0, e.rows.num_rows, every), e.rows.num_rows - 1})
        for e in expected
    }
    wanted: dict[Path, set[int]] = {}
    for one in expected:
        for file, first in one.videos.values():
            wanted.setdefault(file, set()).update(first + s for s in steps_of[one.index])
    compared = 0
    for file, numbers in wanted.items():
        truth = plain_frames(file, numbers)
        for one in expected:
            for key, (its_file, first) in one.videos.items():
                if its_file != file:
                    continue
                episode, steps = episodes[one.index], steps_of[one.index]
                name = next(c.name for c in episode.spec.cameras if c.source_name == key)
                for step, frame in stored_frames(episode, name, steps).items():
                    assert frame.tobytes() == truth[first + step].tobytes(), (key, one.index, step)
                    compared += 1
    return compared


# Name, layout, compare every n-th frame (1 = all).
DATASETS = [
    ("lerobot_v21_unitree_g1", expected_v2, 1),
    ("lerobot_v2_gr00t_picknplace", expected_v2, 1),
    ("lerobot_v3_by_lerobot_multi", expected_v3, 1),
    ("lerobot_v3_by_lerobot_h264", expected_v3, 60),
    ("lerobot_v3_rerun_apple", expected_v3, 1),
]


@pytest.fixture(scope="module")
def lake(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """One lake with all of them."""
    lake = create_lake(tmp_path_factory.mktemp("real") / "robots.lake")
    ingest_sources([recordings / name for name, _, _ in DATASETS], lake)
    return lake


def episodes_of(lake: Lake, dataset: str) -> dict[int, Episode]:
    ids = visible_episodes(lake, ["episode_id", "dataset", "locator"])
    return {
        int(row["locator"].removeprefix("episode_")): read_episode(lake, row["episode_id"])
        for row in ids.to_pylist()
        if row["dataset"] == dataset
    }


@pytest.mark.parametrize(("name", "layout", "every"), DATASETS, ids=[d[0] for d in DATASETS])
def test_values_and_frames(
    lake: Lake, recordings: Path, name: str, layout: Any, every: int
) -> None:
    expected = list(layout(recordings / name))
    episodes = episodes_of(lake, name)
    assert sorted(episodes) == [one.index for one in expected]
    for one in expected:
        check_values(one, episodes[one.index])
        assert len(episodes[one.index].cameras) == len(one.videos)
    compared = check_frames(expected, episodes, every)
    if every == 1:
        assert compared == sum(one.rows.num_rows * len(one.videos) for one in expected)


@pytest.mark.parametrize("name", ["lerobot_v3_by_lerobot_multi", "lerobot_v3_by_lerobot_h264"])
def test_items_equal_those_of_the_real_library(lake: Lake, recordings: Path, name: str) -> None:
    """Values, action chunks and their padding, and SHA-256 of every image tensor (uint8, CHW)."""
    oracle = json.loads((recordings / name / "oracle.json").read_text())
    episodes = episodes_of(lake, name)
    chunk = len(oracle["delta_timestamps"]["action"])
    history = oracle["delta_timestamps"]["observation.images.top"]
    items = oracle["items"]["pyav"]
    assert len(items) == 27
    for item in items:
        episode = episodes[item["episode_index"][0]]
        (step,), last = item["frame_index"], episode.num_steps - 1
        assert int(episode.features["index"][step]) == item["index"][0]
        assert episode.features["timestamp"][step] == np.float32(item["timestamp"][0])
        assert int(episode.features["task_index"][step]) == item["task_index"][0]
        assert episode.instruction == item["task"]
        assert episode.features["state"][step].tolist() == item["observation.state"]
        ahead = np.arange(step, step + chunk)
        assert episode.features["action"][np.minimum(ahead, last)].tolist() == item["action"]
        assert (ahead > last).tolist() == item["action_is_pad"]
        back = [step + offset for offset in history]
        assert [t < 0 for t in back] == item["observation.images.top_is_pad"]
        for camera, steps in (("top", [max(t, 0) for t in back]), ("wrist", [step])):
            frames = stored_frames(episode, camera, steps)
            tensor = np.stack([frames[t].transpose(2, 0, 1) for t in steps])
            digest = hashlib.sha256(tensor.tobytes()).hexdigest()
            assert digest == item[f"observation.images.{camera}"]["sha256"], (item["index"], camera)


def test_the_lies_are_told_and_do_no_harm(recordings: Path, lake: Lake) -> None:
    """What FORMATS says of each dataset is found by the doctor, and the lake holds the truth."""
    found = {
        name: {(f.severity, f.reason) for f in findings}
        for name, _, _ in DATASETS
        for findings in check_recordings(recordings / name).values()
    }
    assert found["lerobot_v3_by_lerobot_multi"] == set()
    assert found["lerobot_v3_by_lerobot_h264"] == set()
    assert found["lerobot_v3_rerun_apple"] == {
        ("warning", "wrong-count"),  # 14983 frames declared, 899 rows
        ("warning", "wrong-split"),  # 0:50 for 3 episodes
        ("warning", "camera-without-files"),
        ("info", "camera-without-files"),
    }
    assert found["lerobot_v2_gr00t_picknplace"] >= {
        ("warning", "wrong-count"),
        ("warning", "wrong-split"),
        ("warning", "camera-without-files"),  # observation.images.egoview
        ("warning", "missing-data-file"),
        ("error", "missing-data-file"),  # 3 of the 5 listed episodes are not in the sample
    }
    assert found["lerobot_v21_unitree_g1"] == {
        ("warning", "missing-data-file"),
        ("error", "missing-data-file"),
    }
    apple = episodes_of(lake, "lerobot_v3_rerun_apple")[0]
    assert (apple.spec.cameras[0].height, apple.spec.cameras[0].width) == (240, 320)
    groot = episodes_of(lake, "lerobot_v2_gr00t_picknplace")
    assert sorted(groot) == [0, 4]
    assert groot[0].timestamps_ns[0] == 49_999_952  # the first stored time is 0.05, rounded
    assert groot[0].cameras["ego_view"].index.step_to_frame[0] == 0
    assert groot[0].success is True
    assert groot[0].tags == ("human.validity=valid",)
    left_arm = next(s for s in groot[0].spec.slices if (s.feature, s.name) == ("state", "left_arm"))
    assert (left_arm.start, left_arm.stop) == (0, 7)


@pytest.mark.parametrize(
    ("name", "episodes"),
    [
        ("groot_meta_only/cube_to_bowl_5", 5),
        ("groot_meta_only/droid_sample", 3),
        ("groot_meta_only/libero_demo", 5),
        ("groot_meta_only/simplerenv_bridge_sample", 3),
        ("groot_meta_only/simplerenv_fractal_sample", 3),
        ("lerobot_v3_so101_real_50ep", 50),
    ],
)
def test_metadata_without_data_is_quarantined_episode_by_episode(
    recordings: Path, tmp_path: Path, name: str, episodes: int
) -> None:
    lake = create_lake(tmp_path / "x.lake")
    (counts,) = ingest_sources([recordings / name], lake).sources
    assert (counts.written, counts.quarantined) == (0, episodes)
    lake.refresh()
    rows = lake.dataset("quarantine").to_table().to_pylist()
    assert len(rows) == episodes
    assert {row["reason"] for row in rows} == {"missing-data-file"}

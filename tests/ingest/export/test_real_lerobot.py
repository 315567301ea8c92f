"""The real LeRobot opens what is exported, and gives the same values and pictures to the bit.

Needs an interpreter that has it: `HEADRACE_LEROBOT_PYTHON=peers/bin/python`; tools/peers/README.md
says how to make one.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ingest.depth_png import depth_pngs
from lake import CameraSpec, Episode, FeatureSpec, Lake, read_frames
from lake.edit.apply import Author
from lake.edit.rearrange import split_episode
from lake.video_images import images_video
from tests.episodes import make_spec
from tests.ingest.export.lakes import episodes_of, exported, ingested, lake_of
from tests.ingest.lerobot_data import write_v2, write_v3, write_video
from tests.lake.video_clips import write_clip

TOP = "observation.images.top"
COMPARE = Path(__file__).with_name("lerobot_items.py")


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter."""
    found = os.environ.get("HEADRACE_LEROBOT_PYTHON")
    if not found:
        pytest.skip("HEADRACE_LEROBOT_PYTHON names no Python that has lerobot")
    return found


@pytest.fixture(params=["pyav", "torchcodec"])
def backend(request: pytest.FixtureRequest) -> str:
    """What LeRobot decodes with."""
    return str(request.param)


def run(python: str, *arguments: str) -> str:
    done = subprocess.run(
        [python, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def archive(lake: Lake, path: Path, renamed: dict[str, str] | None = None) -> Path:
    """What a lake says that LeRobot should give."""
    items: dict[str, list[NDArray[Any]]] = {}

    def add(key: str, values: Any) -> None:
        items.setdefault(key, []).append(np.asarray(values))

    first = 0
    for number, episode in enumerate(episodes_of(lake)):
        steps = episode.num_steps
        named = {f.name: f.source_name for f in episode.spec.features}
        for name, values in episode.features.items():
            key = (renamed or named)[name]
            add(key, values.astype(np.str_) if values.dtype == object else values)
        if "timestamp" not in episode.features:
            add("timestamp", (np.arange(steps) / (episode.fps or 1)).astype(np.float32))
            add("frame_index", np.arange(steps))
            add("episode_index", np.full(steps, number))
            add("index", np.arange(first, first + steps))
            add("task_index", np.full(steps, number))
        add("task", np.full(steps, episode.instruction))
        for name in episode.cameras:
            if not any(camera.is_depth for camera in episode.spec.cameras):
                add(
                    f"observation.images.{name}",
                    read_frames(lake, episode.episode_id, name, range(steps)),
                )
        first += steps
    return save(path, {key: np.concatenate(parts) for key, parts in items.items()})


def save(path: Path, arrays: dict[str, NDArray[Any]]) -> Path:
    """Write an archive of arrays."""
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # keys are names of arrays here
    return path


def check(python: str, backend: str, root: Path, expected: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run(python, str(COMPARE), str(root), str(expected), backend).splitlines()[-1]
    )
    with np.load(expected) as values:
        assert found["items"] == len(values["index"])
        assert found["values"] == found["items"] * len(values.files)
    return found


def converted(python: str, root: Path) -> Path:
    """A v2.1 dataset in the form that today's library opens, by its own converter."""
    copy = root.with_name(f"{root.name}-converted")
    shutil.copytree(root, copy)
    run(
        python,
        *("-m", "lerobot.scripts.convert_dataset_v21_to_v30", "--repo-id", "local/exported"),
        *("--root", str(copy), "--push-to-hub=false"),
    )
    return copy


@pytest.mark.parametrize("b_frames", [0, 2])
def test_v3(tmp_path: Path, python: str, backend: str, b_frames: int) -> None:
    # Episodes start inside groups of pictures, so that pictures lie between them in the file.
    source = write_v3(tmp_path / "toy", (8, 13, 6), (TOP,), b_frames=b_frames)
    lake = ingested(source, tmp_path / "robots.lake")
    exported(lake, tmp_path / "out")
    found = check(python, backend, tmp_path / "out", archive(lake, tmp_path / "expected.npz"))
    assert set(found["stats"][TOP]) == set(found["stats"]["action"])
    assert {"min", "max", "mean", "std", "count", "q01", "q99"} <= set(found["stats"]["action"])


@pytest.mark.parametrize("b_frames", [0, 2])
def test_v21_by_the_official_converter(
    tmp_path: Path, python: str, backend: str, b_frames: int
) -> None:
    source = write_v2(tmp_path / "toy", (8, 13, 6))
    for index, steps in enumerate((8, 13, 6)):
        write_video(
            source / f"videos/chunk-000/{TOP}/episode_{index:06d}.mp4", steps, b_frames=b_frames
        )
    lake = ingested(source, tmp_path / "robots.lake")
    exported(lake, tmp_path / "out", "2.1")
    root = converted(python, tmp_path / "out")
    check(python, backend, root, archive(lake, tmp_path / "expected.npz"))


@pytest.mark.parametrize("codec", ["png", "h264"])
def test_episodes_of_another_format(
    tmp_path: Path, python: str, codec: str, make_filmed_episode: Callable[..., Episode]
) -> None:
    episodes = [make_filmed_episode(number, steps=11, codec=codec) for number in range(2)]
    lake = lake_of(tmp_path / "robots.lake", episodes)
    exported(lake, tmp_path / "out")
    keys = {"state": "observation.state", "action": "action", "note": "observation.note"}
    check(python, "pyav", tmp_path / "out", archive(lake, tmp_path / "expected.npz", keys))


@pytest.mark.parametrize(
    ("codec", "options"),
    [
        ("libx264", {"preset": "veryfast", "x264-params": "keyint=9:open-gop=1:bframes=3"}),
        (
            "libx265",
            {"preset": "ultrafast", "x265-params": "log-level=none:keyint=9:open-gop=1:bframes=3"},
        ),
        ("libsvtav1", {"preset": "12", "svtav1-params": "keyint=8:lp=1"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_parts_of_episodes(
    tmp_path: Path, python: str, backend: str, codec: str, options: dict[str, str]
) -> None:
    source = write_v2(tmp_path / "toy", (40,))
    video = source / f"videos/chunk-000/{TOP}/episode_000000.mp4"
    write_clip(video, codec, options)
    lake = ingested(source, tmp_path / "robots.lake")
    (whole,) = episodes_of(lake)
    split_episode(lake, whole.episode_id, [12, 23, 30], Author(who="test"))
    exported(lake, tmp_path / "out")
    # As numbered and timed by LeRobot, which the second lake has read from its files.
    again = ingested(tmp_path / "out", tmp_path / "again.lake")
    for part, copy in zip(episodes_of(lake), episodes_of(again), strict=True):
        assert part.features["state"].tobytes() == copy.features["state"].tobytes()
    check(python, backend, tmp_path / "out", archive(again, tmp_path / "expected.npz"))


@pytest.mark.parametrize("fps", [29.97, 12.5])
def test_any_rate(
    tmp_path: Path, python: str, backend: str, fps: float, make_filmed_episode: Any
) -> None:
    stamps = np.rint(np.arange(60) * 1e9 / fps).astype(np.int64)
    episode = make_filmed_episode(steps=60, fps=fps, timestamps_ns=stamps)
    lake = lake_of(tmp_path / "robots.lake", [episode])
    exported(lake, tmp_path / "out", left_out=["note"])
    again = ingested(tmp_path / "out", tmp_path / "again.lake")
    check(python, backend, tmp_path / "out", archive(again, tmp_path / "expected.npz"))


def test_depth_and_grids(tmp_path: Path, python: str, make_episode: Callable[..., Episode]) -> None:
    pictures = [np.full((6, 8), 5000 * number, np.uint16) for number in range(12)]
    video = images_video(depth_pngs(pictures), step_to_frame=np.arange(12, dtype=np.int32))
    camera = CameraSpec(
        name="depth", source_name="observation.images.depth", height=6, width=8, is_depth=True
    )
    grid = FeatureSpec(name="grid", source_name="grid", dtype="float32", shape=(2, 3))
    flags = FeatureSpec(name="flags", source_name="flags", dtype="bool", shape=(2,))
    spec = make_spec()
    spec = replace(spec, cameras=(camera,), features=(*spec.features, grid, flags))
    episode = make_episode(cameras={"depth": video})
    values = {
        "grid": np.arange(72, dtype=np.float32).reshape(12, 2, 3) / 7,
        "flags": np.arange(24).reshape(12, 2) % 3 == 0,
    }
    episode = replace(episode, spec=spec, features={**episode.features, **values})
    lake = lake_of(tmp_path / "robots.lake", [episode])
    exported(lake, tmp_path / "out")
    keys = {name: f"observation.{name}" for name in ("state", "note", "grid", "flags")}
    path = archive(lake, tmp_path / "expected.npz", {**keys, "action": "action"})
    with np.load(path) as found:
        expected = dict(found)
    expected["observation.images.depth"] = np.stack(pictures).astype(np.float32)[:, None]
    save(path, expected)
    check(python, "pyav", tmp_path / "out", path)


@pytest.mark.parametrize("name", ["lerobot_v3_by_lerobot_multi", "lerobot_v3_by_lerobot_h264"])
def test_recordings_by_lerobot(tmp_path: Path, python: str, recordings: Path, name: str) -> None:
    """Items that the library was asked for when it had just recorded them."""
    source = recordings / name
    if not source.is_dir():
        pytest.skip(f"no recording {source}")
    lake = ingested(source, tmp_path / "robots.lake")
    exported(lake, tmp_path / "out")
    script = Path(__file__).with_name("lerobot_oracle.py")
    found = json.loads(
        run(python, str(script), str(tmp_path / "out"), str(source / "oracle.json")).splitlines()[
            -1
        ]
    )
    assert found["items"] > 0
    assert found["pictures"] > 0

"""Samples of LeRobot recordings are those of LeRobot's own library."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from ingest.pipeline import ingest_sources
from lake import Lake, create_lake
from loader import LoaderError
from loader.windows.window import Window
from tests.guarantees.test_source_equality import expected_v2, expected_v3, plain_frames
from tests.ingest import lerobot_data as lerobot

WITH_ORACLE = ["lerobot_v3_by_lerobot_multi", "lerobot_v3_by_lerobot_h264"]
WITHOUT = [
    ("lerobot_v21_unitree_g1", expected_v2),
    ("lerobot_v2_gr00t_picknplace", expected_v2),
    ("lerobot_v3_rerun_apple", expected_v3),
]


@pytest.fixture(scope="module")
def real(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lake]:
    """A lake per recording."""
    lakes = {}
    for name in (*WITH_ORACLE, *(name for name, _ in WITHOUT)):
        if (recordings / name).is_dir():
            lakes[name] = create_lake(tmp_path_factory.mktemp("real") / f"{name}.lake")
            ingest_sources([recordings / name], lakes[name])
    return lakes


def lake_of(real: dict[str, Lake], name: str) -> Lake:
    if name not in real:
        pytest.skip(f"{name} is not among the recordings")
    real[name].refresh()
    return real[name]


def oracle_of(recordings: Path, name: str) -> Any:
    path = recordings / name / "oracle.json"
    if not path.is_file():
        pytest.skip(f"{name} has no oracle.json, written by the real library")
    return json.loads(path.read_text())


def same_as_oracle(item: dict[str, Any], truth: dict[str, Any]) -> None:
    assert set(item) == set(truth)
    for key, value in truth.items():
        found = item[key]
        if isinstance(value, str):
            assert found == value, key
        elif isinstance(value, dict):
            assert found.dtype == torch.uint8
            assert list(found.shape) == value["shape"], key
            assert hashlib.sha256(found.numpy().tobytes()).hexdigest() == value["sha256"], key
        else:
            # The oracle writes single numbers as lists of one.
            assert (found.tolist() if found.ndim else [found.item()]) == value, key


@pytest.mark.parametrize("name", WITH_ORACLE)
def test_items_are_lerobot_s(real: dict[str, Lake], recordings: Path, name: str) -> None:
    """Keys, values, chunks and padding at both edges, and every pixel, singly and batched."""
    oracle = oracle_of(recordings, name)
    window = Window(
        lake_of(real, name),
        {key: [k / oracle["fps"] for k in ks] for key, ks in oracle["delta_timestamps"].items()},
        image_dtype="uint8",
    )
    items = oracle["items"]["pyav"]
    assert len(items) == 27
    numbers = [item["index"][0] for item in items]
    for truth, single, batched in zip(
        items, map(window.__getitem__, numbers), window.__getitems__(numbers), strict=True
    ):
        same_as_oracle(single, truth)
        same_as_oracle(batched, truth)
    floats = {"observation.state", "action", "timestamp"}
    for key, value in single.items():
        if key in floats:
            assert value.dtype == torch.float32
        elif key.endswith("index"):
            assert (value.dtype, value.ndim) == (torch.int64, 0)


@pytest.mark.parametrize("name", WITH_ORACLE)
def test_the_info_is_lerobot_s(real: dict[str, Lake], recordings: Path, name: str) -> None:
    info = json.loads((recordings / name / "meta/info.json").read_text())
    window = Window(lake_of(real, name))
    assert (window.num_frames, window.num_episodes) == (
        info["total_frames"],
        info["total_episodes"],
    )
    assert window.fps == info["fps"]
    assert window.meta.robot_type == info["robot_type"]
    for key, declared in info["features"].items():
        described = window.features[key]
        assert described["dtype"] == declared["dtype"], key
        assert list(described["shape"]) == declared["shape"], key
        assert described["names"] == declared["names"], key
    recorded = json.loads((recordings / name / "meta/stats.json").read_text())
    for key in ("observation.state", "action"):
        for statistic in ("min", "max", "mean", "std"):
            np.testing.assert_allclose(
                window.stats[key][statistic], recorded[key][statistic], rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize(("name", "layout"), WITHOUT, ids=[name for name, _ in WITHOUT])
def test_values_and_frames_where_there_is_no_oracle(
    real: dict[str, Lake], recordings: Path, name: str, layout: Any
) -> None:
    """Against the rows read by pyarrow and a plain decode from the file's first frame."""
    window = Window(lake_of(real, name), image_dtype="uint8")
    truth = list(layout(recordings / name))
    assert len(window) == sum(one.rows.num_rows for one in truth)
    first = 0
    for one in truth:
        steps = sorted({0, one.rows.num_rows // 2, one.rows.num_rows - 1})
        items = window.__getitems__([first + step for step in steps])
        for key in one.rows.column_names:
            column = np.asarray(one.rows[key].to_pylist())
            for item, step in zip(items, steps, strict=True):
                wanted = torch.tensor(column[step].tolist())  # what LeRobot makes of a row
                assert item[key].dtype == wanted.dtype, key
                assert torch.equal(item[key], wanted), key
        for key, (file, frame) in one.videos.items():
            frames = plain_frames(file, {frame + step for step in steps})
            for item, step in zip(items, steps, strict=True):
                picture = item[key].permute(1, 2, 0).numpy()
                assert picture.tobytes() == frames[frame + step].tobytes(), (key, step)
        first += one.rows.num_rows


def test_an_episode_of_several_tasks(tmp_path: Path) -> None:
    root = lerobot.write_v3(tmp_path / "source", (6, 4))
    tasks = [1, 1, 0, 0, 1, 1, 0, 0, 0, 0]
    lerobot.edit_rows(
        root / lerobot.V3_DATA, lambda rows: lerobot.replace_column(rows, "task_index", tasks)
    )
    lake = create_lake(tmp_path / "x.lake")
    ingest_sources([root], lake)
    lake.refresh()
    window = Window(lake)
    assert [item["task"] for item in window[:]] == [lerobot.TASKS[task] for task in tasks]
    assert [int(item["task_index"]) for item in window[:]] == tasks


def test_tasks_whose_texts_are_gone_are_an_error(tmp_path: Path) -> None:
    root = lerobot.write_v3(tmp_path / "source", (6,))
    lerobot.edit_rows(
        root / lerobot.V3_DATA,
        lambda rows: lerobot.replace_column(rows, "task_index", [0, 0, 7, 7, 1, 1]),
    )
    lake = create_lake(tmp_path / "x.lake")
    ingest_sources([root], lake)
    lake.refresh()
    with pytest.raises(LoaderError, match=r"episode_000000.*3 tasks, and its labels 2 texts"):
        Window(lake)[0]


def test_a_loader_batch_is_in_lerobot_s_form(real: dict[str, Lake], recordings: Path) -> None:
    name = WITH_ORACLE[0]
    oracle = oracle_of(recordings, name)
    window = Window(
        lake_of(real, name), delta_steps={"action": range(20)}, keys=["action", "observation.state"]
    )
    loader = DataLoader(
        window, batch_size=4, sampler=[i["index"][0] for i in oracle["items"]["pyav"]]
    )
    batch = next(iter(loader))
    assert batch["action"].shape == (4, 20, 14)
    assert batch["action"][2].tolist() == oracle["items"]["pyav"][2]["action"]

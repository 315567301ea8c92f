"""Statistics: true ones over all steps and pixels, in LeRobot's shapes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.export.lerobot import vector_stats as module
from ingest.export.lerobot.picture_stats import Histogram, sampled_steps
from ingest.export.lerobot.schema import Camera, Column
from ingest.export.lerobot.vector_stats import ColumnSpool, has_stats, vector_stats
from lake import read_frames
from tests.ingest.export.lakes import exported, lake_of

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


def check(stats: dict[str, Any], numbers: np.ndarray[Any, Any]) -> None:
    """Statistics [D] are those of numbers [N, D]."""
    expected = {name: np.quantile(numbers, at, axis=0) for name, at in QUANTILES.items()}
    expected |= {"min": numbers.min(0), "max": numbers.max(0), "mean": numbers.mean(0)}
    expected["std"] = numbers.std(0)
    for name, value in expected.items():
        np.testing.assert_allclose(np.ravel(stats[name]), np.ravel(value), rtol=1e-6, atol=1e-9)


def test_quantiles_of_a_dataset_are_those_of_all_steps(
    tmp_path: Path, make_filmed_episode: Any
) -> None:
    episodes = [make_filmed_episode(n, steps=steps) for n, steps in enumerate((5, 40, 11))]
    lake = lake_of(tmp_path / "robots.lake", episodes)
    exported(lake, tmp_path / "v3")
    exported(lake, tmp_path / "v21", "2.1")
    stats = json.loads((tmp_path / "v3/meta/stats.json").read_text())
    assert stats == json.loads((tmp_path / "v21/meta/stats.json").read_text())
    state = np.concatenate([e.features["state"] for e in episodes]).astype(np.float64)
    check(stats["observation.state"], state)
    assert stats["observation.state"]["count"] == [56]
    assert np.shape(stats["observation.state"]["q01"]) == (4,)
    check(stats["frame_index"], np.concatenate([np.arange(n) for n in (5, 40, 11)])[:, None])
    assert "observation.note" not in stats
    pixels = np.concatenate(
        [read_frames(lake, e.episode_id, "top", range(e.num_steps)) for e in episodes]
    )
    top = stats["observation.images.top"]
    assert np.shape(top["mean"]) == (3, 1, 1)
    assert top["count"] == [56]
    check(top, pixels.transpose(0, 2, 3, 1).reshape(-1, 3) / 255)
    lines = (tmp_path / "v21/meta/episodes_stats.jsonl").read_text().splitlines()
    of_second = json.loads(lines[1])["stats"]["observation.state"]
    assert set(of_second) == {"min", "max", "mean", "std", "count"}
    np.testing.assert_allclose(of_second["mean"], episodes[1].features["state"].mean(0), rtol=1e-5)


@pytest.mark.parametrize("block_bytes", [1, 8 * 30 * 2, 1 << 20])
def test_columns_are_measured_a_block_of_elements_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", block_bytes)
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 2, 3)).astype(np.float32) for n in (10, 20)]
    parts[1][4, 1, 2] = np.nan  # a step that does not count
    with ColumnSpool(tmp_path / "spool") as spool:
        for part in parts:
            spool.add({"grid": part, "flag": part[:, 0, 0] > 0})
        stats = spool.stats()
    assert not (tmp_path / "spool").exists()
    grid = np.concatenate(parts).astype(np.float64)
    finite = np.isfinite(grid).all(axis=(1, 2))
    check(stats["grid"], grid[finite].reshape(-1, 6))
    assert np.shape(stats["grid"]["q99"]) == (2, 3)
    assert stats["grid"]["count"] == [29]
    assert stats["flag"]["count"] == [30]


def test_without_a_finite_step_all_is_nan() -> None:
    stats = vector_stats(np.full((3, 2), np.inf))
    assert np.isnan(stats["mean"]).all()
    assert stats["count"] == [0]


def test_quantiles_of_a_histogram_are_those_of_its_pixels() -> None:
    camera = Camera(
        key="c", name="c", codec="png", height=5, width=7, channels=3, pix_fmt="rgb24",
        is_depth=False,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    pictures = rng.integers(0, 256, (4, 3, 5, 7), np.uint8)
    histogram = Histogram(camera)
    for picture in pictures:
        histogram.add_picture(picture)
    check(histogram.stats(), pictures.transpose(0, 2, 3, 1).reshape(-1, 3) / 255)


@pytest.mark.parametrize(
    ("steps", "count"), [(1, 1), (99, 99), (100, 100), (500, 105), (1000, 177), (10_000, 1000)]
)
def test_as_many_pictures_are_looked_at_as_lerobot_does(steps: int, count: int) -> None:
    chosen = sampled_steps(steps)
    assert len(chosen) == count
    assert (chosen[0], chosen[-1]) == (0, steps - 1)


def test_what_lerobot_would_refuse_has_no_statistics() -> None:
    assert has_stats(Column(key="action", name="action", dtype="float32", shape=(7,)))
    for column in (
        Column(key="note", name="note", dtype="string"),
        Column(key="points", name="points", dtype="float32", shape=(1025,)),
        Column(key="observation.has_image_0", name="has_image_0", dtype="bool"),
    ):
        assert not has_stats(column)

"""The examples run, learn, and do what they say."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

from examples import ddp, lerobot_style, openpi_style, plain_torch
from ingest.pipeline import ingest_sources
from lake import create_lake
from tests.ingest import lerobot_data

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An ingested LeRobot dataset with two cameras."""
    folder = tmp_path_factory.mktemp("examples")
    cameras = ("observation.images.top", "observation.images.wrist")
    source = lerobot_data.write_v3(folder / "source", (40, 25, 31), cameras)
    ingested = create_lake(folder / "robots.lake")
    ingest_sources([source], ingested)
    return ingested.uri


def learns(losses: list[float]) -> bool:
    """Finite, and lower at the end than at the beginning."""
    third = len(losses) // 3
    return bool(
        np.isfinite(losses).all() and np.mean(losses[-third:]) < 0.95 * np.mean(losses[:third])
    )


def test_plain_torch_learns_and_goes_on_as_if_never_stopped(lake: str, tmp_path: Path) -> None:
    whole = plain_torch.train(lake, steps=12, out=tmp_path / "whole.pt")
    assert len(whole) == 12
    assert learns(whole)
    first = plain_torch.train(lake, steps=5, out=tmp_path / "parts.pt")
    second = plain_torch.train(lake, steps=12, out=tmp_path / "parts.pt")
    assert first + second == whole
    assert plain_torch.train(lake, steps=12, out=tmp_path / "parts.pt") == []


def test_lerobot_style_learns(lake: str) -> None:
    assert learns(lerobot_style.train(lake, steps=15))


def test_openpi_style_learns(lake: str) -> None:
    assert learns(openpi_style.train(lake, steps=12, batch_size=4))


def test_two_ranks_of_ddp_have_the_losses_of_one(lake: str, tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/x", rank=0, world_size=1)
    try:
        alone = ddp.train(lake, steps=6)
    finally:
        dist.destroy_process_group()
    assert learns(alone)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *command, "-m", "examples.ddp", lake, "--steps", "6"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    printed = [float(line.split()[-1]) for line in done.stdout.splitlines() if "loss" in line]
    assert printed == pytest.approx(alone, abs=1e-4)

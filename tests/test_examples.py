"""The examples run, learn, and do what they say."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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


def test_two_ranks_of_ddp_have_the_losses_of_one(
    lake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Started as torchrun starts it, the first of the ranks in this process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["examples.ddp", lake, "--steps", "6"]
    monkeypatch.setattr(sys, "argv", command)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_RANK": "0", "RANK": "0"}
    for name, value in {**place, "OMP_NUM_THREADS": "1", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    ddp.main()
    alone = _losses(capsys.readouterr().out)
    assert len(alone) == 6
    assert learns(alone)
    monkeypatch.setenv("WORLD_SIZE", "2")
    second = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "RANK": "1", "LOCAL_RANK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        ddp.main()
        said, _ = second.communicate(timeout=60)
    finally:
        second.kill()
    assert second.returncode == 0, said
    assert "loss" not in said  # the first rank speaks for all
    assert _losses(capsys.readouterr().out) == pytest.approx(alone, abs=1e-4)


def _losses(printed: str) -> list[float]:
    return [float(line.split()[-1]) for line in printed.splitlines() if "loss" in line]

"""`headrace train`: alone, under torchrun, and told nonsense."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lake import Lake
from lake.errors import HeadraceError
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.training.plans import make_lake, plan_windows
from tools.cli import build_app
from training.checkpoints.folder import read_progress
from training.config import TrainConfig
from training.logs.ledger import surviving_trajectory

SMALL = [
    "--set", "model.width=16", "--set", "model.expert_width=16", "--set", "model.heads=2",
    "--set", "model.head_dim=8", "--set", "model.conv_channels=8,",
    "--set", "loader.process=inline",
]  # fmt: skip


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Plan]:
    lake = make_lake(tmp_path_factory.mktemp("train") / "robots.lake")
    plan = plan_windows(lake, slots=2, epochs=2)
    save_plan(lake, plan, "windows")
    return lake, plan


def command(lake: Lake, out: Path, *options: str) -> list[str]:
    return ["train", lake.uri, "windows", "--out", str(out), *SMALL, *options]


def test_json_is_all_of_stdout(planned: tuple[Lake, Plan], tmp_path: Path) -> None:
    lake, plan = planned
    found = CliRunner().invoke(build_app(), command(lake, tmp_path / "run", "--json"))
    assert found.exit_code == 0, found.output
    summary = json.loads(found.stdout)
    assert summary["finished"]
    assert summary["steps"] == summary["total_steps"] == plan.num_steps
    assert summary["last"]["step"] == plan.num_steps
    assert Path(summary["checkpoint"]).is_dir()
    assert (tmp_path / "run" / "loss.png").is_file()


def test_options_reach_the_run_and_the_same_command_resumes(
    planned: tuple[Lake, Plan], tmp_path: Path
) -> None:
    lake, _ = planned
    file = tmp_path / "train.yaml"
    file.write_text("optimizer:\n  weight_decay: 0.5\n  lr: 9\n")
    options = [
        "--config", str(file), "--lr", "0.002", "--steps", "2", "--checkpoint-every", "1",
        "--seed", "5", "--threads", "1", "--set", "optimizer.ema_decay=0.5",
    ]  # fmt: skip
    first = CliRunner().invoke(build_app(), command(lake, tmp_path / "run", *options))
    assert first.exit_code == 0, first.output
    assert "lr=0.002" in first.stderr
    assert "step 2 of 2" in first.stderr
    config = TrainConfig.from_dict(
        read_progress(tmp_path / "run" / "checkpoints" / "step-00000002").config
    )
    assert (config.optimizer.lr, config.optimizer.weight_decay) == (0.002, 0.5)
    assert (config.optimizer.ema_decay, config.seed, config.checkpoint.every_steps) == (0.5, 5, 1)
    again = CliRunner().invoke(build_app(), command(lake, tmp_path / "run", *options))
    assert again.exit_code == 0
    assert "nothing left to do" in again.stderr


def test_a_vocabulary_larger_than_the_policy_is_told(
    planned: tuple[Lake, Plan], tmp_path: Path
) -> None:
    lake, plan = planned
    small = CliRunner().invoke(build_app(), command(lake, tmp_path / "a", "--steps", "1"))
    assert "embedding alone" not in small.stderr
    header = dataclasses.replace(plan.header, vocab_size=700_000)
    save_plan(lake, dataclasses.replace(plan, header=header).sealed(), "wordy")
    options = ["--out", str(tmp_path / "b"), *SMALL, "--steps", "1"]
    large = CliRunner().invoke(build_app(), ["train", lake.uri, "wordy", *options])
    assert large.exit_code == 0, large.output
    said = " ".join(large.stderr.split())
    assert "has 700,000 ids: at width 16 their embedding alone is 11 million parameters" in said
    assert "0.2 GB with gradients" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "optimizer.speed=1"], "unknown setting optimizer.speed"),
        (["--set", "lr"], "NAME=VALUE"),
        (["--preset", "giant"], "there are: tiny, small"),
        (["--steps", "100000"], "make a plan of more epochs"),
        (["--config", "/does/not/exist.yaml"], "exist.yaml"),
        (["--image-size", "0"], "image-size"),
    ],
)
def test_nonsense_is_one_named_error(
    planned: tuple[Lake, Plan], tmp_path: Path, options: list[str], message: str
) -> None:
    lake, _ = planned
    found = CliRunner().invoke(build_app(), command(lake, tmp_path / "run", *options))
    assert found.exit_code != 0
    told = found.stderr if found.exit_code == 2 else str(found.exception)
    assert isinstance(found.exception, HeadraceError | SystemExit)
    assert message in told
    assert not (tmp_path / "run").exists()


@pytest.mark.timeout(200)
def test_torchrun_starts_two_ranks(planned: tuple[Lake, Plan], tmp_path: Path) -> None:
    lake, plan = planned
    headrace = Path(sys.executable).with_name("headrace")
    if not headrace.exists():
        pytest.fail(f"{headrace} is not installed: pip install -e . --no-deps")
    found = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python",
            "--nproc-per-node", "2", str(headrace),
            *command(lake, tmp_path / "run", "--json"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    summary = json.loads(found.stdout)
    assert summary["finished"]
    assert read_progress(Path(summary["checkpoint"])).world_size == 2
    packs = surviving_trajectory(tmp_path / "run" / "ledger")
    assert {pack.slot for pack in packs} == {0, 1}
    assert sum(len(pack.span_ids) for pack in packs) == 2 * plan.header.num_spans

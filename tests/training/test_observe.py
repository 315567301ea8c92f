"""What a run shows beside its metrics: TensorBoard, profiles, times of each rank."""

import dataclasses
import gzip
import json
import sys
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lake import Lake
from packing.plan import Plan
from tests.training.plans import make_lake, plan_windows, train_config
from training.config import ObserveConfig
from training.distributed import Ranks
from training.errors import ConfigError
from training.logs.metrics import read_metrics
from training.logs.profile import profiled
from training.loop import train

_ALONE = Ranks(rank=0, world_size=1, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Plan]:
    lake = make_lake(tmp_path_factory.mktemp("observed") / "robots.lake")
    return lake, plan_windows(lake)


def test_tensorboard_has_the_lines_of_the_metrics_over_a_resume(
    planned: tuple[Lake, Plan], tmp_path: Path
) -> None:
    lake, plan = planned
    for steps in (3, 5):
        config = dataclasses.replace(
            train_config(every=3), steps=steps, observe=ObserveConfig(tensorboard=True)
        )
        train(lake, plan, tmp_path, config)
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    lines = read_metrics(tmp_path / "metrics.jsonl")
    shown = [(event.step, event.value) for event in board.Scalars("train/loss")]
    assert [step for step, _ in shown] == [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    assert [value for _, value in shown] == pytest.approx([line["loss"] for line in lines])
    assert [event.value for event in board.Scalars("ranks/sync_s_max")] == [0.0] * 5


def test_without_tensorboard_the_extra_is_named(
    planned: tuple[Lake, Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, plan = planned
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    config = dataclasses.replace(train_config(steps=1), observe=ObserveConfig(tensorboard=True))
    with pytest.raises(ConfigError, match=r"headrace\[tensorboard\]"):
        train(lake, plan, tmp_path, config)


def test_one_step_in_so_many_is_profiled(planned: tuple[Lake, Plan], tmp_path: Path) -> None:
    lake, plan = planned
    config = dataclasses.replace(train_config(steps=4), observe=ObserveConfig(profile_every=2))
    train(lake, plan, tmp_path, config)
    lines = (tmp_path / "profile" / "profile-rank0.jsonl").read_text().splitlines()
    profiles = [json.loads(line) for line in lines]
    assert [profile["step"] for profile in profiles] == [2, 4]
    for profile in profiles:
        assert profile["busy_s"] > 0
        assert profile["exchange_s"] == 0
        trace = json.loads(gzip.decompress((tmp_path / "profile" / profile["trace"]).read_bytes()))
        assert any("mm" in event["name"] for event in trace["traceEvents"])


def test_exchange_is_told_from_arithmetic(tmp_path: Path) -> None:
    with profiled(tmp_path, _ALONE, 1, every=1):
        torch.ones(64, 64) @ torch.ones(64, 64)
        with torch.profiler.record_function("gloo:all_reduce"):
            torch.ones(8)
    (line,) = (tmp_path / "profile-rank0.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert 0 < found["exchange_s"] < found["busy_s"]


def test_no_interval_profiles_nothing(tmp_path: Path) -> None:
    with profiled(tmp_path, _ALONE, 1, every=0):
        pass
    with profiled(tmp_path, _ALONE, 3, every=2):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="negative"):
        ObserveConfig(profile_every=-1)

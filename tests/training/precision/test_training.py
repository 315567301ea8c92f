"""FP8 in the training loop: that it is taken, recorded, resumed and saved as without it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lake import Lake
from packing.plan import Plan
from tests.training.plans import train_config
from training.config import TrainConfig
from training.errors import ConfigError
from training.loop import train
from training.policy import load_model
from training.precision.config import PrecisionConfig

FP8 = PrecisionConfig(fp8="emulate")


def config(precision: PrecisionConfig, *, steps: int | None = None) -> TrainConfig:
    return replace(train_config(steps=steps, every=2), precision=precision)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_model(folder).state_dict()


def test_a_run_in_fp8_says_so_and_resumes_and_loads_without_it(
    planned: tuple[Lake, Plan], tmp_path: Path
) -> None:
    lake, plan = planned
    whole = train(lake, plan, tmp_path / "whole", config(FP8, steps=4))
    facts = json.loads((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()[0])
    assert facts["fp8"]["choice"] == {
        "kind": "emulate", "recipe": "tensor", "reason": "precision.fp8=emulate",
    }  # fmt: skip
    assert "trunk.0.qkv" in facts["fp8"]["names"]
    assert facts["fp8"]["left"] == {f"expert.{n}.modulation": "modulates a norm" for n in (0, 1)}
    train(lake, plan, tmp_path / "parts", config(FP8, steps=2))
    parts = train(lake, plan, tmp_path / "parts", config(FP8, steps=4))
    plain = train(lake, plan, tmp_path / "plain", config(PrecisionConfig(), steps=4))
    one, two = weights(whole.checkpoint), weights(parts.checkpoint)
    three = weights(plain.checkpoint)
    assert one.keys() == three.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], three[name]) for name in one)


def test_a_checkpoint_goes_on_in_another_format(planned: tuple[Lake, Plan], tmp_path: Path) -> None:
    lake, plan = planned
    train(lake, plan, tmp_path / "run", config(PrecisionConfig(), steps=2))
    result = train(lake, plan, tmp_path / "run", config(FP8, steps=4))
    assert (result.resumed_from, result.steps) == (2, 4)


def test_what_the_device_cannot_do_is_refused_before_a_run_begins(
    planned: tuple[Lake, Plan], tmp_path: Path
) -> None:
    lake, plan = planned
    asked = PrecisionConfig(dtype="bf16", fp8="te")
    with pytest.raises(ConfigError, match=r"precision\.fp8=te cannot run here"):
        train(lake, plan, tmp_path / "run", config(asked))
    assert not (tmp_path / "run" / "run.json").exists()

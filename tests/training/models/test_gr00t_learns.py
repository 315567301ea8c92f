"""The tiny GR00T N1.5 learns, and comes back from a checkpoint."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lake import Lake
from packing.plan import Plan
from tests.training import batches
from tests.training.batches import pack
from tests.training.models.gr00t_model import SMALL
from tests.training.models.tasks import task, task_spec
from tests.training.plans import train_config
from training.loop import train
from training.loss import flow_matching_loss
from training.models.gr00t.config import GrootConfig
from training.models.gr00t.model import GrootPolicy
from training.models.kinds import PRESETS
from training.policy import Policy, load_model


def test_the_tiny_preset_learns_words_and_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "IMAGE_TOKENS", 16)
    config = PRESETS["gr00t-tiny"]
    assert isinstance(config, GrootConfig)
    torch.manual_seed(0)
    model = GrootPolicy(config, task_spec())
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1.5e-3, betas=(0.9, 0.95), weight_decay=0.0
    )
    losses = []
    for step in range(80):
        batch = pack(task(16, first=1000 + 16 * step), segments=16)
        loss = flow_matching_loss(model(batch), batch) / batch.num_action_items
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-10:]) < losses[0] / 4
    unseen = pack(task(16, first=10**6), segments=16)
    # A policy blind to pictures is 0.35 off, one deaf to words 0.65.
    assert float((model.sample(unseen) - unseen.actions).abs().mean()) < 0.25


def test_a_trained_gr00t_acts_from_its_checkpoint_alone(
    planned_cameras: tuple[Lake, Plan], tmp_path: Path
) -> None:
    lake, plan = planned_cameras
    config = replace(train_config(steps=2), model=replace(SMALL, normalise="quantiles"))
    result = train(lake, plan, tmp_path / "run", config)
    model = load_model(result.checkpoint)
    assert isinstance(model, GrootPolicy)
    assert model.config == config.model
    saved = load_file(result.checkpoint / "policy.safetensors")
    assert saved.keys() == model.state_dict().keys()
    assert all(torch.equal(saved[name], value) for name, value in model.state_dict().items())
    policy = Policy.load(result.checkpoint)
    pictures = {name: np.zeros((32, 32, 3), np.uint8) for name in ("front", "wrist")}

    def act(*cameras: str) -> list[float]:
        policy.reset(0)
        seen = {name: pictures[name] for name in cameras}
        actions = policy.act(seen, np.zeros(4, np.float32), "lift")
        assert actions.shape == (5, 3)
        return [float(value) for value in actions.ravel()]

    assert act("front", "wrist") == act("front", "wrist")
    assert act("front") != act("front", "wrist")

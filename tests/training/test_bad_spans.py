"""Training over spans that are damaged in the lake: no loss, no leak, counted, bounded."""

import dataclasses
from pathlib import Path

import pytest
import torch

from lake import Lake, visible_episodes
from lake.read import read_signals
from loader.batch import PackedBatch
from loader.errors import BadDataError
from loader.pack_loader import PackLoader
from packing.plan import Plan
from tests.loader.damage import damaged_copy
from tests.training.plans import SMALLEST, train_config
from training.config import TrainConfig
from training.logs.ledger import surviving_trajectory
from training.logs.metrics import read_metrics
from training.loop import train
from training.loss import flow_matching_loss
from training.models.film.model import FilmPolicy
from training.policy_spec import PolicySpec

Planned = tuple[Lake, Plan]


def _damaged(lake: Lake, folder: Path, episodes: int) -> Lake:
    """A copy of the lake in which the states of the first episodes are damaged."""
    addresses = visible_episodes(lake)["address"].to_pylist()[:episodes]
    states = [each.features["state"] for each in read_signals(lake, addresses)]
    return damaged_copy(lake, folder, [state[2:4].tobytes() for state in states])


def _config(share: float) -> TrainConfig:
    config = train_config(process="inline")
    return dataclasses.replace(
        config, loader=dataclasses.replace(config.loader, max_bad_share=share)
    )


def _spans_of(plan: Plan, episodes: int) -> int:
    """Occurrences of spans of the first episodes of the lake."""
    names = plan.episodes["episode_id"].to_pylist()
    rows = [names.index(name) for name in sorted(names)[:episodes]]
    return sum(episode in rows for pack in plan.packs["episode"].to_pylist() for episode in pack)


def test_a_run_goes_on_without_them_and_counts_them(planned: Planned, tmp_path: Path) -> None:
    lake, plan = planned
    damaged = _damaged(lake, tmp_path / "damaged.lake", 2)
    result = train(damaged, plan, tmp_path / "run", _config(1.0))
    assert result.finished
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert sum(line["bad_spans"] for line in lines) == _spans_of(plan, 2) > 0
    assert sum(line["spans"] for line in lines) == 3 * plan.header.num_spans
    eaten = surviving_trajectory(tmp_path / "run" / "ledger")
    assert sum(len(pack.span_ids) for pack in eaten) == 3 * plan.header.num_spans


def test_a_run_in_which_all_are_damaged_changes_nothing_it_learns_from(
    planned: Planned, tmp_path: Path
) -> None:
    lake, plan = planned
    damaged = _damaged(lake, tmp_path / "damaged.lake", 6)
    result = train(damaged, plan, tmp_path / "run", _config(1.0))
    assert result.finished
    for line in read_metrics(tmp_path / "run" / "metrics.jsonl"):
        assert line["bad_spans"] == line["spans"]
        assert line["loss"] == line["grad_norm"] == line["action_values"] == 0


def test_above_the_ceiling_the_run_ends(planned: Planned, tmp_path: Path) -> None:
    lake, plan = planned
    damaged = _damaged(lake, tmp_path / "damaged.lake", 1)
    with pytest.raises(BadDataError, match=r"state does not match.*max_bad_share=0\.0001"):
        train(damaged, plan, tmp_path / "run", train_config())


def test_loss_and_gradients_are_those_of_the_other_spans(
    planned_cameras: Planned, tmp_path: Path
) -> None:
    lake, plan = planned_cameras
    damaged = _damaged(lake, tmp_path / "damaged.lake", 1)
    torch.manual_seed(0)
    model = FilmPolicy(SMALLEST, PolicySpec.from_plan(plan.header, image_size=None))

    def learned(batch: PackedBatch[torch.Tensor]) -> list[torch.Tensor]:
        model.zero_grad()
        loss = flow_matching_loss(model(batch), batch)
        torch.autograd.backward(loss)
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        return [loss.detach(), *(gradient.clone() for gradient in gradients)]

    with (
        PackLoader(damaged, plan, process="inline", max_bad_share=1.0) as bad,
        PackLoader(lake, plan, process="inline") as sound,
    ):
        mixed = 0
        for without, whole in zip(bad, sound, strict=True):
            weights = without.sample_weights
            mixed += 0 < int(weights.count_nonzero()) < without.num_spans
            masked = dataclasses.replace(whole, sample_weights=weights)
            for one, other in zip(learned(without), learned(masked), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert mixed

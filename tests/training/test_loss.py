from dataclasses import replace

import pytest
import torch

from tests.training.batches import make_spans, pack
from training.loss import (
    Prediction,
    counted_actions,
    flow_matching_loss,
    scale_gradients,
    sum_over_ranks,
)


def test_counted_actions_are_what_the_batch_counts() -> None:
    batch = pack(make_spans(10, seed=1))
    assert int(counted_actions(batch).sum()) == batch.num_action_items


def test_loss_sums_the_counted_values_only() -> None:
    batch = pack(make_spans(10, seed=1))
    counted = counted_actions(batch)
    velocity = torch.zeros(batch.actions.shape)
    target = torch.where(counted, 2.0, float("nan"))
    loss = flow_matching_loss(Prediction(velocity, target), batch)
    assert float(loss) == 4.0 * batch.num_action_items


def test_weights_of_spans_and_queries_scale_the_errors() -> None:
    batch = pack(make_spans(3, seed=2))
    prediction = Prediction(torch.zeros(batch.actions.shape), torch.ones(batch.actions.shape))
    weights = torch.zeros_like(batch.sample_weights)
    weights[1] = 0.25
    first, stop = batch.cu_seqlens_action[1:3].tolist()
    loss = flow_matching_loss(prediction, replace(batch, sample_weights=weights))
    assert float(loss) == pytest.approx(0.25 * int(counted_actions(batch)[first:stop].sum()))


def test_an_empty_pack_has_a_loss_of_zero_with_a_graph() -> None:
    batch = pack([], pad=3)
    velocity = torch.zeros(0, 4, requires_grad=True)
    loss = flow_matching_loss(Prediction(velocity, torch.zeros(0, 4)), batch)
    assert float(loss.detach()) == 0.0
    assert loss.requires_grad


def test_gradients_are_scaled_to_the_global_mean() -> None:
    layer = torch.nn.Linear(2, 1)
    layer.weight.grad = torch.full((1, 2), 6.0)
    scale_gradients(layer, items=12, world_size=2)
    assert layer.weight.grad.tolist() == [[1.0, 1.0]]
    assert layer.bias.grad is None
    scale_gradients(layer, items=0, world_size=2)
    assert bool(torch.isfinite(layer.weight.grad).all())


def test_one_rank_sums_alone() -> None:
    assert sum_over_ranks([1.5, 2**53], torch.device("cpu")) == [1.5, 2**53]

"""States that are masked do not reach the model, whatever the batch holds there."""

from dataclasses import replace

import torch

from tests.training.batches import TINY, make_spans, pack, policy_spec
from training.loss import flow_matching_loss
from training.models.film.model import FilmPolicy


def test_masked_states_are_not_read() -> None:
    torch.manual_seed(0)
    model = FilmPolicy(TINY, policy_spec())
    batch = pack(make_spans(5, seed=3))
    mask = batch.state_dim_mask.clone()
    mask[1::2] = False
    losses = []
    for value in (0.0, 7.0, float("nan"), float("inf")):
        state = batch.state.where(mask, value)
        masked = replace(batch, state=state, state_dim_mask=mask)
        losses.append(flow_matching_loss(model(masked), masked))
    assert losses[0].isfinite()
    assert len({float(loss.detach()) for loss in losses}) == 1
    assert losses[0] != flow_matching_loss(model(batch), batch)
    torch.autograd.backward(losses[2])
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name

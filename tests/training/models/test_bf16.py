"""Under BF16 products are rounded; what is added up from layer to layer is not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.training.batches import TINY, make_spans, pack, policy_spec
from tests.training.models import gr00t_model
from tests.training.models.pi05_model import small_policy
from training.loss import flow_matching_loss
from training.models.film.model import FilmPolicy
from training.models.policy_model import PolicyModel


def film() -> PolicyModel:
    torch.manual_seed(0)
    return FilmPolicy(TINY, policy_spec())  # of two embodiments


def groot() -> PolicyModel:
    return gr00t_model.small_policy(gr00t_model.groot_spec(future=0))


@pytest.mark.parametrize("make", [film, small_policy, groot])
def test_tokens_between_blocks_stay_float32(make: Callable[[], PolicyModel]) -> None:
    model, batch = make(), pack(make_spans(7, seed=3))
    torch.autograd.backward(flow_matching_loss(model(batch), batch))
    exact = gradients(model)
    model.zero_grad()
    met: list[torch.dtype] = []

    def look(_block: nn.Module, arguments: tuple[object, ...]) -> None:
        met.append(next(each.dtype for each in arguments if isinstance(each, Tensor)))

    for name in model.blocks:
        for block in getattr(model, name):
            block.register_forward_pre_hook(look)
    with torch.autocast("cpu", torch.bfloat16):
        loss = flow_matching_loss(model(batch), batch)
    torch.autograd.backward(loss)
    assert loss.dtype == torch.float32
    assert met
    assert set(met) == {torch.float32}
    assert float(torch.cosine_similarity(gradients(model), exact, dim=0)) > 0.999


def gradients(model: nn.Module) -> Tensor:
    """All of them, one behind the other."""
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

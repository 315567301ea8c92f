"""Blocks are compiled once, not once for each batch, whatever batches hold."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from tests.training.batches import TINY, make_spans, pack, policy_spec
from tests.training.models import gr00t_model
from tests.training.models.pi05_model import small_policy
from training.config import DistributedConfig
from training.distributed import Ranks
from training.loss import flow_matching_loss
from training.models.film.model import FilmPolicy
from training.models.policy_model import PolicyModel
from training.parallel import share


def film() -> PolicyModel:
    torch.manual_seed(0)
    return FilmPolicy(TINY, policy_spec())


def groot() -> PolicyModel:
    return gr00t_model.small_policy(gr00t_model.groot_spec(future=0))


# Dynamo looks at .grad of what enters a block.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("make", [film, small_policy, groot])
def test_batches_of_other_sizes_compile_nothing_new(
    make: Callable[[], PolicyModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    compile_block = nn.Module.compile

    def traced(block: nn.Module, **options: Any) -> None:
        """As `share` asks, but what was traced is run as it is: no compiler of machine code."""
        compile_block(block, backend=counter, **options)

    monkeypatch.setattr(nn.Module, "compile", traced)
    model = make()
    batches = [pack(make_spans(5 + 3 * n, seed=n), pad=n) for n in range(5)]
    expected = [float(flow_matching_loss(model(batch), batch).detach()) for batch in batches]
    ranks = Ranks(rank=0, world_size=1, device=torch.device("cpu"))
    shared = share(model, DistributedConfig(compile=True), ranks)
    counts = []
    for batch, loss in zip(batches, expected, strict=True):
        found = flow_matching_loss(shared.call(batch), batch)
        torch.autograd.backward(found)
        assert float(found.detach()) == pytest.approx(loss, rel=1e-5)
        counts.append(counter.frame_count)
    assert counts[0] > 0
    assert counts[1:] == [counts[1]] * 4, counts
    torch._dynamo.reset()

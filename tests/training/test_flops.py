import pytest
import torch

from tests.training.batches import TINY, make_spans, pack, policy_spec
from training.flops import training_flops
from training.model import PolicyModel


def test_cost_is_that_of_the_spans_alone_and_pads_cost_nothing() -> None:
    torch.manual_seed(0)
    model = PolicyModel(TINY, policy_spec())
    spans = make_spans(9, seed=1)
    alone = sum(training_flops(model, pack([span])) for span in spans)
    assert training_flops(model, pack(spans)) == pytest.approx(alone)
    assert training_flops(model, pack(spans, pad=50)) == pytest.approx(alone)
    assert training_flops(model, pack([], pad=50)) == 0.0

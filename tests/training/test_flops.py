import pytest
import torch

from tests.training.batches import TINY, make_spans, pack, policy_spec
from training.models.film.model import FilmPolicy


def test_cost_is_that_of_the_spans_alone_and_pads_cost_nothing() -> None:
    torch.manual_seed(0)
    model = FilmPolicy(TINY, policy_spec())
    spans = make_spans(9, seed=1)
    alone = sum(model.forward_flops(pack([span])) for span in spans)
    assert model.forward_flops(pack(spans)) == pytest.approx(alone)
    assert model.forward_flops(pack(spans, pad=50)) == pytest.approx(alone)
    assert model.forward_flops(pack([], pad=50)) == 0.0

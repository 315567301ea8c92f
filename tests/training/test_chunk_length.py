"""The length of a chunk tells how near the episode's end is: no action may see it."""

from dataclasses import replace

import pytest
import torch

from tests.training.batches import make_spans, pack, policy_spec
from training.models.film.config import FilmConfig
from training.models.film.model import FilmPolicy

CONFIG = FilmConfig(width=32, expert_width=32, layers=2, heads=2, head_dim=16, conv_channels=(8, 8))


@pytest.mark.parametrize("length", [1, 2, 5])
def test_an_action_does_not_depend_on_how_many_follow(length: int) -> None:
    torch.manual_seed(0)
    model = FilmPolicy(CONFIG, policy_spec()).eval()
    whole = next(span for span in make_spans(20) if len(span.actions) == 6)
    whole = replace(whole, valid=whole.valid | True)
    cut = replace(whole, actions=whole.actions[:length], valid=whole.valid[:length])
    with torch.no_grad():
        long, short = (model(pack([span])).velocity for span in (whole, cut))
    torch.testing.assert_close(short, long[:length])
    # The actions do see each other, and the later the more.
    other = replace(whole, actions=whole.actions.copy())
    other.actions[0] += 1.0
    with torch.no_grad():
        moved = (model(pack([other])).velocity - long).abs().amax(dim=1)
    assert (moved > 1e-6).all()

import pytest
import torch
from torch import nn

from tests.training.batches import policy_spec
from training.config import OptimizerConfig, TrainConfig
from training.ema import Ema
from training.models.parts.embodiment_linear import EmbodimentLinear
from training.trained import Trained


def test_an_update_takes_the_rate_it_is_given_and_clears_gradients() -> None:
    model = nn.Linear(2, 1, bias=False)
    nn.init.ones_(model.weight)
    config = TrainConfig(optimizer=OptimizerConfig(weight_decay=0.0))
    trained = Trained.start(model, policy_spec(), config)
    model.weight.grad = torch.tensor([[3.0, -4.0]])
    trained.update(0.25)
    # The first step of Adam moves each weight by the rate against the sign of its gradient.
    assert model.weight.detach().tolist() == [pytest.approx([0.75, 1.25])]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert trained.ema is None


def test_only_products_decay() -> None:
    model = nn.Linear(2, 2)
    nn.init.ones_(model.weight)
    nn.init.ones_(model.bias)
    config = TrainConfig(optimizer=OptimizerConfig(weight_decay=0.5))
    trained = Trained.start(model, policy_spec(), config)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    trained.update(0.1)
    assert model.weight.detach().flatten().tolist() == pytest.approx([0.95] * 4)
    assert model.bias.detach().tolist() == [1.0, 1.0]


def test_a_bias_for_each_embodiment_does_not_decay_either() -> None:
    model = EmbodimentLinear(3, 2, 2)
    nn.init.ones_(model.weight)
    nn.init.ones_(model.bias)
    config = TrainConfig(optimizer=OptimizerConfig(weight_decay=0.5))
    trained = Trained.start(model, policy_spec(), config)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    trained.update(0.1)
    assert model.weight.detach().flatten().tolist() == pytest.approx([0.95] * 12)
    assert model.bias.detach().flatten().tolist() == [1.0] * 6


def test_the_average_warms_up_and_survives_its_state_dict() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    ema = Ema(model, decay=0.9)
    nn.init.ones_(model.weight)
    expected = 0.0
    for update in range(1, 200):
        ema.update(model)
        decay = min(0.9, (1 + update) / (10 + update))
        expected = decay * expected + (1 - decay)
        assert float(ema.weights["weight"]) == pytest.approx(expected, rel=1e-5)
    other = Ema(model, decay=0.9)
    other.load_state_dict(ema.state_dict())
    ema.update(model)
    other.update(model)
    assert torch.equal(ema.weights["weight"], other.weights["weight"])
    assert int(other.updates) == 200

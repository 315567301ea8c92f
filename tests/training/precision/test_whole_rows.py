import pytest
import torch
from torch import Tensor, nn

from training.precision.whole_rows import WholeRows, in_whole_rows


class Watched(nn.Linear):
    rows: list[int]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        self.rows.append(len(input))
        return super().forward(input)


class Filled(WholeRows, Watched):
    pass


@pytest.mark.parametrize(("rows", "seen"), [(0, 16), (1, 16), (16, 16), (17, 32)])
def test_a_layer_sees_whole_multiples_of_rows_and_its_caller_does_not(rows: int, seen: int) -> None:
    layer = Filled(8, 4)
    layer.multiple, layer.rows = 16, []
    x = torch.randn(rows, 8, requires_grad=True)
    out = layer(x)
    assert layer.rows == [seen]
    torch.testing.assert_close(out, nn.functional.linear(x, layer.weight, layer.bias))
    torch.autograd.backward(out.square().sum())
    filled = [layer.weight.grad, layer.bias.grad, x.grad]
    layer.zero_grad()
    x.grad = None
    torch.autograd.backward(nn.functional.linear(x, layer.weight, layer.bias).square().sum())
    for one, other in zip(filled, [layer.weight.grad, layer.bias.grad, x.grad], strict=True):
        assert one is not None
        torch.testing.assert_close(one, other)


def test_leading_axes_are_kept() -> None:
    assert in_whole_rows(lambda rows: rows[:, :3], torch.ones(2, 3, 5), 16).shape == (2, 3, 3)

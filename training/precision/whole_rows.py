"""Products whose number of rows FP8 kernels would not take, filled up with rows of zeros.

The plan aligns the prefix stream. How many action queries, spans and text tokens a pack has is not
its to choose, and layers on these streams fill up for themselves: rows of zeros change no scale and
add nothing to a gradient.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.functional import pad


class WholeRows:
    """Mixed into a linear layer, before it.

    Attributes:
        multiple: of rows, what the layer below takes; a batch without rows gets this many.
    """

    multiple: int

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name that nn.Linear gives it)
        """[..., in] -> [..., out]."""
        layer: Any = super()
        return in_whole_rows(layer.forward, input, self.multiple)


def in_whole_rows(product: Callable[[Tensor], Tensor], input: Tensor, multiple: int) -> Tensor:  # noqa: A002
    """Apply a product of rows to [..., in], filled up with zeros to a multiple, and cut again."""
    rows = input.reshape(-1, input.shape[-1])
    more = -len(rows) % multiple if len(rows) else multiple
    out = product(pad(rows, (0, 0, 0, more)))[: len(rows)] if more else product(rows)
    return out.reshape(*input.shape[:-1], out.shape[-1])

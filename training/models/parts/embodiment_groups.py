"""Layers with weights of their own for each of many embodiments.

Rows are sorted by embodiment once, and each embodiment's rows are multiplied with its own weights:
as many operations as one linear layer has, however many embodiments there are. (`EmbodimentLinear`
costs that many times the number of embodiments, and in return sorts nothing: right for a few.)
"""

from dataclasses import dataclass
from functools import cached_property, partial

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor, nn

_ALIGNMENT_BYTES = 16  # of a row, for the grouped kernel


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbodimentGroups:
    """Rows of a batch in the order of their embodiments; letters: R rows, E embodiments.

    Attributes:
        order: [R] int64, brings the rows of an embodiment together.
        restore: [R] int64, inverse of `order`.
        ends: [E] int32, where each embodiment's rows end in that order.
    """

    order: Tensor
    restore: Tensor
    ends: Tensor

    @classmethod
    def of(cls, embodiment_ids: Tensor, embodiments: int) -> "EmbodimentGroups":
        """Groups of rows with these embodiments, [R] int64."""
        order = torch.argsort(embodiment_ids, stable=True)
        each = torch.arange(embodiments, device=embodiment_ids.device)
        counts = (embodiment_ids[:, None] == each).sum(dim=0)
        return cls(
            order=order,
            restore=torch.argsort(order),
            ends=counts.cumsum(0).to(torch.int32),
        )

    @cached_property
    def sizes(self) -> list[int]:
        """Rows of each embodiment, read on the host."""
        sizes: list[int] = self.ends.diff(prepend=self.ends.new_zeros(1)).tolist()
        return sizes


class GroupedLinear(nn.Module):
    """A linear layer for each embodiment, on rows in the order of `EmbodimentGroups`.

    Every parameter gets a gradient in every batch, zero where an embodiment is absent.

    Args:
        embodiments: E.
        width_in, width_out: features of a row.
        std: of fresh weights; None for one over the root of `width_in`.
    """

    def __init__(
        self, embodiments: int, width_in: int, width_out: int, *, std: float | None = None
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(embodiments, width_in, width_out))
        self.bias = nn.Parameter(torch.zeros(embodiments, width_out))
        nn.init.normal_(self.weight, std=max(width_in, 1) ** -0.5 if std is None else std)

    def forward(self, x: Tensor, groups: EmbodimentGroups) -> Tensor:
        """[R, width_in] -> [R, width_out], both in the order of `groups`."""
        count = len(self.weight)
        if count == 1 or not len(x):
            return x @ self.weight[0] + self.bias[0]
        if _grouped_kernel(self.weight):
            product = _grouped_mm(x, self.weight, groups)
        else:
            # An absent embodiment's product has no rows: it costs nothing, and its weights get a
            # gradient of zeros.
            rows = torch.split(x, groups.sizes)
            product = torch.cat([rows[e] @ self.weight[e] for e in range(count)])
        # The embodiment of each row in this order, without asking the device how many rows it has.
        each = torch.arange(len(x), device=x.device, dtype=torch.int32)
        mine = torch.bucketize(each, groups.ends, right=True)
        return product + self.bias.index_select(0, mine).to(product.dtype)


class GroupedMlp(nn.Module):
    """Two grouped layers with a ReLU between them.

    Args:
        embodiments: E.
        width_in, hidden, width_out: features of a row.
        std_out: of the last layer's fresh weights, as `GroupedLinear` has it.
    """

    def __init__(
        self,
        embodiments: int,
        width_in: int,
        hidden: int,
        width_out: int,
        *,
        std_out: float | None = None,
    ) -> None:
        super().__init__()
        self.layer_1 = GroupedLinear(embodiments, width_in, hidden)
        self.layer_2 = GroupedLinear(embodiments, hidden, width_out, std=std_out)

    def forward(self, x: Tensor, groups: EmbodimentGroups) -> Tensor:
        """[R, width_in] -> [R, width_out], in the order that the rows came in."""
        h = F.relu(self.layer_1(x.index_select(0, groups.order), groups))
        out: Tensor = self.layer_2(h, groups).index_select(0, groups.restore)
        return out


def _grouped_kernel(weight: Tensor) -> bool:
    """Whether torch's grouped product can run: one kernel, and no question to the device.

    It is made for bfloat16 on GPUs; on the host the loop is as good.
    """
    if weight.device.type == "cpu" or _compute_dtype(weight) != torch.bfloat16:
        return False
    aligned = all(width * 2 % _ALIGNMENT_BYTES == 0 for width in weight.shape[1:])
    return aligned and hasattr(F, "grouped_mm")


def _grouped_mm(x: Tensor, weight: Tensor, groups: EmbodimentGroups) -> Tensor:
    dtype = _compute_dtype(weight)  # the product is none of those that autocast converts
    converted = weight.to(dtype)
    if converted.requires_grad:
        # The kernel leaves what it likes as the gradient of a group without rows, on some devices
        # (github.com/pytorch/pytorch/issues/172439).
        converted = converted.view_as(weight)
        present = groups.ends.diff(prepend=groups.ends.new_zeros(1)) > 0
        hook = partial(_zero_absent, present[:, None, None])
        converted.register_hook(hook)  # type: ignore[no-untyped-call]
    product: Tensor = F.grouped_mm(x.to(dtype), converted, offs=groups.ends)
    return product


def _zero_absent(present: Tensor, gradient: Tensor) -> Tensor:
    return gradient.where(present, 0.0)


def _compute_dtype(weight: Tensor) -> torch.dtype:
    kind = weight.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return weight.dtype

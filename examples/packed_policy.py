"""A small policy over packed batches, for the examples: what a model does with their fields."""

import torch
from torch import Tensor, nn

from loader import PackedBatch
from packing.plan_header import PlanHeader


class PackedPolicy(nn.Module):
    """From the first observed state and the pictures of each span to its actions.

    Args:
        header: of the plan: sizes and normalisation statistics of every embodiment.
        horizon: action steps of a span.
        width: of the hidden layers.
    """

    def __init__(self, header: PlanHeader, horizon: int, width: int = 64) -> None:
        super().__init__()
        self.state = Normaliser(header, "state")
        self.action = Normaliser(header, "action")
        self.see = nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.look = nn.Linear(16, width)
        self.feel = nn.Linear(self.state.mean.shape[1], width)
        self.when = nn.Embedding(horizon, width)
        self.act = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, self.action.mean.shape[1])

    def forward(self, batch: PackedBatch[Tensor]) -> Tensor:
        """Scalar: the *sum* of squared errors over the batch's `num_action_items` action values.

        It runs every module even on a pack without spans, as DDP and FSDP need.
        """
        spans = len(batch.span_ids)
        observed = batch.cu_seqlens_state.diff() > 0
        rows = batch.cu_seqlens_state[:-1].long()[observed]  # the first observed step of a span
        known = batch.state.new_zeros(spans, batch.state.shape[1])
        known[observed] = self.state(batch.state[rows], batch.stats_ids[observed])
        context = self.feel(known)
        # One bucket per picture size; a pack without pictures runs the same modules on none.
        buckets = batch.images or (batch.token_modality.new_zeros(0, 3, 64, 64),)
        lengths = [len(images) for images in buckets]
        owners = torch.split(batch.image_span_ids.long(), lengths)
        for images, owner in zip(buckets, owners, strict=True):
            seen = self.look(self.see(images / 255).flatten(1))
            context = context.index_add(0, owner, seen)
        span = torch.repeat_interleave(batch.cu_seqlens_action.diff().long())
        hidden = self.act(context[span] + self.when(batch.action_position_ids))
        wanted = self.action(batch.actions, batch.stats_ids[span])
        error = (self.head(hidden) - wanted).square() * batch.action_loss_weights[:, None]
        summed: Tensor = error.where(batch.action_dim_mask, 0).sum()
        return summed


class Normaliser(nn.Module):
    """Vectors of any embodiment to mean 0 and deviation 1; `stats_ids` say whose they are."""

    mean: Tensor
    std: Tensor

    def __init__(self, header: PlanHeader, role: str) -> None:
        super().__init__()
        size = max(getattr(spec, f"{role}_size") for spec in header.specs)
        mean, std = torch.zeros(len(header.specs), size), torch.ones(len(header.specs), size)
        for row, spec in enumerate(header.specs):
            stats = [header.stats_of(spec.spec_id, name) for name in getattr(spec, role)]
            for out, field in ((mean, "mean"), (std, "std")):
                values = [value for each in stats for value in getattr(each, field)]
                out[row, : len(values)] = torch.tensor(values)
        self.register_buffer("mean", mean)
        self.register_buffer("std", std.clamp(min=1e-3))

    def forward(self, values: Tensor, stats_ids: Tensor) -> Tensor:
        """[R, D] of the same."""
        of = stats_ids.long()
        return (values - self.mean[of]) / self.std[of]

"""How far the actions of two policies are apart, on windows of a plan."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from lake.store import Lake
from loader.batch import PackedBatch
from loader.pack_loader import PackLoader
from packing.plan_header import PlanHeader
from packing.stored_plan import AnyPlan
from training.errors import ConfigError
from training.loss import counted_actions
from training.models.policy_model import PolicyModel
from training.policy_spec import PolicySpec


@dataclass(frozen=True, kw_only=True)
class ActionErrors:
    """Differences of actions, over all recorded steps and dimensions.

    Relative ones are over the standard deviation of the dimension in the training data.

    Attributes:
        windows: on which both acted, from the same noise.
        mean_abs, max_abs: in the recorded unit, of each action dimension.
        mean_relative, max_relative: over all dimensions.
        recorded_relative: mean relative difference between the first policy and the recording.
        other_recorded_relative: and between the second policy and the recording.
    """

    windows: int
    mean_abs: tuple[float, ...]
    max_abs: tuple[float, ...]
    mean_relative: float
    max_relative: float
    recorded_relative: float
    other_recorded_relative: float


def action_errors(
    model: PolicyModel, other: PolicyModel, batches: Iterable[PackedBatch[Tensor]]
) -> ActionErrors:
    """Let both act on the same observations, with the same noise.

    Args:
        model: whose actions are the measure.
        other: whose actions are compared.
        batches: of a plan with the model's specs and embodiments.

    Raises:
        ConfigError: no batch holds a recorded action.
    """
    std = torch.ones(len(model.spec.spec_ids), model.spec.action_dim)
    for row, moments in enumerate(model.spec.action):
        std[row, : len(moments.std)] = torch.tensor(moments.std)
    windows = 0
    apart, scales, counted, first_off, other_off = [], [], [], [], []
    for batch in batches:
        windows += batch.num_spans
        lengths = batch.cu_seqlens_action.diff().long()
        rows = torch.repeat_interleave(batch.stats_ids.long(), lengths)
        one, two = model.sample(batch), other.sample(batch)
        counted.append(counted_actions(batch))
        scales.append(std[rows].clamp(min=1e-12))
        apart.append((two - one).abs())
        first_off.append((one - batch.actions).abs())
        other_off.append((two - batch.actions).abs())
    mask = torch.cat(counted) if counted else torch.zeros(0, 1, dtype=torch.bool)
    if not mask.any():
        raise ConfigError("the plan has no recorded action to compare on")
    scale, difference = torch.cat(scales), torch.cat(apart).where(mask, 0.0)
    relative = (difference / scale)[mask]

    def off(parts: list[Tensor]) -> float:
        return float((torch.cat(parts) / scale)[mask].mean())

    return ActionErrors(
        windows=windows,
        mean_abs=tuple((difference.sum(0) / mask.sum(0).clamp(min=1)).tolist()),
        max_abs=tuple(difference.amax(0).tolist()),
        mean_relative=float(relative.mean()),
        max_relative=float(relative.max()),
        recorded_relative=off(first_off),
        other_recorded_relative=off(other_off),
    )


def windows_of(lake: Lake, plan: AnyPlan, spec: PolicySpec, most: int) -> list[PackedBatch[Tensor]]:
    """Packs of a plan's beginning, until they hold `most` windows or it ends.

    Args:
        lake: that the plan was made of.
        plan: of windows that the policy was not trained on, if it is to say something.
        spec: of the policy.
        most: windows to read, but for what the last pack has more.

    Raises:
        ConfigError: the plan's data are not of the policy's kind.
        LoaderError: data cannot be read.
    """
    require_same_kind(spec, plan.header)
    size = None if spec.image_size is None else (spec.image_size, spec.image_size)
    batches: list[PackedBatch[Tensor]] = []
    with PackLoader(lake, plan, process="inline", image_size=size) as loader:
        for batch in loader:
            if batch.num_spans:
                batches.append(batch.trimmed())
            if sum(each.num_spans for each in batches) >= most:
                break
    return batches


def require_same_kind(spec: PolicySpec, header: PlanHeader) -> None:
    """Refuse a plan whose ids mean something else than the policy's.

    Raises:
        ConfigError: what differs.
    """
    theirs = PolicySpec.from_plan(header, image_size=spec.image_size)
    for name in (
        "layout", "tokenizer_fingerprint", "cameras", "embodiments", "spec_ids", "state_dim",
        "action_dim", "span_kind", "history",
    ):  # fmt: skip
        if (have := getattr(theirs, name)) != (want := getattr(spec, name)):
            raise ConfigError(
                f"plan {header.plan_hash} has {name} {have}, the policy was trained with {want}:"
                " pack its windows as those of the training plan"
            )

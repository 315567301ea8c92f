"""Whether a policy computes the same from batches that say the same, and how those are made."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from loader.batch import PackedBatch
from tests.training.batches import Span
from training.loss import flow_matching_loss
from training.models.policy_model import PolicyModel

Results = tuple[float, dict[str, Tensor]]


def loss_and_gradients(model: PolicyModel, batches: Sequence[PackedBatch[Tensor]]) -> Results:
    """Of a model over batches together."""
    model.zero_grad()
    loss = 0.0
    for batch in batches:
        part = flow_matching_loss(model(batch), batch)
        torch.autograd.backward(part)
        loss += float(part.detach())
    return loss, {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def assert_same(one: Results, other: Results) -> None:
    """To 1e-5 of the largest value of each parameter's gradient."""
    assert one[0] == pytest.approx(other[0], rel=1e-5)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        largest = float(gradient.abs().max())
        assert float((gradient - other[1][name]).abs().max()) <= 1e-5 * max(largest, 1e-2), name


def missing(span: Span) -> int:
    """The one of two cameras that a span has no picture of."""
    ((camera, _),) = span.images
    return 1 - camera


def with_all_cameras(span: Span) -> Span:
    """A picture of the missing camera too."""
    ((camera, pixels),) = span.images
    both = sorted(((camera, pixels), (1 - camera, 255 - pixels)), key=lambda image: image[0])
    return replace(span, images=tuple(both))


def hide(full: PackedBatch[Tensor], cameras: dict[int, int]) -> PackedBatch[Tensor]:
    """Pad tokens for a camera of each span; those after it have the positions of a shorter one."""
    modality, position = full.token_modality.clone(), full.position_ids.clone()
    pairs = zip(full.image_span_ids.tolist(), full.image_camera_ids.tolist(), strict=True)
    for image, (row, camera) in enumerate(pairs):
        if cameras[row] == camera:
            first, stop = full.cu_image_tokens[image : image + 2].tolist()
            tokens = full.image_token_index[first:stop]
            modality[tokens] = 0
            end = int(full.cu_seqlens[row + 1])
            position[int(tokens[-1]) + 1 : end] -= len(tokens)
    return replace(full, token_modality=modality, position_ids=position)

"""Guarantee: a packed batch gives the loss and gradients of its spans alone, and leaks nothing."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from loader.batch import PackedBatch
from tests.training.batches import TINY, Span, make_spans, pack, policy_spec
from training.loss import flow_matching_loss
from training.models.film.layers import ExpertLayer
from training.models.film.model import FilmPolicy


@pytest.fixture
def model() -> FilmPolicy:
    torch.manual_seed(0)
    model = FilmPolicy(TINY, policy_spec())
    # Modulations start at zero; a random one exercises the path of the flow time.
    for layer in model.expert:
        assert isinstance(layer, ExpertLayer)
        torch.nn.init.normal_(layer.modulation.weight, std=0.05)
    return model


def loss_and_gradients(
    model: FilmPolicy, batches: Sequence[PackedBatch[torch.Tensor]]
) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    total = sum(batch.num_action_items for batch in batches)
    loss = 0.0
    for batch in batches:
        part = flow_matching_loss(model(batch), batch) / total
        torch.autograd.backward(part)
        loss += float(part.detach())
    return loss, {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def assert_same(
    one: tuple[float, dict[str, torch.Tensor]], other: tuple[float, dict[str, torch.Tensor]]
) -> None:
    assert one[0] == pytest.approx(other[0], rel=1e-6)
    assert one[1].keys() == other[1].keys()
    largest = max(float(g.abs().max()) for g in one[1].values())
    for name, gradient in one[1].items():
        worst = float((gradient - other[1][name]).abs().max())
        assert worst <= 1e-6 * largest, name


@pytest.mark.parametrize("seed", range(4))
def test_packed_loss_and_gradients_are_those_of_each_span_alone(
    model: FilmPolicy, seed: int
) -> None:
    spans = make_spans(12, seed=seed)
    packed = loss_and_gradients(model, [pack(spans, pad=7)])
    alone = loss_and_gradients(model, [pack([span]) for span in spans])
    assert_same(packed, alone)


def test_order_and_grouping_of_spans_do_not_matter(model: FilmPolicy) -> None:
    spans = make_spans(15, seed=9)
    rng = np.random.default_rng(1)
    reference = loss_and_gradients(model, [pack(spans)])
    for _ in range(3):
        shuffled = [spans[i] for i in rng.permutation(len(spans))]
        cut = int(rng.integers(1, len(spans)))
        assert_same(
            reference, loss_and_gradients(model, [pack(shuffled[:cut]), pack(shuffled[cut:])])
        )


def test_dropping_pad_tokens_changes_nothing(model: FilmPolicy) -> None:
    batch = pack(make_spans(9, seed=3), pad=41)
    assert_same(loss_and_gradients(model, [batch]), loss_and_gradients(model, [batch.trimmed()]))


def changed(span: Span) -> Span:
    return replace(
        span,
        text=tuple(8 + (t + 1) % 256 for t in span.text),
        images=tuple((camera, 255 - pixels) for camera, pixels in span.images),
        state=span.state + 100.0,
        actions=span.actions - 100.0,
    )


@pytest.mark.parametrize("victim", [0, 4, 8])
def test_one_span_never_reaches_another(model: FilmPolicy, victim: int) -> None:
    spans = make_spans(9, seed=5)
    before = pack(spans, pad=5)
    spans[victim] = changed(spans[victim])
    after = pack(spans, pad=5)
    others = torch.ones(len(before.actions), dtype=torch.bool)
    others[before.cu_seqlens_action[victim] : before.cu_seqlens_action[victim + 1]] = False
    with torch.no_grad():
        one, other = model(before).velocity, model(after).velocity
    assert torch.equal(one[others], other[others])
    assert not torch.equal(one[~others], other[~others])


def test_values_that_do_not_count_reach_nothing(model: FilmPolicy) -> None:
    batch = pack(make_spans(9, seed=6))
    lost = (batch.action_loss_weights == 0)[:, None] | ~batch.action_dim_mask
    assert bool(lost.any())
    poisoned = replace(batch, actions=batch.actions.masked_fill(lost, float("nan")))
    one, other = loss_and_gradients(model, [batch]), loss_and_gradients(model, [poisoned])
    assert one[0] == other[0]
    assert all(torch.equal(g, other[1][name]) for name, g in one[1].items())


def test_a_missing_camera_equals_nothing_there(model: FilmPolicy) -> None:
    """Dropping a span's pictures leaves all other spans bit-equal, and costs no token."""
    spans = make_spans(6, seed=7)
    with_pictures = next(i for i, span in enumerate(spans) if len(span.images) == 2)
    fewer = list(spans)
    fewer[with_pictures] = replace(spans[with_pictures], images=spans[with_pictures].images[:1])
    before, after = pack(spans), pack(fewer)
    assert len(before.input_ids) - len(after.input_ids) == 4
    keep = torch.ones(len(before.actions), dtype=torch.bool)
    first, stop = before.cu_seqlens_action[with_pictures : with_pictures + 2].tolist()
    keep[first:stop] = False
    with torch.no_grad():
        one, other = model(before).velocity, model(after).velocity
    torch.testing.assert_close(one[keep], other[keep], rtol=0, atol=2e-6)

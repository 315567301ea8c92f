"""Padded batches are the packed one with pads that nothing sees, for every model."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from loader.batch import Modality, PackedBatch
from tests.training.batches import IMAGE_TOKENS, TINY, make_spans, pack, policy_spec
from tests.training.models import gr00t_model
from tests.training.models.pi05_model import small_policy
from training.errors import ConfigError
from training.loss import flow_matching_loss
from training.models.film.model import FilmPolicy
from training.models.policy_model import PolicyModel
from training.padded import PadTo, padded_batches, padded_tokens

FULL = PadTo(prefix_tokens=40, action_steps=8, text_tokens=12, pictures=3)


def film() -> PolicyModel:
    torch.manual_seed(0)
    return FilmPolicy(TINY, policy_spec())


def pi05() -> PolicyModel:
    return small_policy(action_mask="full")


def groot() -> PolicyModel:
    return gr00t_model.small_policy(gr00t_model.groot_spec(future=0))


MODELS = pytest.mark.parametrize("make", [film, pi05, groot])


def loss_and_gradients(
    model: PolicyModel, batches: Sequence[PackedBatch[Tensor]]
) -> tuple[float, dict[str, Tensor]]:
    model.zero_grad()
    total = 0.0
    for batch in batches:
        loss = flow_matching_loss(model(batch), batch)
        torch.autograd.backward(loss)
        total += float(loss.detach())
    return total, {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def assert_same(
    model: PolicyModel, packed: PackedBatch[Tensor], padded: Sequence[PackedBatch[Tensor]]
) -> None:
    loss, gradients = loss_and_gradients(model, [packed])
    padded_loss, padded_gradients = loss_and_gradients(model, padded)
    assert padded_loss == pytest.approx(loss, rel=1e-5)
    assert gradients.keys() == padded_gradients.keys()
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, gradient in gradients.items():
        assert float((padded_gradients[name] - gradient).abs().max()) <= 1e-5 * largest, name


@MODELS
@pytest.mark.parametrize("batch_size", [1, 3, 7, 40])
def test_padded_batches_give_the_loss_and_gradients_of_the_packed_one(
    batch_size: int, make: Callable[[], PolicyModel]
) -> None:
    batch = pack(make_spans(11, seed=2), pad=6)
    assert_same(make(), batch, list(padded_batches(batch, batch_size)))


@MODELS
@pytest.mark.parametrize(
    "pad_to",
    [
        PadTo(prefix_tokens=30, action_steps=6),
        PadTo(text_tokens=8),
        PadTo(pictures=2),
        PadTo(pictures="most"),
        PadTo(pictures=3, text_tokens=8),
        FULL,
    ],
)
def test_so_they_do_whatever_they_are_padded_to(
    pad_to: PadTo, make: Callable[[], PolicyModel]
) -> None:
    batch = pack(make_spans(10, seed=3), pad=5)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(1)).tolist()
    assert_same(make(), batch, list(padded_batches(batch, 4, pad_to, rows=order)))


@MODELS
def test_an_absent_camera_left_out_equals_the_masked_full_size_run(
    make: Callable[[], PolicyModel],
) -> None:
    spans = [span for span in make_spans(20, seed=3) if len(span.images) == 1][:5]
    batch = pack(spans)
    (full,) = padded_batches(batch, 5, PadTo(pictures=3, text_tokens=20, action_steps=8))
    assert len(full.images[0]) == 15
    assert int((full.images[0].flatten(1) == 0).all(dim=1).sum()) == 10
    assert_same(make(), batch, [full])


@MODELS
def test_what_stands_in_pads_reaches_nothing(make: Callable[[], PolicyModel]) -> None:
    batch = pack(make_spans(6, seed=5))
    full: PackedBatch[Tensor] = next(padded_batches(batch, 6, FULL))
    pads = full.token_modality == Modality.PAD
    black = torch.tensor([not bool(picture.any()) for picture in full.images[0]])
    assert int(black.sum()) == 18 - len(batch.image_span_ids)
    changed = replace(
        full,
        input_ids=full.input_ids.masked_fill(pads, 9),
        position_ids=full.position_ids.masked_fill(pads, 7),
        images=(full.images[0].masked_fill(black[:, None, None, None], 200),),
    )
    real = full.action_dim_mask.any(dim=1)
    model = make()
    with torch.no_grad():
        one, other = model(full).velocity[real], model(changed).velocity[real]
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_every_span_is_padded_to_the_longest_of_its_batch() -> None:
    batch = pack(make_spans(9, seed=4))
    prefix, action = batch.cu_seqlens.diff(), batch.cu_seqlens_action.diff()
    parts = list(padded_batches(batch, 4))
    assert [part.num_spans for part in parts] == [4, 4, 1]
    assert torch.cat([part.span_ids for part in parts]).tolist() == batch.span_ids[:9].tolist()
    for part, rows in zip(parts, (slice(0, 4), slice(4, 8), slice(8, 9)), strict=True):
        longest = int(prefix[rows].max()) + int(action[rows].max())
        assert padded_tokens(part) == part.num_spans * longest
    assert sum(part.num_action_items for part in parts) == batch.num_action_items


def test_sizes_are_those_asked_for_and_rows_are_taken_in_their_order() -> None:
    batch = pack(make_spans(9, seed=4))
    first, second = padded_batches(batch, 3, FULL, rows=[8, 0, 3, 5])
    ids = batch.span_ids[[8, 0, 3, 5]].tolist()
    assert [first.span_ids.tolist(), second.span_ids.tolist()] == [ids[:3], ids[3:]]
    assert padded_tokens(first) == 3 * (40 + 8)
    assert len(first.images[0]) == 9
    assert torch.equal(first.state[1], batch.state[0])
    (texts,) = padded_batches(batch, 9, PadTo(text_tokens=12, pictures=3))
    assert texts.max_seqlen == 12 + 3 * IMAGE_TOKENS + 1


@pytest.mark.parametrize(
    ("pad_to", "match"),
    [
        (PadTo(text_tokens=1), r"span \d+ has \d text tokens: they cannot be padded to 1"),
        (PadTo(pictures=1), "2 pictures: they cannot be padded to 1"),
        (PadTo(action_steps=2), r"\d action steps"),
        (PadTo(prefix_tokens=5), r"\d+ prefix tokens"),
        (PadTo(prefix_tokens=20, pictures=9), "prefix tokens"),
    ],
)
def test_what_does_not_fit_is_refused(pad_to: PadTo, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        list(padded_batches(pack(make_spans(9, seed=4)), 4, pad_to))


def test_a_black_picture_needs_a_size() -> None:
    batch = pack([replace(span, images=()) for span in make_spans(3)])
    with pytest.raises(ConfigError, match="no picture in the batch tells"):
        list(padded_batches(replace(batch, images=()), 3, PadTo(pictures=1)))

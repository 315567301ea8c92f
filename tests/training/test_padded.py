import pytest
import torch

from tests.training.batches import TINY, make_spans, pack, policy_spec
from training.loss import flow_matching_loss
from training.models.film.model import FilmPolicy
from training.padded import padded_batches, padded_tokens


def models() -> tuple[FilmPolicy, FilmPolicy]:
    torch.manual_seed(0)
    packed = FilmPolicy(TINY, policy_spec())
    padded = FilmPolicy(TINY, policy_spec())
    padded.load_state_dict(packed.state_dict())
    return packed, padded


@pytest.mark.parametrize("batch_size", [1, 3, 7, 40])
def test_padded_batches_give_the_loss_and_gradients_of_the_packed_one(batch_size: int) -> None:
    packed, padded = models()
    batch = pack(make_spans(11, seed=2), pad=6)
    loss = flow_matching_loss(packed(batch), batch)
    torch.autograd.backward(loss)
    total = 0.0
    for part in padded_batches(batch, batch_size):
        part_loss = flow_matching_loss(padded(part), part)
        torch.autograd.backward(part_loss)
        total += float(part_loss.detach())
    assert total == pytest.approx(float(loss.detach()), rel=1e-6)
    gradients = dict(packed.named_parameters())
    largest = max(float(p.grad.abs().max()) for p in gradients.values() if p.grad is not None)
    for name, parameter in padded.named_parameters():
        expected = gradients[name].grad
        assert parameter.grad is not None
        assert expected is not None
        assert float((parameter.grad - expected).abs().max()) <= 2e-6 * largest, name


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

"""pi0.5 on packed batches: nothing of packing, padding or absence is to be seen in its results."""

from dataclasses import replace

import pytest
import torch

from packing.layout import TokenLayout
from tests.training.batches import make_spans, pack, policy_spec
from tests.training.models.equality import (
    assert_same,
    hide,
    loss_and_gradients,
    missing,
    with_all_cameras,
)
from tests.training.models.pi05_model import small_policy
from training.errors import ConfigError
from training.padded import padded_batches
from training.policy_spec import Moments


@pytest.mark.parametrize("action_mask", ["causal", "full"])
def test_packed_loss_and_gradients_are_those_of_each_span_alone(action_mask: str) -> None:
    model = small_policy(action_mask=action_mask)
    spans = make_spans(10, seed=1)
    packed = loss_and_gradients(model, [pack(spans, pad=7)])
    assert len(packed[1]) == len(list(model.parameters()))
    assert all(bool(gradient.any()) for gradient in packed[1].values())
    assert_same(packed, loss_and_gradients(model, [pack([span]) for span in spans]))


@pytest.mark.parametrize("batch_size", [1, 4, 40])
def test_padded_batches_give_the_loss_and_gradients_of_the_packed_one(batch_size: int) -> None:
    model = small_policy()
    batch = pack(make_spans(9, seed=2), pad=5)
    packed = loss_and_gradients(model, [batch])
    assert_same(packed, loss_and_gradients(model, list(padded_batches(batch, batch_size))))


@pytest.mark.parametrize("victim", [0, 5])
def test_one_span_never_reaches_another(victim: int) -> None:
    model = small_policy(action_mask="full")
    spans = make_spans(6, seed=5)
    before = pack(spans, pad=5)
    old = spans[victim]
    spans[victim] = replace(
        old,
        text=tuple(8 + (t + 1) % 256 for t in old.text),
        images=tuple((camera, 255 - pixels) for camera, pixels in old.images),
        state=old.state + 100.0,
        actions=old.actions - 100.0,
    )
    after = pack(spans, pad=5)
    others = torch.ones(len(before.actions), dtype=torch.bool)
    others[before.cu_seqlens_action[victim] : before.cu_seqlens_action[victim + 1]] = False
    with torch.no_grad():
        one, other = model(before).velocity, model(after).velocity
    assert torch.equal(one[others], other[others])
    assert not torch.equal(one[~others], other[~others])


def test_a_camera_that_is_not_there_equals_one_that_a_mask_hides() -> None:
    """The published way: every camera slot is computed, and a mask hides what is not there."""
    model = small_policy()
    spans = [span for span in make_spans(20, seed=3) if len(span.images) == 1][:5]
    hidden = [with_all_cameras(span) for span in spans]
    (full,) = padded_batches(pack(hidden), len(hidden))
    masked = hide(full, {row: missing(span) for row, span in enumerate(spans)})
    assert_same(loss_and_gradients(model, [pack(spans)]), loss_and_gradients(model, [masked]))


def test_causal_actions_do_not_see_what_follows_and_full_ones_do() -> None:
    spans = [
        replace(s, actions=s.actions.repeat(3, 0), valid=s.valid.repeat(3)) for s in make_spans(3)
    ]
    batch = pack([replace(span, valid=span.valid | True) for span in spans])
    changed = replace(batch, actions=batch.actions.clone())
    last = batch.cu_seqlens_action[1:4].long() - 1
    changed.actions[last] += 1.0
    earlier = torch.ones(len(batch.actions), dtype=torch.bool)
    earlier[last] = False
    with torch.no_grad():
        for mask, same in (("causal", True), ("full", False)):
            model = small_policy(action_mask=mask)
            one, other = model(batch).velocity, model(changed).velocity
            assert torch.equal(one[earlier], other[earlier]) is same
            assert not torch.equal(one[~earlier], other[~earlier])


def test_actions_see_each_other_where_the_plan_has_whole_chunks() -> None:
    assert small_policy().causal
    assert not small_policy(replace(policy_spec(), whole_chunks=True)).causal


@pytest.mark.parametrize("spans", [0, 3])
def test_every_parameter_gets_a_gradient_without_spans_and_without_pictures(spans: int) -> None:
    model = small_policy()
    batch = pack([replace(span, images=()) for span in make_spans(spans)], pad=4)
    _, gradients = loss_and_gradients(model, [replace(batch, images=())])
    assert len(gradients) == len(list(model.parameters()))
    still = {name for name, gradient in gradients.items() if not gradient.any()}
    vision = {name for name in gradients if name.startswith("vision")}
    assert still == (vision if spans else set(gradients))


def test_pictures_of_several_sizes_are_fitted() -> None:
    model = small_policy()
    batch = pack([span for span in make_spans(9) if span.images])
    (pictures,) = batch.images
    twice = pictures.repeat_interleave(2, 2).repeat_interleave(2, 3)
    small = len(pictures) // 2
    mixed = replace(batch, images=(pictures[:small], twice[small:]))
    with torch.no_grad():
        one, other = model(batch).velocity, model(mixed).velocity
    assert not torch.equal(one, other)  # the edges of what was scaled differ
    assert float((one - other).abs().max()) < 0.2 * float(one.abs().max())


def test_values_that_do_not_count_reach_nothing() -> None:
    model = small_policy()
    batch = pack(make_spans(9, seed=6))
    lost = (batch.action_loss_weights == 0)[:, None] | ~batch.action_dim_mask
    poisoned = replace(
        batch,
        actions=batch.actions.masked_fill(lost, float("nan")),
        state=batch.state.masked_fill(~batch.state_dim_mask, float("nan")),
    )
    one, other = loss_and_gradients(model, [batch]), loss_and_gradients(model, [poisoned])
    assert one[0] == other[0]
    assert all(torch.equal(gradient, other[1][name]) for name, gradient in one[1].items())


def test_a_sample_repeats_and_is_that_of_the_span_alone() -> None:
    model = small_policy()
    spans = make_spans(4, seed=8)
    batch = pack(spans, pad=3)
    first = model.sample(batch)
    assert first.shape == batch.actions.shape
    assert torch.equal(first, model.sample(batch))
    assert torch.equal(first, model.sample(replace(batch, actions=batch.actions * 0.0)))
    alone = torch.cat([model.sample(pack([span])) for span in spans])
    torch.testing.assert_close(first, alone, rtol=1e-5, atol=1e-5)
    other = replace(batch, span_ids=batch.span_ids + 1)
    assert not torch.equal(first, model.sample(other))


def test_sampling_follows_the_velocity_from_noise_to_actions() -> None:
    """A network whose velocity is a constant ends at the noise plus that constant."""
    model = small_policy()
    torch.nn.init.zeros_(model.action_out.weight)
    torch.nn.init.constant_(model.action_out.bias, -0.5)  # published: towards the noise
    batch = pack(make_spans(3, seed=1))
    rows = torch.repeat_interleave(batch.cu_seqlens_action.diff().long())
    stats = batch.stats_ids.long()[rows]
    ends = (model.draws(batch, rows).noise + 0.5) * batch.action_dim_mask
    want = model.normalise_action.inverse(ends, stats)
    torch.testing.assert_close(model.sample(batch), want)


def test_quantiles_normalise_to_one_on_both_sides() -> None:
    moments = (Moments(mean=(9.0,), std=(9.0,), q01=(2.0,), q99=(6.0,)),)
    spec = replace(policy_spec(), state=moments, action=moments, spec_ids=("one",))
    model = small_policy(spec, normalise="quantiles")
    for normalise in (model.normalise_action, model.normalise_state):
        normed = normalise(torch.tensor([[2.0], [6.0], [4.0]]), torch.zeros(3, dtype=torch.int64))
        torch.testing.assert_close(normed, torch.tensor([[-1.0], [1.0], [0.0]]))


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"have 4 dimensions, model\.action_dim is 3"):
        small_policy(action_dim=3)
    with pytest.raises(ConfigError, match="lack: use moments"):
        small_policy(normalise="quantiles")
    for tokens in (5, 9):
        layout = TokenLayout(image_tokens=tokens)
        with pytest.raises(ConfigError, match=f"{tokens} tokens for a picture"):
            small_policy(replace(policy_spec(), layout=layout))
    with pytest.raises(ConfigError, match=r"heads=4 must be a multiple of model\.kv_heads=3"):
        small_policy(kv_heads=3)
    batch = replace(pack([]), images=(), image_format="yuv")
    with pytest.raises(ConfigError, match="image_format='rgb'"):
        small_policy()(batch)

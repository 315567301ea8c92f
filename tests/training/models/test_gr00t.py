"""GR00T N1.5 on packed batches: nothing of packing, padding or absence shows in its results."""

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
from tests.training.models.gr00t_model import FUTURE, groot_pack, groot_spec, small_policy
from training.errors import ConfigError
from training.models.gr00t.model import GrootPolicy
from training.models.gr00t.sequence import head_tokens, observed_tokens
from training.models.parts.embodiment_groups import GroupedLinear
from training.padded import PadTo, padded_batches


@pytest.mark.parametrize("action_mask", ["causal", "full"])
def test_packed_loss_and_gradients_are_those_of_each_span_alone(action_mask: str) -> None:
    model = small_policy(action_mask=action_mask)
    spans = make_spans(10, seed=1)
    packed = loss_and_gradients(model, [groot_pack(spans, pad=7)])
    assert len(packed[1]) == len(list(model.parameters()))
    assert all(bool(gradient.any()) for gradient in packed[1].values())
    assert_same(packed, loss_and_gradients(model, [groot_pack([span]) for span in spans]))


@pytest.mark.parametrize("action_mask", ["causal", "full"])
@pytest.mark.parametrize("batch_size", [1, 4, 40])
def test_padded_batches_give_the_loss_and_gradients_of_the_packed_one(
    batch_size: int, action_mask: str
) -> None:
    model = small_policy(action_mask=action_mask)
    batch = groot_pack(make_spans(9, seed=2), pad=5)
    assert set(batch.embodiment_ids[: batch.num_spans].tolist()) == {0, 1}
    packed = loss_and_gradients(model, [batch])
    assert_same(packed, loss_and_gradients(model, list(padded_batches(batch, batch_size))))
    everything = PadTo(prefix_tokens=40, action_steps=8, text_tokens=20, pictures="most")
    padded = list(padded_batches(batch, batch_size, everything))
    assert_same(packed, loss_and_gradients(model, padded))


@pytest.mark.parametrize("victim", [0, 5])
def test_one_span_never_reaches_another(victim: int) -> None:
    model = small_policy(action_mask="full")
    spans = make_spans(6, seed=5)
    before = groot_pack(spans, pad=5)
    old = spans[victim]
    spans[victim] = replace(
        old,
        text=tuple(8 + (t + 1) % 256 for t in old.text),
        images=tuple((camera, 255 - pixels) for camera, pixels in old.images),
        state=old.state + 100.0,
        actions=old.actions - 100.0,
    )
    after = groot_pack(spans, pad=5)
    others = torch.ones(len(before.actions), dtype=torch.bool)
    others[before.cu_seqlens_action[victim] : before.cu_seqlens_action[victim + 1]] = False
    with torch.no_grad():
        one, other = model(before).velocity, model(after).velocity
    assert torch.equal(one[others], other[others])
    assert not torch.equal(one[~others], other[~others])


def test_a_camera_that_is_not_there_equals_one_that_a_mask_hides() -> None:
    model = small_policy()
    spans = [span for span in make_spans(20, seed=3) if len(span.images) == 1][:5]
    all_seen = [with_all_cameras(span) for span in spans]
    (full,) = padded_batches(groot_pack(all_seen), len(all_seen))
    masked = hide(full, {row: missing(span) for row, span in enumerate(spans)})
    assert_same(loss_and_gradients(model, [groot_pack(spans)]), loss_and_gradients(model, [masked]))


def test_causal_actions_do_not_see_what_follows_and_full_ones_do() -> None:
    spans = [
        replace(s, actions=s.actions.repeat(2, 0)[:8], valid=s.valid.repeat(2)[:8] | True)
        for s in make_spans(3)
    ]
    batch = replace(groot_pack(spans), max_seqlen_action=8)
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
    assert not small_policy(replace(groot_spec(), whole_chunks=True)).causal


def test_every_kind_of_observation_reaches_the_actions() -> None:
    """Text, a picture, the state, and what the future tokens have learned."""
    model = small_policy()
    span = next(s for s in make_spans(9, seed=1) if len(s.images) == 2 and len(s.actions) > 1)
    base = model(groot_pack([span])).velocity
    (first, pixels), second = span.images
    for changed in (
        replace(span, text=(*span.text[:-1], 9 + span.text[-1] % 200)),
        replace(span, images=((first, 255 - pixels), second)),
        replace(span, state=span.state + 1.0),
    ):
        assert float((model(groot_pack([changed])).velocity - base).detach().abs().max()) > 1e-6
    assert model.future is not None
    with torch.no_grad():
        model.future.add_(1.0)
    assert not torch.equal(model(groot_pack([span])).velocity, base)


@pytest.mark.parametrize("spans", [0, 3])
def test_every_parameter_gets_a_gradient_without_spans_and_without_pictures(spans: int) -> None:
    model = small_policy()
    batch = groot_pack([replace(span, images=()) for span in make_spans(spans)], pad=4)
    _, gradients = loss_and_gradients(model, [replace(batch, images=())])
    assert len(gradients) == len(list(model.parameters()))
    still = {name for name, gradient in gradients.items() if not gradient.any()}
    vision = {name for name in gradients if name.startswith("vision")}
    assert still == (vision if spans else set(gradients))


def test_embodiments_that_are_absent_get_gradients_of_zero() -> None:
    model = small_policy()
    spans = [span for span in make_spans(12, seed=4) if span.kind == 1][:4]
    loss_and_gradients(model, [groot_pack(spans, pad=3)])
    layers = [module for module in model.modules() if isinstance(module, GroupedLinear)]
    assert len(layers) == 2 + 3 + 2
    for layer in layers:
        for parameter in (layer.weight, layer.bias):
            assert parameter.grad is not None
            reached = parameter.grad.flatten(1).any(dim=1)
            assert reached.tolist() == [False, True, False]


def test_spans_without_anything_to_read_see_their_state() -> None:
    """No text and no picture: zeros come from the observations, and nothing is NaN."""
    model = small_policy()
    spans = [replace(span, text=(), images=()) for span in make_spans(2, seed=1)]
    batch = groot_pack([*spans, *make_spans(2, seed=2)])
    with torch.no_grad():
        velocity = model(batch).velocity
        alone = model(groot_pack(spans[:1])).velocity
    assert velocity.isfinite().all()
    torch.testing.assert_close(velocity[: len(alone)], alone)


def test_the_heads_row_is_state_then_future_then_actions_of_span_after_span() -> None:
    spans, spec = make_spans(4, seed=3), groot_spec()
    batch = groot_pack(spans, pad=6)
    observed = observed_tokens(batch, spec)
    read = batch.token_modality[observed.places]
    lengths = [len(span.text) + 4 * len(span.images) for span in spans]
    assert observed.full.cu_seqlens_q.diff()[:4].tolist() == lengths
    assert len(observed.places) == sum(lengths) + 6
    assert set(read.tolist()) <= {0, 1, 2}
    tokens = head_tokens(batch, spec, observed, causal=True)
    states, futures = len(batch.state), FUTURE * len(spans)
    kinds = ["state"] * states + ["future"] * futures + ["action"] * len(batch.actions)
    row = [kinds[source] for source in tokens.gather.tolist()]
    want: list[str] = []
    for span in spans:
        want += ["state", *["future"] * FUTURE, *["action"] * len(span.actions)]
    assert row == want
    assert [row[place] for place in tokens.action_places.tolist()] == kinds[states + futures :]
    assert all(row[place] != "action" for place in tokens.observed_places.tolist())
    chunks = [1 + FUTURE + len(span.actions) for span in spans]
    assert tokens.spans.bincount().tolist() == chunks
    assert tokens.cross.cu_seqlens_q.diff()[:4].tolist() == chunks


def test_values_that_do_not_count_reach_nothing() -> None:
    model = small_policy()
    batch = groot_pack(make_spans(9, seed=6))
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
    batch = groot_pack(spans, pad=3)
    first = model.sample(batch)
    assert first.shape == batch.actions.shape
    assert torch.equal(first, model.sample(batch))
    assert torch.equal(first, model.sample(replace(batch, actions=batch.actions * 0.0)))
    alone = torch.cat([model.sample(groot_pack([span])) for span in spans])
    torch.testing.assert_close(first, alone, rtol=1e-5, atol=1e-5)
    other = replace(batch, span_ids=batch.span_ids + 1)
    assert not torch.equal(first, model.sample(other))


def test_sampling_follows_the_velocity_from_noise_to_actions() -> None:
    model = small_policy()
    torch.nn.init.zeros_(model.action_out.layer_2.weight)
    torch.nn.init.constant_(model.action_out.layer_2.bias, 0.5)
    batch = groot_pack(make_spans(3, seed=1))
    rows = torch.repeat_interleave(batch.cu_seqlens_action.diff().long())
    ends = (model.draws(batch, rows).noise + 0.5) * batch.action_dim_mask
    want = model.normalise_action.inverse(ends, batch.stats_ids.long()[rows])
    torch.testing.assert_close(model.sample(batch), want)


def test_layouts_without_state_future_tokens_or_pictures_have_no_weights_for_them() -> None:
    layout = TokenLayout(image_tokens=0, state_tokens=0)
    model = small_policy(replace(policy_spec(), layout=layout))
    assert model.future is None
    assert model.state_in is None
    assert model.vision is None
    spans = [replace(span, images=()) for span in make_spans(3)]
    batch = pack(spans)
    without_state = replace(
        batch,
        token_modality=batch.token_modality.where(batch.token_modality != 3, 2),
        state_token_index=batch.state_token_index[:0],
    )
    _, gradients = loss_and_gradients(model, [without_state])
    assert len(gradients) == len(list(model.parameters()))


def test_what_does_not_go_together_is_refused() -> None:
    def refused(match: str, spec: object = None, **changes: object) -> None:
        with pytest.raises(ConfigError, match=match):
            small_policy(spec, **changes)  # type: ignore[arg-type]

    refused(r"actions have 4 dimensions, model\.action_dim is 3", action_dim=3)
    refused(r"states have 5 dimensions, model\.state_dim is 4", state_dim=4)
    refused(r"chunks have 6 steps, model\.max_positions is 5", max_positions=5)
    refused("lack: use moments", normalise="quantiles")
    refused(r"model\.heads=4 must be a multiple of model\.kv_heads=3", kv_heads=3)
    refused(r"model\.dit_width must be even, not 21", dit_heads=3, dit_head_dim=7)
    refused(r"model\.adapter_layers cannot be negative", adapter_layers=-1)
    layout = TokenLayout(image_tokens=5)
    refused("5 tokens for a picture", replace(groot_spec(), layout=layout))
    batch = replace(groot_pack([]), images=(), image_format="yuv")
    model: GrootPolicy = small_policy()
    with pytest.raises(ConfigError, match="image_format='rgb'"):
        model(batch)

"""The published sizes, on the meta device: no memory, every shape."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from loader.batch import PackedBatch
from packing.known_layouts import KNOWN_LAYOUTS
from tests.training import batches
from tests.training.batches import make_spans, pack, policy_spec
from tests.training.models.attention_shapes import Heads, shapes_only
from tests.training.models.pi05_model import small_policy
from tests.training.models.published_pi05 import EXPERT, PALIGEMMA, numel, published_shapes
from training.loss import flow_matching_loss
from training.models.kinds import PRESETS
from training.models.pi05.config import Pi05Config
from training.models.pi05.model import Pi05Policy
from training.policy_spec import Moments, PolicySpec

VOCABULARY = 257_152
# What KerasHub states of PaliGemma 3B at 224 pixels: `pali_gemma_presets.py`.
PALIGEMMA_PARAMETERS = 2_923_335_408


def published_policy() -> Pi05Policy:
    config = PRESETS["pi05"]
    assert isinstance(config, Pi05Config)
    with torch.device("meta"):
        return Pi05Policy(config, published_spec())


def published_spec() -> PolicySpec:
    def with_quantiles(moments: tuple[Moments, ...]) -> tuple[Moments, ...]:
        return tuple(replace(one, q01=one.mean, q99=one.mean) for one in moments)

    return replace(
        policy_spec(),
        layout=KNOWN_LAYOUTS["pi0.5"].layout,
        vocab_size=VOCABULARY,
        state=with_quantiles(policy_spec().state),
        action=with_quantiles(policy_spec().action),
    )


def test_parameters_by_part_are_those_published() -> None:
    model = published_policy()
    shapes = published_shapes(Pi05Config(), vocab_size=VOCABULARY, patch=14)
    heads = {name for name in shapes if name.endswith("gemma_expert.lm_head.weight")}
    published = {name: shape for name, shape in shapes.items() if name not in heads}
    expert = {name: shape for name, shape in published.items() if name.startswith(EXPERT)}
    projections = {n: s for n, s in published.items() if not n.startswith("paligemma_with")}
    paligemma = numel(published) - numel(expert) - numel(projections)
    assert paligemma == PALIGEMMA_PARAMETERS
    # 311 million as openpi says of it with plain norms; the adaptive ones make them of 1024 values.
    norms = {name: shape for name, shape in expert.items() if ".dense." in name}
    assert numel(norms) == 37 * (1024 * 3072 + 3072)
    assert numel(expert) - numel(norms) + 37 * 1024 == 311_464_960
    # Ours lack what is never read: the last trunk layer after its keys and values, the last norm.
    last = f"{PALIGEMMA}language_model.layers.17."
    unread = {
        name: shape
        for name, shape in published.items()
        if name == f"{PALIGEMMA}language_model.norm.weight"
        or (name.startswith(last) and not any(k in name for k in ("k_proj", "v_proj", "input_")))
    }
    assert len(unread) == 7

    def ours(*prefixes: str) -> int:
        named = model.named_parameters()
        return sum(p.numel() for name, p in named if name.split(".")[0] in prefixes)

    assert ours("embed", "trunk", "vision", "vision_out") == paligemma - numel(unread)
    assert ours("expert", "norm_out") == numel(expert)
    assert ours("time_in", "time_out", "action_in", "action_out") == numel(projections)
    assert sum(p.numel() for p in model.parameters()) == numel(published) - numel(unread)
    assert numel(published) == 3_353_433_872


def test_the_published_sizes_run_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: Heads = set()
    monkeypatch.setattr(batches, "IMAGE_TOKENS", 256)
    model = published_policy()
    batch = pack(make_spans(3, seed=1)).to("meta")
    with shapes_only(heads):
        prediction = model(batch)
        assert prediction.velocity.shape == batch.actions.shape
        flow_matching_loss(prediction, batch).backward()  # type: ignore[no-untyped-call]
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.shape == parameter.shape, name
    assert heads == {(8, 1, 256)}
    model.flow_steps = 1
    with shapes_only(heads):
        assert model.sample(batch).shape == batch.actions.shape


@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("state_tokens", [0, 1])
def test_flops_by_hand_are_those_that_torch_counts(*, images: bool, state_tokens: int) -> None:
    spec = policy_spec()
    spec = replace(spec, layout=replace(spec.layout, state_tokens=state_tokens))
    model = small_policy(spec, action_mask="full")
    spans = make_spans(5, seed=2)
    if not images:
        spans = [replace(span, images=()) for span in spans]
    batch = pack(spans, segments=len(spans))
    assert model.forward_flops(batch) == counted_flops(model, batch)


def test_flops_of_causal_actions_lack_what_the_mask_hides() -> None:
    """Torch counts a masked product whole; a kernel that skips the masked half does not do it."""
    model = small_policy(action_mask="causal")
    batch = pack(make_spans(5, seed=2), segments=5)
    chunk = batch.cu_seqlens_action.diff().double()
    config = model.config
    hidden = float((chunk * (chunk - 1) / 2).sum())
    hidden_flops = 4 * config.heads * config.head_dim * config.layers * hidden
    assert model.forward_flops(batch) == counted_flops(model, batch) - hidden_flops


def test_flops_are_those_of_the_spans_alone_and_pads_cost_nothing() -> None:
    model = small_policy()
    spans = make_spans(9, seed=1)
    alone = sum(model.forward_flops(pack([span])) for span in spans)
    assert model.forward_flops(pack(spans)) == pytest.approx(alone)
    assert model.forward_flops(pack(spans, pad=50)) == pytest.approx(alone)
    assert model.forward_flops(pack([], pad=50)) == 0.0


def counted_flops(model: Pi05Policy, batch: PackedBatch[Tensor]) -> int:
    # The plain products: fused CPU attention is not among what torch counts.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(batch)
    return int(counter.get_total_flops())

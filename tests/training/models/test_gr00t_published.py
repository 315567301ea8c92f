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
from tests.training.models.gr00t_model import groot_pack, groot_spec, small_policy
from tests.training.models.published_gr00t import (
    ACTION,
    EAGLE,
    EMBODIMENTS,
    HEAD,
    LANGUAGE,
    VISION,
    numel,
    pooling_head,
    published_shapes,
)
from training.loss import flow_matching_loss
from training.models.gr00t.config import GrootConfig
from training.models.gr00t.model import GrootPolicy
from training.models.kinds import PRESETS
from training.policy_spec import Moments, PolicySpec

VOCABULARY = 151_680


def published_policy() -> GrootPolicy:
    config = PRESETS["gr00t-n1.5"]
    assert isinstance(config, GrootConfig)
    with torch.device("meta"):
        return GrootPolicy(config, published_spec())


def published_spec() -> PolicySpec:
    def with_quantiles(moments: tuple[Moments, ...]) -> tuple[Moments, ...]:
        return tuple(replace(one, q01=one.mean, q99=one.mean) for one in moments)

    return replace(
        policy_spec(),
        layout=KNOWN_LAYOUTS["gr00t-n1.5"].layout,
        vocab_size=VOCABULARY,
        embodiments=tuple(str(number) for number in range(EMBODIMENTS)),
        state=with_quantiles(policy_spec().state),
        action=with_quantiles(policy_spec().action),
    )


def test_parameters_by_part_are_those_published() -> None:
    model = published_policy()
    shapes = published_shapes(GrootConfig(), vocab_size=VOCABULARY, patch=14, future=32)
    # What the published network says of itself as it is made.
    assert numel(shapes, f"{ACTION}model.") == 550_386_688
    assert numel(shapes, f"{ACTION}vl_self_attention.") == 201_433_088
    # 2.72 billion parameters, as its card has it, with two heads that are saved and never run.
    assert round((numel(shapes) + numel(pooling_head(GrootConfig()))) / 1e7) == 272

    def ours(*prefixes: str) -> int:
        named = model.named_parameters()
        return sum(p.numel() for name, p in named if name.split(".")[0] in prefixes)

    assert ours("dit", "observed_kv", "time_in", "norm_out", "out") == 550_386_688
    assert ours("adapter") == 201_433_088
    assert ours("adapter_norm") == numel(shapes, f"{ACTION}vlln")
    assert ours("embed", "backbone", "backbone_norm") == numel(shapes, LANGUAGE) == 914_674_688
    assert ours("vision") == numel(shapes, VISION)
    assert ours("vision_out") == numel(shapes, f"{EAGLE}mlp1.")
    assert ours("state_in") == numel(shapes, f"{ACTION}state_encoder.")
    assert ours("action_in") == numel(shapes, f"{ACTION}action_encoder.")
    assert ours("action_out") == numel(shapes, f"{ACTION}action_decoder.")
    assert ours("position") == numel(shapes, f"{ACTION}position_embedding.")
    assert ours("future") == numel(shapes, f"{ACTION}future_tokens.")
    text_head = numel({HEAD: shapes[HEAD]})
    assert sum(p.numel() for p in model.parameters()) == numel(shapes) - text_head


def test_the_published_sizes_run_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: Heads = set()
    monkeypatch.setattr(batches, "IMAGE_TOKENS", 256)
    # In bfloat16, the products of the embodiments are one kernel, which asks for no sizes.
    model = published_policy().to(torch.bfloat16)
    batch = pack(make_spans(3, seed=1), extra=32).to("meta")
    with shapes_only(heads):
        prediction = model(batch)
        assert prediction.velocity.shape == batch.actions.shape
        flow_matching_loss(prediction, batch).backward()  # type: ignore[no-untyped-call]
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.shape == parameter.shape, name
    assert heads == {(16, 8, 128), (32, 32, 64), (32, 32, 48)}
    model.flow_steps = 1
    with shapes_only(heads):
        assert model.sample(batch).shape == batch.actions.shape


@pytest.mark.parametrize("images", [True, False])
def test_flops_by_hand_are_those_that_torch_counts(*, images: bool) -> None:
    """But for what a causal mask hides: torch counts a masked product whole."""
    model = small_policy(action_mask="full")
    spans = make_spans(5, seed=2)
    if not images:
        spans = [replace(span, images=()) for span in spans]
    batch = groot_pack(spans, segments=len(spans))
    read = torch.tensor([len(span.text) + 4 * len(span.images) for span in spans]).double()
    config = model.config
    hidden = float((read * (read - 1) / 2).sum()) * config.layers
    hidden_flops = 4 * config.heads * config.head_dim * hidden
    assert model.forward_flops(batch) == counted_flops(model, batch) - hidden_flops


def test_flops_of_causal_actions_lack_what_they_do_not_see() -> None:
    full, causal = (small_policy(action_mask=mask) for mask in ("full", "causal"))
    batch = groot_pack(make_spans(5, seed=2), segments=5)
    chunk = batch.cu_seqlens_action.diff().double()
    # State and future tokens see no action; an action sees none after it.
    hidden = float(((1 + 3) * chunk + chunk * (chunk - 1) / 2).sum())
    layers_among = full.config.dit_layers // 2
    hidden_flops = 4 * full.config.dit_width * layers_among * hidden
    assert causal.forward_flops(batch) == full.forward_flops(batch) - hidden_flops
    # Torch counts the pairs of the actions whole, and the others as they are.
    masked = 4 * full.config.dit_width * layers_among * float((chunk * (chunk - 1) / 2).sum())
    seen = counted_flops(full, batch) - counted_flops(causal, batch)
    assert seen == hidden_flops - masked


def test_flops_are_those_of_the_spans_alone_and_pads_cost_nothing() -> None:
    model = small_policy()
    spans = make_spans(9, seed=1)
    alone = sum(model.forward_flops(groot_pack([span])) for span in spans)
    assert model.forward_flops(groot_pack(spans)) == pytest.approx(alone)
    assert model.forward_flops(groot_pack(spans, pad=50)) == pytest.approx(alone)
    assert model.forward_flops(groot_pack([], pad=50)) == 0.0


def test_flops_of_embodiments_do_not_grow_with_their_number() -> None:
    spans = make_spans(5, seed=2)
    spec = groot_spec()
    many = replace(spec, embodiments=(*spec.embodiments, *map(str, range(20))))
    batch = groot_pack(spans, segments=5)
    few, more = small_policy(spec), small_policy(many)
    assert few.forward_flops(batch) == more.forward_flops(batch)
    assert counted_flops(few, batch) == counted_flops(more, batch)


def counted_flops(model: GrootPolicy, batch: PackedBatch[Tensor]) -> int:
    # The plain products: fused CPU attention is not among what torch counts.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(batch)
    return int(counter.get_total_flops())

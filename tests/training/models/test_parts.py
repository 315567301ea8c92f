"""The blocks that policies share, against their definitions written out."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor

from training.attention.segments import Segments
from training.models.parts.decoder import Context, DecoderLayer, DecoderSizes, GatedMlp
from training.models.parts.norms import AdaptiveRmsNorm, Condition, RmsNorm
from training.models.parts.pictures import fit_pictures
from training.models.parts.rotary import Rotary
from training.models.parts.siglip import VisionLayer, VisionSizes, VisionTower

SIZES = DecoderSizes(width=12, mlp_width=20, heads=4, kv_heads=2, head_dim=6)
VISION = VisionSizes(image_size=8, patch=4, width=12, depth=2, heads=3, mlp_width=20)


def _segments(cu: list[int]) -> Segments:
    ends = torch.tensor(cu, dtype=torch.int32)
    return Segments(cu_seqlens_q=ends, cu_seqlens_k=ends, max_seqlen_q=9, max_seqlen_k=9)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[T, H, D] against [S, Hk, D], head by head."""
    group = q.shape[1] // k.shape[1]
    heads = []
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head // group].T / math.sqrt(q.shape[2])
        heads.append(scores.softmax(-1) @ v[:, head // group])
    return torch.stack(heads, 1)


def test_the_norm_scales_by_one_plus_its_weight() -> None:
    x = torch.randn(3, 5)
    norm = RmsNorm(5)
    torch.nn.init.normal_(norm.weight)
    want = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1.0 + norm.weight)
    torch.testing.assert_close(norm(x), want)


def test_the_adaptive_norm_takes_scale_shift_and_gate_from_each_tokens_span() -> None:
    x, condition = torch.randn(5, 4), torch.randn(2, 3)
    of = torch.tensor([0, 0, 1, 1, 1])
    norm = AdaptiveRmsNorm(4, 3)
    normed, gate = norm(x, Condition(condition, of))
    plain = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(normed, plain)  # fresh: a plain norm, and an open gate
    assert (gate == 1.0).all()
    torch.nn.init.normal_(norm.dense.weight)
    normed, gate = norm(x, Condition(condition, of))
    scale, shift, opened = norm.dense(condition)[of].chunk(3, -1)
    torch.testing.assert_close(normed, plain * (1 + scale) + shift)
    torch.testing.assert_close(gate, opened)


def test_the_gated_mlp_is_what_it_says() -> None:
    mlp = GatedMlp(4, 6, activation="silu")
    x = torch.randn(3, 4)
    gate, up = (x @ mlp.gate_up.weight.T).chunk(2, -1)
    torch.testing.assert_close(mlp(x), (F.silu(gate) * up) @ mlp.down.weight.T)
    torch.testing.assert_close(GatedMlp(4, 6)(torch.zeros(0, 4)).shape, torch.Size([0, 4]))


@pytest.mark.parametrize("qk_norm", [False, True])
def test_a_layer_attends_by_groups_inside_segments(*, qk_norm: bool) -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(
        DecoderSizes(width=12, mlp_width=20, heads=4, kv_heads=2, head_dim=6, qk_norm=qk_norm)
    )
    x = torch.randn(7, 12)
    rotary = Rotary.of(torch.tensor([0, 1, 2, 0, 1, 2, 3]), 6)
    out, k, v = layer(x, rotary, _segments([0, 3, 7]))
    assert k.shape == v.shape == (7, 2, 6)
    heads = layer.qkv(layer.norm_1(x)).reshape(7, 8, 6)
    q = heads[:, :4]
    if layer.norm_q is not None:
        q = layer.norm_q(q)
    q = rotary.rotate(q)
    attended = torch.cat([_attend(q[s], k[s], v[s]) for s in (slice(3), slice(3, 7))])
    h = x + layer.out(attended.flatten(1))
    torch.testing.assert_close(out, h + layer.mlp(layer.norm_2(h)))
    alone, _, _ = layer(x[3:], Rotary.of(torch.arange(4), 6), _segments([0, 4]))
    torch.testing.assert_close(out[3:], alone)


def test_a_layer_sees_keys_of_elsewhere_and_gates_its_branches() -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(SIZES, condition_width=5)
    for norm in (layer.norm_1, layer.norm_2):
        assert isinstance(norm, AdaptiveRmsNorm)
        torch.nn.init.normal_(norm.dense.weight, std=0.3)
    x, foreign_k, foreign_v = torch.randn(2, 12), torch.randn(3, 2, 6), torch.randn(3, 2, 6)
    condition = Condition(torch.randn(1, 5), torch.zeros(2, dtype=torch.int64))
    rotary = Rotary.of(torch.tensor([3, 4]), 6)
    segments = Segments(
        cu_seqlens_q=torch.tensor([0, 2], dtype=torch.int32),
        cu_seqlens_k=torch.tensor([0, 5], dtype=torch.int32),
        max_seqlen_q=2,
        max_seqlen_k=5,
    )
    context = Context(foreign_k, foreign_v, torch.arange(5))
    out, k, v = layer(x, rotary, segments, condition=condition, context=context)
    normed, gate = layer.norm_1(x, condition)
    q = rotary.rotate(layer.qkv(normed).reshape(2, 8, 6)[:, :4])
    attended = _attend(q, torch.cat((foreign_k, k)), torch.cat((foreign_v, v)))
    h = x + gate * layer.out(attended.flatten(1))
    normed, gate = layer.norm_2(h, condition)
    torch.testing.assert_close(out, h + gate * layer.mlp(normed))


def test_a_last_layer_makes_keys_and_values_only() -> None:
    layer = DecoderLayer(SIZES, keys_only=True)
    assert {name.split(".")[0] for name, _ in layer.named_parameters()} == {"norm_1", "qkv"}
    x = torch.randn(4, 12)
    out, k, v = layer(x, Rotary.of(torch.arange(4), 6), _segments([0, 4]))
    assert out is x
    torch.testing.assert_close(v, layer.qkv(layer.norm_1(x)).reshape(4, 4, 6)[:, 2:])
    assert k.shape == (4, 2, 6)


def test_the_tower_sees_each_picture_by_itself() -> None:
    torch.manual_seed(0)
    tower = VisionTower(VISION)
    pictures = torch.rand(3, 3, 8, 8) * 2 - 1
    tokens = tower(pictures)
    assert tokens.shape == (3, VISION.patches, 12)
    torch.testing.assert_close(tokens[1:2], tower(pictures[1:2]))
    torch.testing.assert_close(
        tower.patches(pictures)[0, :, 0, 1], (tower.patches(pictures).flatten(2))[0, :, 1]
    )


def test_a_vision_layer_is_attention_and_an_mlp_after_norms() -> None:
    torch.manual_seed(0)
    layer = VisionLayer(VISION)
    x = torch.randn(1, 4, 12)
    q, k, v = layer.qkv(layer.norm_1(x))[0].reshape(4, 3, 3, 4).unbind(1)
    h = x + layer.out(_attend(q, k, v).flatten(1))[None]
    mlp = layer.down(F.gelu(layer.up(layer.norm_2(h)), approximate="tanh"))
    torch.testing.assert_close(layer(x), h + mlp)


def test_no_picture_gives_every_parameter_of_the_tower_a_zero_gradient() -> None:
    tower = VisionTower(VISION)
    tower(torch.zeros(0, 3, 8, 8)).sum().backward()
    for name, parameter in tower.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name


def test_pictures_keep_their_shape_amid_black() -> None:
    wide = torch.full((1, 3, 8, 16), 255, dtype=torch.uint8)
    square = torch.full((2, 3, 4, 4), 51, dtype=torch.uint8)
    empty = torch.zeros(0, 3, 5, 7, dtype=torch.uint8)
    fitted = fit_pictures((square, wide, empty), 4, like=torch.zeros(()))
    assert fitted.shape == (3, 3, 4, 4)
    torch.testing.assert_close(fitted[:2], torch.full((2, 3, 4, 4), 51 / 127.5 - 1))
    torch.testing.assert_close(fitted[2, :, 1:3], torch.ones(3, 2, 4))
    torch.testing.assert_close(fitted[2, :, [0, 3]], -torch.ones(3, 2, 4))
    assert fit_pictures((), 4, like=torch.zeros(())).shape == (0, 3, 4, 4)

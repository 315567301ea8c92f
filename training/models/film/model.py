"""The policy: a vision-language trunk and a flow-matching action expert on packed batches.

The shape of pi0.5 (arXiv:2504.16054), small: prefix tokens (pictures, instruction, state) attend
to each other inside their span; action queries attend to the prefix and, causally, to the actions
of their span, layer by layer: two plain varlen calls. Nothing is padded and nothing is computed
that is not a token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from loader.batch import Modality, PackedBatch
from training.attention.segments import Segments
from training.attention.streams import action_segments, prefix_lengths, prefix_segments, rows_of
from training.attention.varlen import prepared
from training.errors import ConfigError
from training.models.film.config import FilmConfig
from training.models.film.flops import forward_flops
from training.models.film.layers import ExpertLayer, Mlp, TrunkLayer
from training.models.film.vision import ImageEncoder
from training.models.flow_policy import FlowPolicy
from training.models.normalise import Normaliser
from training.models.parts.embodiment_linear import EmbodimentLinear
from training.models.parts.rotary import Rotary
from training.models.parts.sinusoids import sinusoids
from training.policy_spec import PolicySpec


@dataclass(frozen=True, kw_only=True, eq=False)
class Prefix:
    """Keys and values of a batch's prefix, and how its action queries attend.

    Attributes:
        layers: (keys, values) [T, H, D] of each layer.
        queries: queries to the gathered keys.
        rotary: positions of the queries.
        query_spans: [Q] int64, row in [N] of each query.
    """

    layers: list[tuple[Tensor, Tensor]]
    queries: Segments
    rotary: Rotary
    query_spans: Tensor


class FilmPolicy(FlowPolicy[Prefix]):
    """Vision-language-action policy on `PackedBatch`.

    Args:
        config: sizes.
        spec: what the plan decides.

    Weights come from torch's global generator: seed it first.
    """

    blocks = ("text_layers", "trunk", "expert")

    def __init__(self, config: FilmConfig, spec: PolicySpec) -> None:
        super().__init__(spec, time_sampling=config.time_sampling, flow_steps=config.flow_steps)
        self.config = config
        width, expert = config.width, config.expert_width
        embodiments = len(spec.embodiments)
        self.normalise_state = Normaliser(spec.state, spec.state_dim)
        self.embed = nn.Embedding(spec.vocab_size, width)
        self.modality = nn.Embedding(len(Modality), width)
        self.text_layers = nn.ModuleList(TrunkLayer(config) for _ in range(config.text_layers))
        self.image_encoder = (
            ImageEncoder(config, image_tokens=spec.layout.image_tokens, cameras=len(spec.cameras))
            if spec.layout.image_tokens and spec.cameras
            else None
        )
        self.state_in = (
            EmbodimentLinear(embodiments, spec.state_dim, spec.layout.state_tokens * width)
            if spec.layout.state_tokens
            else None
        )
        self.trunk = nn.ModuleList(
            TrunkLayer(config, keys_only=layer == config.layers - 1)
            for layer in range(config.layers)
        )
        self.action_in = EmbodimentLinear(embodiments, spec.action_dim, expert)
        self.time_in = Mlp(expert, expert)
        self.expert = nn.ModuleList(ExpertLayer(config) for _ in range(config.layers))
        self.norm_out = nn.RMSNorm(expert, eps=1e-6)
        self.action_out = EmbodimentLinear(embodiments, expert, spec.action_dim)
        nn.init.normal_(self.modality.weight, std=0.02)
        # The first prediction is close to no motion at all.
        nn.init.normal_(self.action_out.weight, std=0.02)

    def forward_flops(self, batch: PackedBatch[Tensor]) -> float:
        """See the base class."""
        return forward_flops(self, batch)

    def encode(self, batch: PackedBatch[Tensor]) -> Prefix:
        """Run the trunk once over the prefix tokens of a batch."""
        prefix = prefix_segments(batch)
        rotary = Rotary.of(batch.position_ids, self.config.head_dim)
        x = self._embed_prefix(batch)
        layers = []
        for layer in self.trunk:
            x, keys, values = layer(x, rotary, prefix)
            layers.append((keys, values))
        query_spans = rows_of(batch.cu_seqlens_action, len(batch.actions))
        positions = prefix_lengths(batch)[query_spans] + batch.action_position_ids
        return Prefix(
            layers=layers,
            queries=action_segments(batch, causal=True),
            rotary=Rotary.of(positions, self.config.head_dim),
            query_spans=query_spans,
        )

    def velocity(
        self, batch: PackedBatch[Tensor], encoded: Prefix, noised: Tensor, time: Tensor
    ) -> Tensor:
        """See the base class."""
        embodiments = batch.embodiment_ids.long()[encoded.query_spans]
        x = self.action_in(noised, embodiments)
        condition = self.time_in(sinusoids(time, self.config.expert_width))[encoded.query_spans]
        for layer, prefix_kv in zip(self.expert, encoded.layers, strict=True):
            x = layer(x, condition, encoded.rotary, prefix_kv, batch.kv_index, encoded.queries)
        velocity: Tensor = self.action_out(self.norm_out(x), embodiments)
        return velocity

    def _embed_prefix(self, batch: PackedBatch[Tensor]) -> Tensor:
        """[T, W] tokens that enter the trunk."""
        x = self.embed(batch.input_ids)
        text_index, text, pooled = self._encode_text(batch, x)
        x = x.index_copy(0, text_index, text.to(x.dtype))
        if self.image_encoder is not None:
            x = x.index_copy(
                0, batch.image_token_index, self._encode_images(batch, pooled).to(x.dtype)
            )
        if self.state_in is not None:
            spans = rows_of(batch.cu_seqlens_state, len(batch.state))
            state = self.normalise_state(batch.state, batch.stats_ids.long()[spans])
            # Masked states are not read, whatever they hold: a product would keep a NaN.
            state = state.where(batch.state_dim_mask, 0.0)
            tokens = self.state_in(state, batch.embodiment_ids.long()[spans])
            x = x.index_copy(0, batch.state_token_index, tokens.reshape(-1, x.shape[1]).to(x.dtype))
        embedded: Tensor = x + self.modality(batch.token_modality.long())
        return embedded

    def _encode_text(self, batch: PackedBatch[Tensor], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Positions of the text tokens, the tokens [X, W], and their mean per span [N, W]."""
        index = (batch.token_modality == Modality.TEXT).nonzero()[:, 0]
        spans = batch.segment_ids[index].long()
        lengths = torch.bincount(spans, minlength=len(batch.span_ids))
        cu_seqlens = nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
        segments = prepared(
            Segments(
                cu_seqlens_q=cu_seqlens,
                cu_seqlens_k=cu_seqlens,
                max_seqlen_q=batch.max_seqlen,
                max_seqlen_k=batch.max_seqlen,
                total_q=len(index),
                total_k=len(index),
            )
        )
        starts = cu_seqlens[:-1].long()[spans]
        positions = torch.arange(len(index), device=index.device) - starts
        rotary = Rotary.of(positions, self.config.head_dim)
        text = x[index]
        for layer in self.text_layers:
            text, _, _ = layer(text, rotary, segments)
        total = text.new_zeros(len(lengths), text.shape[1]).index_add(0, spans, text)
        return index, text, total / lengths.clamp(min=1)[:, None]

    def _encode_images(self, batch: PackedBatch[Tensor], text: Tensor) -> Tensor:
        """[K, W] tokens of all pictures, in the order of `image_token_index`."""
        if batch.image_format != "rgb":
            raise ConfigError("the policy reads RGB pictures: load with image_format='rgb'")
        assert self.image_encoder is not None
        text = text[batch.image_span_ids.long()]
        cameras = batch.image_camera_ids.long()
        tokens, first = [], 0
        # A batch without pictures still runs the encoder, so that under DDP its parameters get
        # their (zero) gradients on every rank.
        size = self.image_encoder.enough_pixels
        for bucket in batch.images or (batch.input_ids.new_zeros(0, 3, size, size),):
            stop = first + len(bucket)
            tokens.append(self.image_encoder(bucket, text[first:stop], cameras[first:stop]))
            first = stop
        return torch.cat(tokens).flatten(0, 1)

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
from training.errors import ConfigError
from training.loss import Prediction, counted_actions
from training.models.film.config import FilmConfig
from training.models.film.flops import forward_flops
from training.models.film.layers import ExpertLayer, Mlp, TrunkLayer
from training.models.film.vision import ImageEncoder
from training.models.flow import FlowDraws, draw_flow
from training.models.normalise import Normaliser
from training.models.parts.embodiment_linear import EmbodimentLinear
from training.models.parts.rotary import Rotary
from training.models.parts.sinusoids import sinusoids
from training.models.policy_model import PolicyModel
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


class FilmPolicy(PolicyModel):
    """Vision-language-action policy on `PackedBatch`.

    Args:
        config: sizes.
        spec: what the plan decides.

    Weights come from torch's global generator: seed it first.
    """

    def __init__(self, config: FilmConfig, spec: PolicySpec) -> None:
        super().__init__(spec)
        self.config = config
        width, expert = config.width, config.expert_width
        embodiments = len(spec.embodiments)
        self.normalise_state = Normaliser(spec.state, spec.state_dim)
        self.normalise_action = Normaliser(spec.action, spec.action_dim)
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

    def forward(self, batch: PackedBatch[Tensor]) -> Prediction:
        """Velocity and its target at the flow time that the plan gives each span."""
        prefix = self.encode(batch)
        draws = self.draws(batch, prefix.query_spans)
        stats_ids = batch.stats_ids.long()[prefix.query_spans]
        # Only real values enter: a dimension that an embodiment lacks, or a step whose action was
        # not recorded (NaN in the lake), would otherwise reach its neighbours through attention.
        counted = counted_actions(batch)
        actions = self.normalise_action(batch.actions, stats_ids).where(counted, 0.0)
        time = draws.time[prefix.query_spans][:, None]
        noised = time * actions + (1.0 - time) * draws.noise * batch.action_dim_mask
        return Prediction(
            velocity=self.velocity(batch, prefix, noised, draws.time),
            target=actions - draws.noise,
        )

    def draws(self, batch: PackedBatch[Tensor], query_spans: Tensor) -> FlowDraws:
        """Noise and time of a batch, a function of plan, epoch, span ids and occurrences only."""
        return draw_flow(
            batch.span_ids,
            batch.occurrence_ids,
            query_spans,
            batch.action_position_ids,
            action_dim=self.spec.action_dim,
            plan_hash=batch.plan_hash,
            epoch=batch.epoch,
            time_sampling=self.config.time_sampling,
        )

    @torch.no_grad()
    def sample(self, batch: PackedBatch[Tensor]) -> Tensor:
        """Draw actions by Euler integration from noise (time 0) to data (time 1).

        Args:
            batch: observations; its `actions` are not read, only their number.

        Returns:
            [Q, Da] float32 in the recorded unit.
        """
        prefix = self.encode(batch)
        actions = self.draws(batch, prefix.query_spans).noise * batch.action_dim_mask
        steps = self.config.flow_steps
        for step in range(steps):
            time = torch.full(batch.span_ids.shape, step / steps, device=actions.device)
            velocity = self.velocity(batch, prefix, actions, time)
            actions = actions + velocity * batch.action_dim_mask / steps
        stats_ids = batch.stats_ids.long()[prefix.query_spans]
        return self.normalise_action.inverse(actions, stats_ids)

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
        self, batch: PackedBatch[Tensor], prefix: Prefix, noised: Tensor, time: Tensor
    ) -> Tensor:
        """Run the action expert.

        Args:
            batch: the batch that `prefix` was made of.
            prefix: from `encode`.
            noised: [Q, Da] normalised actions at the flow time.
            time: [N] flow time of each span.
        """
        embodiments = batch.embodiment_ids.long()[prefix.query_spans]
        x = self.action_in(noised, embodiments)
        condition = self.time_in(sinusoids(time, self.config.expert_width))[prefix.query_spans]
        for layer, prefix_kv in zip(self.expert, prefix.layers, strict=True):
            x = layer(x, condition, prefix.rotary, prefix_kv, batch.kv_index, prefix.queries)
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
        segments = Segments(
            cu_seqlens_q=cu_seqlens,
            cu_seqlens_k=cu_seqlens,
            max_seqlen_q=batch.max_seqlen,
            max_seqlen_k=batch.max_seqlen,
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

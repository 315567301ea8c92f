"""pi0.5: a PaliGemma trunk and a flow-matching action expert, on packed batches.

arXiv:2504.16054 and github.com/Physical-Intelligence/openpi (`src/openpi/models/pi0.py`,
`src/openpi/models_pytorch/`). Prefix tokens (pictures, text with the state in it) attend to each
other inside their span; action queries attend, layer by layer, to the prefix and to the actions of
their span: two plain varlen calls. Pictures that are not there, text that is not written and steps
past an episode's end are not computed, and of the trunk's last layer only keys and values are:
nothing else of it is read.

Where a layout has state tokens (pi0's), they stand in the prefix and are projected from the state;
in pi0 itself the state is a token beside the actions.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor, nn

from loader.batch import PackedBatch
from training.attention.segments import Segments
from training.attention.streams import action_segments, prefix_lengths, prefix_segments, rows_of
from training.errors import ConfigError
from training.models.flow_policy import FlowPolicy
from training.models.normalise import Normaliser, by_quantiles
from training.models.parts.decoder import Context, DecoderLayer, DecoderSizes
from training.models.parts.norms import AdaptiveRmsNorm, Condition
from training.models.parts.pictures import fit_pictures
from training.models.parts.rotary import Rotary
from training.models.parts.siglip import VisionTower, vision_sizes
from training.models.parts.sinusoids import sinusoids
from training.models.pi05.config import Pi05Config
from training.models.pi05.flops import forward_flops
from training.policy_spec import PolicySpec


@dataclass(frozen=True, kw_only=True, eq=False)
class Prefix:
    """Keys and values of a batch's prefix, and how its action queries attend.

    Attributes:
        contexts: of each layer, for the same layer of the expert.
        queries: queries to the gathered keys.
        rotary: positions of the queries.
        query_spans: [Q] int64, row in [N] of each query.
    """

    contexts: list[Context]
    queries: Segments
    rotary: Rotary
    query_spans: Tensor


class Pi05Policy(FlowPolicy[Prefix]):
    """pi0.5 on `PackedBatch`.

    Args:
        config: sizes.
        spec: what the plan decides.

    Weights come from torch's global generator (seed it first) or from
    `training.models.pi05.weights`.

    Raises:
        ConfigError: plan and sizes do not go together.
    """

    blocks: ClassVar[tuple[str, ...]] = ("vision_layers", "trunk", "expert")

    def __init__(self, config: Pi05Config, spec: PolicySpec) -> None:
        _check(config, spec)
        quantiles = config.normalise == "quantiles"
        super().__init__(
            spec,
            time_sampling=config.time_sampling,
            flow_steps=config.flow_steps,
            action=by_quantiles(spec.action) if quantiles else None,
        )
        self.config = config
        width, expert = config.width, config.expert_width
        self.normalise_state = Normaliser(
            by_quantiles(spec.state) if quantiles else spec.state, spec.state_dim
        )
        self.causal = config.action_mask == "causal" or (
            config.action_mask == "auto" and not spec.whole_chunks
        )
        self.embed = nn.Embedding(spec.vocab_size, width)
        sees = spec.layout.image_tokens > 0 and len(spec.cameras) > 0
        self.vision = VisionTower(vision_sizes(config, spec.layout)) if sees else None
        self.vision_out = nn.Linear(config.vision_width, width) if sees else None
        self.state_in = (
            nn.Linear(spec.state_dim, spec.layout.state_tokens * width)
            if spec.layout.state_tokens
            else None
        )
        heads = {n: getattr(config, n) for n in ("heads", "kv_heads", "head_dim")}
        trunk_sizes = DecoderSizes(width=width, mlp_width=config.mlp_width, **heads)
        self.trunk = nn.ModuleList(
            DecoderLayer(trunk_sizes, keys_only=layer == config.layers - 1)
            for layer in range(config.layers)
        )
        expert_sizes = DecoderSizes(width=expert, mlp_width=config.expert_mlp_width, **heads)
        self.expert = nn.ModuleList(
            DecoderLayer(expert_sizes, condition_width=expert) for _ in range(config.layers)
        )
        self.norm_out = AdaptiveRmsNorm(expert, expert)
        self.time_in = nn.Linear(expert, expert)
        self.time_out = nn.Linear(expert, expert)
        self.action_in = nn.Linear(config.action_dim, expert)
        self.action_out = nn.Linear(expert, config.action_dim)
        # Of unit size after the scaling of `_embed`.
        nn.init.normal_(self.embed.weight, std=width**-0.5)
        # The first prediction is close to no motion at all.
        nn.init.normal_(self.action_out.weight, std=0.02)
        nn.init.zeros_(self.action_out.bias)

    @property
    def vision_layers(self) -> nn.ModuleList:
        """Layers of the vision tower; none where the plan has no pictures."""
        return nn.ModuleList() if self.vision is None else self.vision.layers

    def forward_flops(self, batch: PackedBatch[Tensor]) -> float:
        """See the base class."""
        return forward_flops(self, batch)

    def encode(self, batch: PackedBatch[Tensor]) -> Prefix:
        """Run the trunk once over the prefix tokens of a batch."""
        segments = prefix_segments(batch)
        rotary = Rotary.of(batch.position_ids, self.config.head_dim)
        x = self._embed(batch)
        contexts = []
        for layer in self.trunk:
            x, keys, values = layer(x, rotary, segments)
            contexts.append(Context(keys, values, batch.kv_index))
        query_spans = rows_of(batch.cu_seqlens_action, len(batch.actions))
        positions = prefix_lengths(batch)[query_spans] + batch.action_position_ids
        return Prefix(
            contexts=contexts,
            queries=action_segments(batch, causal=self.causal),
            rotary=Rotary.of(positions, self.config.head_dim),
            query_spans=query_spans,
        )

    def velocity(
        self,
        batch: PackedBatch[Tensor],  # noqa: ARG002  (one projection for all embodiments)
        encoded: Prefix,
        noised: Tensor,
        time: Tensor,
    ) -> Tensor:
        """See the base class."""
        x = self.action_in(F.pad(noised, (0, self.config.action_dim - noised.shape[1])))
        x = x.float()  # what layers add to is not rounded under autocast
        # The published network counts time from the actions to the noise, and points that way.
        embedded = F.silu(self.time_in(sinusoids(1.0 - time, self.config.expert_width)))
        condition = Condition(F.silu(self.time_out(embedded)), encoded.query_spans)
        for layer, context in zip(self.expert, encoded.contexts, strict=True):
            x, _, _ = layer(
                x, encoded.rotary, encoded.queries, condition=condition, context=context
            )
        normed, _ = self.norm_out(x, condition)
        to_noise: Tensor = self.action_out(normed)
        return -to_noise[:, : noised.shape[1]]

    def _embed(self, batch: PackedBatch[Tensor]) -> Tensor:
        """[T, W] tokens that enter the trunk."""
        x: Tensor = self.embed(batch.input_ids) * math.sqrt(self.config.width)
        if self.vision is not None and self.vision_out is not None:
            if batch.image_format != "rgb":
                raise ConfigError("the policy reads RGB pictures: load with image_format='rgb'")
            # A batch without pictures still runs the tower, so that its parameters get their
            # (zero) gradients on every rank.
            size, weight = self.config.image_size, self.vision.position
            pictures = fit_pictures(batch.images, size, like=weight)
            tokens = self.vision_out(self.vision(pictures)).flatten(0, 1)
            x = x.index_copy(0, batch.image_token_index, tokens.to(x.dtype))
        if self.state_in is not None:
            spans = rows_of(batch.cu_seqlens_state, len(batch.state))
            state = self.normalise_state(batch.state, batch.stats_ids.long()[spans])
            # Masked states are not read, whatever they hold: a product would keep a NaN.
            tokens = self.state_in(state.where(batch.state_dim_mask, 0.0))
            x = x.index_copy(0, batch.state_token_index, tokens.reshape(-1, x.shape[1]).to(x.dtype))
        return x


def _check(config: Pi05Config, spec: PolicySpec) -> None:
    if spec.action_dim > config.action_dim:
        raise ConfigError(
            f"the plan's actions have {spec.action_dim} dimensions, model.action_dim is"
            f" {config.action_dim}"
        )
    moments = (*spec.state, *spec.action)
    if config.normalise == "quantiles" and not all(len(m.q01) == len(m.mean) for m in moments):
        raise ConfigError(
            "model.normalise=quantiles needs the quantiles of states and actions, which these"
            " statistics lack: use moments"
        )

"""GR00T N1.5: a vision-language backbone and a diffusion transformer that attends to it.

github.com/NVIDIA/Isaac-GR00T, release n1.5, after arXiv:2503.14734. The backbone reads pictures and
text causally; an adapter lets these observations see each other. The action head's own tokens, for
each span its state, future tokens and noised actions, attend to the observations of the span and to
each other in turn. Three kinds of varlen calls: nothing is padded, and pictures that are not there,
text that is not written and steps past an episode's end are not computed.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor, nn

from loader.batch import PackedBatch
from training.attention.streams import rows_of
from training.errors import ConfigError
from training.models.flow_policy import FlowPolicy
from training.models.gr00t.config import GrootConfig
from training.models.gr00t.flops import forward_flops
from training.models.gr00t.layers import (
    ActionEncoder,
    AdapterLayer,
    AdaptiveLayerNorm,
    DitLayer,
    TimeEmbedding,
)
from training.models.gr00t.sequence import HeadTokens, Observed, head_tokens, observed_tokens
from training.models.normalise import Normaliser, by_quantiles
from training.models.parts.decoder import DecoderLayer, DecoderSizes
from training.models.parts.embodiment_groups import EmbodimentGroups, GroupedMlp
from training.models.parts.norms import Condition, RmsNorm
from training.models.parts.pictures import fit_pictures
from training.models.parts.rotary import Rotary
from training.models.parts.siglip import VisionTower, vision_sizes
from training.policy_spec import PolicySpec

_ROTARY_BASE = 1e6  # of Qwen3
_NORM_OUT_EPS = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoded:
    """What the action head needs of a batch, whatever the actions.

    Attributes:
        observed: [V, 2 W] keys and values for each of the head's layers that reads them.
        tokens: the head's row.
        state, future: state and future tokens, those of all spans.
        query_spans: [Q] int64, row in [N] of each action.
        groups: the actions by their embodiments.
    """

    observed: list[Tensor]
    tokens: HeadTokens
    state: Tensor
    future: Tensor
    query_spans: Tensor
    groups: EmbodimentGroups


class GrootPolicy(FlowPolicy[Encoded]):
    """GR00T N1.5 on `PackedBatch`.

    Args:
        config: sizes.
        spec: what the plan decides.

    Weights come from torch's global generator (seed it first) or from
    `training.models.gr00t.weights`.

    Raises:
        ConfigError: plan and sizes do not go together.
    """

    blocks: ClassVar[tuple[str, ...]] = (
        "vision_layers", "backbone", "adapter", "observed_kv", "dit",
    )  # fmt: skip

    def __init__(self, config: GrootConfig, spec: PolicySpec) -> None:
        _check(config, spec)
        quantiles = config.normalise == "quantiles"
        super().__init__(
            spec,
            time_sampling=config.time_sampling,
            flow_steps=config.flow_steps,
            action=by_quantiles(spec.action) if quantiles else None,
        )
        self.config = config
        width, inner, embodiments = config.width, config.dit_width, len(spec.embodiments)
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
        sizes = DecoderSizes(
            width=width,
            mlp_width=config.mlp_width,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            activation="silu",
            qk_norm=True,
        )
        self.backbone = nn.ModuleList(DecoderLayer(sizes) for _ in range(config.layers))
        self.backbone_norm = RmsNorm(width)
        self.adapter_norm = nn.LayerNorm(width)
        self.adapter = nn.ModuleList(
            AdapterLayer(width, config.adapter_heads) for _ in range(config.adapter_layers)
        )
        self.state_in = (
            GroupedMlp(
                embodiments, config.state_dim, config.hidden, spec.layout.state_tokens * inner
            )
            if spec.layout.state_tokens
            else None
        )
        self.future = (
            nn.Parameter(0.02 * torch.randn(spec.layout.extra_tokens, inner))
            if spec.layout.extra_tokens
            else None
        )
        self.action_in = ActionEncoder(embodiments, config.action_dim, inner)
        self.position = nn.Embedding(config.max_positions, inner)
        self.time_in = TimeEmbedding(inner)
        # Apart from the layers: what they make does not change from one flow step to the next.
        self.observed_kv = nn.ModuleList(
            nn.Linear(width, 2 * inner) for _ in range(0, config.dit_layers, 2)
        )
        self.dit = nn.ModuleList(
            DitLayer(inner, config.dit_heads, own=layer % 2 == 1)
            for layer in range(config.dit_layers)
        )
        self.norm_out = AdaptiveLayerNorm(inner, eps=_NORM_OUT_EPS, shift_first=True)
        self.out = nn.Linear(inner, config.hidden)
        # The first prediction is close to no motion at all.
        self.action_out = GroupedMlp(
            embodiments, config.hidden, config.hidden, config.action_dim, std_out=0.02
        )
        nn.init.normal_(self.position.weight, std=0.02)

    @property
    def vision_layers(self) -> nn.ModuleList:
        """Layers of the vision tower; none where the plan has no pictures."""
        return nn.ModuleList() if self.vision is None else self.vision.layers

    def forward_flops(self, batch: PackedBatch[Tensor]) -> float:
        """See the base class."""
        return forward_flops(self, batch)

    def encode(self, batch: PackedBatch[Tensor]) -> Encoded:
        """Run backbone and adapter once over the observations of a batch."""
        observed = observed_tokens(batch, self.spec)
        features = self._read(batch, observed)
        tokens = head_tokens(batch, self.spec, observed, causal=self.causal)
        query_spans = rows_of(batch.cu_seqlens_action, len(batch.actions))
        embodiments = len(self.spec.embodiments)
        inner = self.config.dit_width
        return Encoded(
            observed=[kv(features) for kv in self.observed_kv],
            tokens=tokens,
            state=self._embed_state(batch),
            future=features.new_zeros(0, inner)
            if self.future is None
            else self.future.repeat(batch.num_spans, 1),
            query_spans=query_spans,
            groups=EmbodimentGroups.of(batch.embodiment_ids.long()[query_spans], embodiments),
        )

    def velocity(
        self, batch: PackedBatch[Tensor], encoded: Encoded, noised: Tensor, time: Tensor
    ) -> Tensor:
        """See the base class."""
        config, tokens, spans = self.config, encoded.tokens, encoded.query_spans
        buckets = (time * config.time_buckets).floor()
        condition = Condition(F.silu(self.time_in(buckets)), tokens.spans)
        actions = self.action_in(
            F.pad(noised, (0, config.action_dim - noised.shape[1])), buckets, spans, encoded.groups
        )
        actions = actions + self.position(batch.action_position_ids)
        x = torch.cat((encoded.state, encoded.future, actions)).index_select(0, tokens.gather)
        for number, layer in enumerate(self.dit):
            own = number % 2 == 1
            x = layer(x, condition, tokens, None if own else encoded.observed[number // 2])
        x = x.index_select(0, tokens.action_places)
        out = self.out(self.norm_out(x, Condition(condition.rows, spans)))
        velocity: Tensor = self.action_out(out, encoded.groups)
        return velocity[:, : noised.shape[1]]

    def _read(self, batch: PackedBatch[Tensor], observed: Observed) -> Tensor:
        """[V, W] features of the observations."""
        x: Tensor = self.embed(batch.input_ids)
        if self.vision is not None and self.vision_out is not None:
            if batch.image_format != "rgb":
                raise ConfigError("the policy reads RGB pictures: load with image_format='rgb'")
            # A batch without pictures still runs the tower, so that its parameters get their
            # (zero) gradients on every rank.
            size, weight = self.config.image_size, self.vision.position
            pictures = fit_pictures(batch.images, size, like=weight, stretch=True)
            patches = self.vision_out(self.vision(pictures)).flatten(0, 1)
            x = x.index_copy(0, batch.image_token_index, patches.to(x.dtype))
        x = x.index_select(0, observed.places)
        positions = batch.position_ids.index_select(0, observed.places)
        rotary = Rotary.of(positions, self.config.head_dim, base=_ROTARY_BASE)
        for layer in self.backbone:
            x, _, _ = layer(x, rotary, observed.causal)
        x = self.adapter_norm(self.backbone_norm(x))
        for layer in self.adapter:
            x = layer(x, observed.full)
        return x

    def _embed_state(self, batch: PackedBatch[Tensor]) -> Tensor:
        """[M, W] state tokens."""
        inner = self.config.dit_width
        if self.state_in is None:
            return batch.state.new_zeros(0, inner)
        spans = rows_of(batch.cu_seqlens_state, len(batch.state))
        state = self.normalise_state(batch.state, batch.stats_ids.long()[spans])
        # Masked states are not read, whatever they hold: a product would keep a NaN.
        state = state.where(batch.state_dim_mask, 0.0)
        state = F.pad(state, (0, self.config.state_dim - state.shape[1]))
        groups = EmbodimentGroups.of(batch.embodiment_ids.long()[spans], len(self.spec.embodiments))
        tokens: Tensor = self.state_in(state, groups)
        return tokens.reshape(-1, inner)


def _check(config: GrootConfig, spec: PolicySpec) -> None:
    for name, held in (("action_dim", spec.action_dim), ("state_dim", spec.state_dim)):
        if held > getattr(config, name):
            raise ConfigError(
                f"the plan's {name.removesuffix('_dim')}s have {held} dimensions, model.{name} is"
                f" {getattr(config, name)}"
            )
    if spec.horizon > config.max_positions:
        raise ConfigError(
            f"the plan's chunks have {spec.horizon} steps, model.max_positions is"
            f" {config.max_positions}"
        )
    moments = (*spec.state, *spec.action)
    if config.normalise == "quantiles" and not all(len(m.q01) == len(m.mean) for m in moments):
        raise ConfigError(
            "model.normalise=quantiles needs the quantiles of states and actions, which these"
            " statistics lack: use moments"
        )

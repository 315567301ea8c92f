"""All of a plan but its tables: what it was made of, how, and how good it is."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from packing.audit import SourceAudit, SourceShare
from packing.certificate import Certificate
from packing.errors import PlanError
from packing.layout import TokenLayout
from packing.mixture import PlannedMixture
from packing.norm_stats import NormStats
from packing.plan_hash import canonical_json
from packing.prompt_ids import PromptIds
from packing.quality import PlanQuality
from packing.settings import PlanSettings

PLAN_LAYOUT_VERSION: Final = 2
_INT32_MAX: Final = (1 << 31) - 1

_OUTSIDE_HASH: Final = ("plan_hash", "versions")
_OUTSIDE_HASH_OF_SEGMENT: Final = (
    "selection_hash",
    "certificate",
    "audit",
    "shares",
    "quality",
)


@dataclass(frozen=True, kw_only=True)
class PlanSpec:
    """Which features of a spec are the state and the action, concatenated in this order.

    `state_size` and `action_size` are the elements of one step; 0 where the layout has none.
    """

    spec_id: str
    state: tuple[str, ...]
    action: tuple[str, ...]
    state_size: int
    action_size: int


@dataclass(frozen=True, kw_only=True)
class PackShape:
    """The most that any pack, or any span, of the plan holds: the fixed sizes of a batch.

    Attributes:
        spans, images, states, action_queries, prefix_tokens: the most in one pack (`states` are
            observed steps).
        span_prefix_tokens, span_action_tokens, span_tokens: the most in one span, the `max_seqlen`
            of the prefix, action and joint streams.
    """

    spans: int
    images: int
    states: int
    action_queries: int
    prefix_tokens: int
    span_prefix_tokens: int
    span_action_tokens: int
    span_tokens: int

    def __post_init__(self) -> None:
        # Tokens stay below by the largest budget; images and states can cost no token at all.
        for name, most in asdict(self).items():
            if most > _INT32_MAX:
                raise PlanError(
                    f"a pack would hold {most} {name}, and the offsets of a batch are int32, up to"
                    f" {_INT32_MAX}: cap images or spans, or observe fewer steps"
                )


@dataclass(frozen=True, kw_only=True)
class PlanSegment:
    """A stretch of a plan that was planned at once; a plan that grew has several.

    Attributes:
        parent_hash: hash of the plan that this segment was appended to; "" for the first.
        first_step, num_steps: optimizer steps.
        first_epoch: number of its first epoch; its epochs are `settings.epochs`.
        first_span, num_spans: its source spans have the ids from `first_span` on.
        selection_hash: the selection planned, or None where ids were given; outside the hash.
        span_maker: `kind` ("trajectory" or "window") and the maker's parameters.
        settings: budget, slots, epochs, seed, packer and its parameters.
        mixture: how many tokens of an epoch each source gives, or None: every span once per epoch.
        certificate, audit, quality: how good it is and what it left out; outside the hash.
        shares: what became of each source of the mixture; outside the hash.
    """

    parent_hash: str = ""
    first_step: int = 0
    num_steps: int
    first_epoch: int = 0
    first_span: int = 0
    num_spans: int
    selection_hash: str | None
    span_maker: Mapping[str, Any]
    settings: PlanSettings
    mixture: PlannedMixture | None = None
    certificate: Certificate
    audit: tuple[SourceAudit, ...]
    shares: tuple[SourceShare, ...] = ()
    quality: PlanQuality

    @property
    def epochs(self) -> int:
        """Passes over its spans, or draws of its mixture."""
        return self.settings.epochs

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Self:
        """From parsed JSON."""
        return cls(
            **{
                **raw,
                "settings": PlanSettings.from_dict(raw["settings"]),
                "certificate": Certificate(**raw["certificate"]),
                "mixture": raw["mixture"] and PlannedMixture.from_dict(raw["mixture"]),
                "audit": tuple(SourceAudit(**a) for a in raw["audit"]),
                "shares": tuple(SourceShare(**s) for s in raw["shares"]),
                "quality": PlanQuality.from_dict(raw["quality"]),
            }
        )


@dataclass(frozen=True, kw_only=True)
class PlanHeader:
    """All of a plan but its tables.

    Attributes:
        plan_hash: hex digest (32 digits of SHA-256), or "" before it is known.
        layout_version: of the plan's own tables.
        versions: table -> version of the lake that was read; outside the hash.
        layout: what a span costs.
        tokenizer_fingerprint: of the layout's tokenizer.
        vocab_size: one more than the largest id of a token.
        prompt_ids: ids beside those of the texts.
        shape: fixed sizes of a batch.
        datasets, embodiments, cameras: names that indices in the tables mean.
        specs: state and action features per spec.
        stats: frozen normalisation statistics per spec and feature.
        segments: what was planned at once, in the order of consumption; all have one budget and
            one number of slots.
    """

    plan_hash: str = ""
    layout_version: int = PLAN_LAYOUT_VERSION
    versions: Mapping[str, int]
    layout: TokenLayout
    tokenizer_fingerprint: str
    vocab_size: int
    prompt_ids: PromptIds = field(default_factory=PromptIds)
    shape: PackShape
    datasets: tuple[str, ...]
    embodiments: tuple[str, ...]
    cameras: tuple[str, ...]
    specs: tuple[PlanSpec, ...]
    stats: tuple[NormStats, ...]
    segments: tuple[PlanSegment, ...]

    def __post_init__(self) -> None:
        steps = epochs = spans = 0
        for number, segment in enumerate(self.segments):
            begins = (segment.first_step, segment.first_epoch, segment.first_span)
            if begins != (steps, epochs, spans) or bool(segment.parent_hash) != bool(number):
                raise PlanError(
                    f"plan {self.plan_hash}: segment {number} begins at step, epoch and span"
                    f" {begins}, the one before ends at {(steps, epochs, spans)}"
                )
            if (segment.settings.budget_tokens, segment.settings.slots_per_step) != (
                self.budget_tokens,
                self.slots_per_step,
            ):
                raise PlanError(
                    f"plan {self.plan_hash}: segment {number} has another budget or number of slots"
                )
            steps += segment.num_steps
            epochs += segment.epochs
            spans += segment.num_spans
        if not self.segments:
            raise PlanError(f"plan {self.plan_hash}: no segment")

    @property
    def newest(self) -> PlanSegment:
        """The segment that was planned last; in most plans the only one."""
        return self.segments[-1]

    @property
    def selection_hash(self) -> str | None:
        """The selection of the newest segment."""
        return self.newest.selection_hash

    @property
    def span_maker(self) -> Mapping[str, Any]:
        """Span maker of the newest segment."""
        return self.newest.span_maker

    @property
    def settings(self) -> PlanSettings:
        """Settings of the newest segment."""
        return self.newest.settings

    @property
    def mixture(self) -> PlannedMixture | None:
        """Mixture of the newest segment."""
        return self.newest.mixture

    @property
    def certificate(self) -> Certificate:
        """Certificate of the newest segment."""
        return self.newest.certificate

    @property
    def audit(self) -> tuple[SourceAudit, ...]:
        """Audit of the newest segment."""
        return self.newest.audit

    @property
    def shares(self) -> tuple[SourceShare, ...]:
        """What became of the sources of the newest segment's mixture; empty without one."""
        return self.newest.shares

    @property
    def quality(self) -> PlanQuality:
        """Quality of the newest segment."""
        return self.newest.quality

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole plan."""
        return sum(segment.num_steps for segment in self.segments)

    @property
    def num_spans(self) -> int:
        """Source spans of all segments."""
        return sum(segment.num_spans for segment in self.segments)

    @property
    def num_occurrences(self) -> int:
        """Spans in the packs of all epochs: one is counted each time that it is planned."""
        return sum(source.planned for segment in self.segments for source in segment.audit)

    @property
    def epochs(self) -> int:
        """Epochs of all segments."""
        return sum(segment.epochs for segment in self.segments)

    @property
    def run_steps(self) -> int:
        """Steps for which a loader keeps frames (see `PlanQuality.run_steps`), of all segments."""
        return max(segment.quality.run_steps for segment in self.segments)

    @property
    def ancestors(self) -> tuple[str, ...]:
        """Hashes of the plans that this one continues, oldest first."""
        return tuple(segment.parent_hash for segment in self.segments[1:])

    def planned_by(self, step: int) -> str:
        """Hash of the plan that first had this step: an ancestor where the plan has grown since."""
        later = [segment for segment in self.segments if segment.first_step > step]
        return later[0].parent_hash if later else self.plan_hash

    @property
    def budget_tokens(self) -> int:
        """Tokens a pack may hold."""
        return self.segments[0].settings.budget_tokens

    @property
    def slots_per_step(self) -> int:
        """Packs of one optimizer step over all ranks, S."""
        return self.segments[0].settings.slots_per_step

    @property
    def seed(self) -> int:
        """Seed of the first segment, which names every random draw of a training on the plan."""
        return self.segments[0].settings.seed

    def hashed(self) -> dict[str, Any]:
        """What of the header decides batches, as plain data."""
        header = asdict(self)
        for name in _OUTSIDE_HASH:
            del header[name]
        # A name of a file, which may be renamed; what is in it has its fingerprint.
        del header["layout"]["tokenizer"]
        for segment in header["segments"]:
            for name in _OUTSIDE_HASH_OF_SEGMENT:
                del segment[name]
        return header

    def stats_of(self, spec_id: str, feature: str) -> NormStats:
        """Normalisation statistics of a feature.

        Raises:
            PlanError: the plan holds none for it.
        """
        for stats in self.stats:
            if stats.spec_id == spec_id and stats.feature == feature:
                return stats
        raise PlanError(f"plan {self.plan_hash}: no statistics for {feature} of spec {spec_id}")

    def to_json(self) -> str:
        """Canonical JSON."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Inverse of `to_json`.

        Raises:
            PlanError: another layout version, or not a header.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            version = raw["layout_version"]
            if version != PLAN_LAYOUT_VERSION:
                raise PlanError(
                    f"plan {raw.get('plan_hash', '?')}: layout version {version}, this Headrace"
                    f" reads {PLAN_LAYOUT_VERSION}; make the plan again, or use the Headrace that"
                    " wrote it"
                )
            return cls(
                **{
                    **raw,
                    "layout": TokenLayout.from_dict(raw["layout"]),
                    "prompt_ids": PromptIds.from_dict(raw["prompt_ids"]),
                    "shape": PackShape(**raw["shape"]),
                    "datasets": tuple(raw["datasets"]),
                    "embodiments": tuple(raw["embodiments"]),
                    "cameras": tuple(raw["cameras"]),
                    "specs": tuple(
                        PlanSpec(**{**s, "state": tuple(s["state"]), "action": tuple(s["action"])})
                        for s in raw["specs"]
                    ),
                    "stats": tuple(NormStats.from_dict(s) for s in raw["stats"]),
                    "segments": tuple(PlanSegment.from_dict(s) for s in raw["segments"]),
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(
                f"plan header cannot be read ({error!r}); make the plan again"
            ) from error

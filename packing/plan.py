"""The plan: an immutable, content-hashed table of what every training step consumes.

`packs` has one row per slot in the order of consumption, S rows per step:

    pack           int64        row number over all epochs
    epoch          int32
    step           int64        runs on across epochs
    slot           int32        0..S-1; rank r of w ranks takes slots r, r + w, r + 2w, ...
    span_id        list<int64>  the source span; (epoch, span_id) is unique in the plan
    episode        list<int32>  row of `episodes`
    start, stop, stride          list<int32>  observed steps are range(start, stop, stride)
    action_start, action_stop    list<int32>  action steps
    text           list<int32>  row of `texts`
    images         list<int32>  images of the span
    prefix_tokens  list<int32>  tokens of the span without its action queries
    action_tokens  list<int32>  action queries of the span
    tokens         int32        of the whole pack; at most the budget
    sum_sq         int64        sum over its spans of (prefix + action tokens)^2

An empty slot is a row with empty lists: a zero-loss pack. `episodes` has one row per episode:

    episode_id string, content_sha256 binary(32), address uint64 (row at the pinned version),
    spec, dataset, embodiment int32 (index into the header's tuples), num_steps int32,
    cameras list<int16> (index into the header's cameras: those present, ascending),
    invalid_action_steps list<int32> (steps the loss leaves out)

`texts` has `text` string and `token_ids` list<int32>.

The hash covers all of it but the row addresses, and of the header what decides batches. Where an
index into a table is meant, it is a row number.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from packing.audit import SourceAudit
from packing.certificate import Certificate
from packing.errors import PlanError
from packing.layout import TokenLayout
from packing.norm_stats import NormStats
from packing.plan_hash import canonical_json, content_digest
from packing.quality import PlanQuality
from packing.settings import PlanSettings

if TYPE_CHECKING:
    from catalog.selection import Selection  # a decode process needs plans, and no DuckDB

PLAN_LAYOUT_VERSION: Final = 1

_INT32S: Final = pa.list_(pa.int32())
PACKS_SCHEMA: Final = pa.schema(
    [
        ("pack", pa.int64()),
        ("epoch", pa.int32()),
        ("step", pa.int64()),
        ("slot", pa.int32()),
        ("span_id", pa.list_(pa.int64())),
        *[
            (name, _INT32S)
            for name in (
                "episode",
                "start",
                "stop",
                "stride",
                "action_start",
                "action_stop",
                "text",
                "images",
                "prefix_tokens",
                "action_tokens",
            )
        ],
        ("tokens", pa.int32()),
        ("sum_sq", pa.int64()),
    ]
)
EPISODES_SCHEMA: Final = pa.schema(
    [
        ("episode_id", pa.string()),
        ("content_sha256", pa.binary(32)),
        ("address", pa.uint64()),
        ("spec", pa.int32()),
        ("dataset", pa.int32()),
        ("embodiment", pa.int32()),
        ("num_steps", pa.int32()),
        ("cameras", pa.list_(pa.int16())),
        ("invalid_action_steps", _INT32S),
    ]
)
TEXTS_SCHEMA: Final = pa.schema([("text", pa.string()), ("token_ids", _INT32S)])


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


@dataclass(frozen=True, kw_only=True)
class PlanHeader:
    """All of a plan but its tables.

    Attributes:
        plan_hash: hex digest (32 digits of SHA-256), or "" before it is known.
        layout_version: of the plan's own tables.
        versions: table -> version of the lake that was read; outside the hash.
        selection_hash: the selection planned, or None where ids were given; outside the hash.
        layout: what a span costs.
        tokenizer_fingerprint, vocab_size: of the layout's tokenizer.
        span_maker: `kind` ("trajectory" or "window") and the maker's parameters.
        settings: budget, slots, epochs, seed, packer and its parameters.
        num_steps: optimizer steps of the whole plan.
        num_spans: source spans; each occurs once per epoch.
        shape: fixed sizes of a batch.
        datasets, embodiments, cameras: names that indices in the tables mean.
        specs: state and action features per spec.
        stats: frozen normalisation statistics per spec and feature.
        certificate, audit, quality: how good the plan is and what it left out; outside the hash.
    """

    plan_hash: str = ""
    layout_version: int = PLAN_LAYOUT_VERSION
    versions: Mapping[str, int]
    selection_hash: str | None
    layout: TokenLayout
    tokenizer_fingerprint: str
    vocab_size: int
    span_maker: Mapping[str, Any]
    settings: PlanSettings
    num_steps: int
    num_spans: int
    shape: PackShape
    datasets: tuple[str, ...]
    embodiments: tuple[str, ...]
    cameras: tuple[str, ...]
    specs: tuple[PlanSpec, ...]
    stats: tuple[NormStats, ...]
    certificate: Certificate
    audit: tuple[SourceAudit, ...]
    quality: PlanQuality

    @property
    def budget_tokens(self) -> int:
        """Tokens a pack may hold."""
        return self.settings.budget_tokens

    @property
    def slots_per_step(self) -> int:
        """Packs of one optimizer step over all ranks, S."""
        return self.settings.slots_per_step

    @property
    def epochs(self) -> int:
        """Passes over the spans."""
        return self.settings.epochs

    @property
    def seed(self) -> int:
        """Seed of every random choice of the plan."""
        return self.settings.seed

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
                    "layout": TokenLayout(**raw["layout"]),
                    "settings": PlanSettings(**raw["settings"]),
                    "shape": PackShape(**raw["shape"]),
                    "datasets": tuple(raw["datasets"]),
                    "embodiments": tuple(raw["embodiments"]),
                    "cameras": tuple(raw["cameras"]),
                    "specs": tuple(
                        PlanSpec(**{**s, "state": tuple(s["state"]), "action": tuple(s["action"])})
                        for s in raw["specs"]
                    ),
                    "stats": tuple(NormStats.from_dict(s) for s in raw["stats"]),
                    "certificate": Certificate(**raw["certificate"]),
                    "audit": tuple(SourceAudit(**a) for a in raw["audit"]),
                    "quality": PlanQuality.from_dict(raw["quality"]),
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(
                f"plan header cannot be read ({error!r}); make the plan again"
            ) from error


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Header and tables (columns above).

    Attributes:
        header: everything but the tables.
        packs: one row per slot, `num_steps * slots_per_step` rows.
        episodes: the episodes that `packs.episode` numbers.
        texts: the texts that `packs.text` numbers, with their token ids.
        selection: what it was made from, to be kept when it is saved; None for given ids, and in a
            plan that was loaded.
    """

    header: PlanHeader
    packs: pa.Table
    episodes: pa.Table
    texts: pa.Table
    selection: "Selection | None" = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name, table, schema in (
            ("packs", self.packs, PACKS_SCHEMA),
            ("episodes", self.episodes, EPISODES_SCHEMA),
            ("texts", self.texts, TEXTS_SCHEMA),
        ):
            if not table.schema.equals(schema):
                raise PlanError(
                    f"plan {self.plan_hash}: table {name} has columns {table.schema.names} of"
                    " other types than this Headrace writes"
                )
        rows = self.header.num_steps * self.header.slots_per_step
        if self.packs.num_rows != rows:
            raise PlanError(
                f"plan {self.plan_hash}: {self.packs.num_rows} packs, {self.header.num_steps} steps"
                f" of {self.header.slots_per_step} slots need {rows}"
            )

    @property
    def plan_hash(self) -> str:
        """Hash of the plan's content."""
        return self.header.plan_hash

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole plan."""
        return self.header.num_steps

    def content_hash(self) -> str:
        """Recompute the hash from content: first 32 hex digits of SHA-256.

        Over the canonical JSON of what decides batches and over the tables' columns, little
        endian, without row addresses. Equal inputs give an equal hash on any machine.
        """
        header = asdict(self.header)
        for name in (
            "plan_hash",
            "versions",
            "selection_hash",
            "certificate",
            "audit",
            "quality",
        ):
            del header[name]
        tables = (self.packs, self.episodes.drop_columns(["address"]), self.texts)
        return content_digest(header, tables)

    def sealed(self) -> Self:
        """This plan with its hash in the header."""
        return replace(self, header=replace(self.header, plan_hash=self.content_hash()))

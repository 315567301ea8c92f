"""The plan: an immutable, content-hashed table of what every training step consumes.

`packs` has one row per slot in the order of consumption, S rows per step:

    pack           int64        row number over all epochs
    epoch          int32
    step           int64        runs on across epochs
    slot           int32        0..S-1; rank r of w ranks takes slots r, r + w, r + 2w, ...
    span_id        list<int64>  the source span
    occurrence     list<int32>  0 where the span is met first in its epoch, then 1, 2, ...;
                                (epoch, span_id, occurrence) is unique in the plan
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
    invalid_action_steps list<int32> (steps the loss leaves out), invalid_state_steps list<int32>
    (steps whose state is masked where a span was told to cross them)

`texts` has

    text string, token_ids list<int32>, images_at int32 and state_at int32 (how many of the ids
    stand before the images and before the state's text; -1 where there is no state's text)

`runs` has one row per run of source spans
(see `packing.draw`), in the order of span ids, occurring or not:

    episode int32 (row of `episodes`), source int32 (index into the sources of the segment's
    mixture; 0 without a mixture), num_spans int32, tokens int64 (of its spans)

The hash covers all of it but the row addresses, and of the header what decides batches. Where an
index into a table is meant, it is a row number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa

from packing.errors import PlanError
from packing.plan_hash import content_digest
from packing.plan_header import PlanHeader

if TYPE_CHECKING:
    from catalog.selection import Selection  # a decode process needs plans, and no DuckDB

_INT32S: Final = pa.list_(pa.int32())
PACKS_SCHEMA: Final = pa.schema(
    [
        ("pack", pa.int64()),
        ("epoch", pa.int32()),
        ("step", pa.int64()),
        ("slot", pa.int32()),
        ("span_id", pa.list_(pa.int64())),
        ("occurrence", _INT32S),
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
        ("invalid_state_steps", _INT32S),
    ]
)
TEXTS_SCHEMA: Final = pa.schema(
    [
        ("text", pa.string()),
        ("token_ids", _INT32S),
        ("images_at", pa.int32()),
        ("state_at", pa.int32()),
    ]
)
RUNS_SCHEMA: Final = pa.schema(
    [
        ("episode", pa.int32()),
        ("source", pa.int32()),
        ("num_spans", pa.int32()),
        ("tokens", pa.int64()),
    ]
)
TABLE_SCHEMAS: Final = {
    "packs": PACKS_SCHEMA,
    "episodes": EPISODES_SCHEMA,
    "texts": TEXTS_SCHEMA,
    "runs": RUNS_SCHEMA,
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Header and tables (columns above).

    Attributes:
        header: everything but the tables.
        packs: one row per slot, `num_steps * slots_per_step` rows.
        episodes: the episodes that `packs.episode` numbers.
        texts: the texts that `packs.text` numbers, with their token ids.
        runs: the runs of source spans, in the order of span ids.
        selection: what it was made from, to be kept when it is saved; None for given ids, and in a
            plan that was loaded.
    """

    header: PlanHeader
    packs: pa.Table
    episodes: pa.Table
    texts: pa.Table
    runs: pa.Table
    selection: "Selection | None" = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name, schema in TABLE_SCHEMAS.items():
            table: pa.Table = getattr(self, name)
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

    def take_packs(self, rows: Sequence[int]) -> pa.Table:
        """Some rows of `packs`, in their order."""
        return self.packs.take(pa.array(rows, pa.int64())).combine_chunks()

    def content_hash(self) -> str:
        """Recompute the hash from content: first 32 hex digits of SHA-256.

        Over the canonical JSON of what decides batches and over the tables' columns, little
        endian, without row addresses. Equal inputs give an equal hash on any machine.
        """
        tables = (self.packs, self.episodes.drop_columns(["address"]), self.texts, self.runs)
        return content_digest(self.header.hashed(), tables)

    def sealed(self) -> Self:
        """This plan with its hash in the header."""
        return replace(self, header=replace(self.header, plan_hash=self.content_hash()))

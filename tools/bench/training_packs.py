"""The packs of a workload, from a lake through planner and loader, and what padded batches hold."""

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import torch
from torch import Tensor

from lake import Lake
from loader.batch import PackedBatch
from loader.pack_loader import PackLoader
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.spans import SpanMaker
from packing.tokenizer import Tokenizer
from training.padded import PadTo, padded_batches
from training.policy_spec import PolicySpec

Batches = Sequence[PackedBatch[Tensor]]

PACKED: Final = "packed"
LONGEST: Final = "padded to the longest of the batch"
MAXIMUM: Final = "padded to the plan's maximum"
BUCKETED: Final = "length-sorted, padded to the longest"

_SPECIAL: Final = 8


class Words:
    """A tokenizer with one id for each word and line end, by a checksum.

    PaliGemma's vocabulary has most words of robots' instructions as one token; its file is not at
    hand where a bench runs.
    """

    name: Final = "words"
    fingerprint: Final = "words-crc32-1024"
    vocab_size: Final = 1024
    begin_id: Final = 1
    end_id: Final = 2
    pad_id: Final = 0
    image_id: Final = 3
    state_id: Final = 4

    def id_of(self, token: str) -> int | None:  # noqa: ARG002  (words have no names)
        """None."""
        return None

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of the words."""
        room = self.vocab_size - _SPECIAL
        return tuple(
            _SPECIAL + zlib.crc32(word.encode()) % room for word in re.findall(r"\w+|\n", text)
        )


@dataclass(frozen=True, kw_only=True)
class Packs:
    """One epoch of a plan.

    Attributes:
        packed: its packs, without trailing pads.
        whole: the same spans, all in one pack, to cut padded batches from.
        spec: for policies.
    """

    packed: Batches
    whole: PackedBatch[Tensor]
    spec: PolicySpec

    @property
    def tokens(self) -> int:
        """Real ones, prefix and actions."""
        return sum(batch.num_tokens + len(batch.actions) for batch in self.packed)


def load_packs(
    lake: Lake,
    *,
    spans: SpanMaker,
    layout: TokenLayout,
    budget_tokens: int,
    image_size: int | None = None,
    tokenizer: Tokenizer | None = None,
) -> Packs:
    """Plan all episodes of a lake once, and load the packs.

    Args:
        lake: closed recordings.
        spans: what a span is.
        layout: tokens of a span.
        budget_tokens: of a pack.
        image_size: to which pictures are resized.
        tokenizer: of the texts; None for that of the layout.
    """

    def plan(budget: int) -> Plan:
        return make_plan(
            lake,
            spans=spans,
            layout=layout,
            tokenizer=tokenizer,
            budget_tokens=budget,
            slots_per_step=1,
        )

    def load(planned: Plan) -> Batches:
        size = None if image_size is None else (image_size, image_size)
        with PackLoader(lake, planned, process="inline", image_size=size) as loader:
            batches: Iterable[PackedBatch[Tensor]] = loader
            return [batch.trimmed() for batch in batches]

    chosen = plan(budget_tokens)
    packed = load(chosen)
    [whole] = load(plan(budget_tokens * len(packed)))
    # Span ids are those of the spans and not of the packing; so noise and time are the same.
    whole = replace(whole, plan_hash=chosen.plan_hash)
    return Packs(
        packed=packed,
        whole=whole,
        spec=PolicySpec.from_plan(chosen.header, image_size=image_size),
    )


def padded_ways(
    packs: Packs, batch_size: int, *, pictures: int | None = None
) -> dict[str, Batches]:
    """The same spans as trainers pad them.

    Args:
        packs: the spans.
        batch_size: of padded batches.
        pictures: picture slots of the plan; None where it has no pictures.

    Returns:
        For each way, the padded batches of an epoch. Sorting is over the whole epoch, the best that
        length buckets can do, at the price of an order that lengths decide.
    """
    whole = packs.whole
    most: Literal["most"] | None = None if pictures is None else "most"
    longest = list(padded_batches(whole, batch_size, PadTo(pictures=most)))
    every = next(padded_batches(whole, whole.num_spans, PadTo(pictures=pictures)))
    fixed = PadTo(
        prefix_tokens=every.max_seqlen, action_steps=every.max_seqlen_action, pictures=pictures
    )
    lengths = whole.cu_seqlens_kv.diff()[: whole.num_spans]
    by_length = torch.argsort(lengths, stable=True).tolist()
    return {
        LONGEST: longest,
        MAXIMUM: list(padded_batches(whole, batch_size, fixed)),
        BUCKETED: list(padded_batches(whole, batch_size, PadTo(pictures=most), rows=by_length)),
    }

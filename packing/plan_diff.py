"""What differs between two plans of a lake, and from which step on."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from packing.norm_stats import NormStats
from packing.plan import Plan
from packing.plan_header import PlanHeader
from packing.spans import Int64s

_UInt64s = NDArray[np.uint64]
_SPAN_STEPS: Final = ("start", "stop", "stride", "action_start", "action_stop")


@dataclass(frozen=True, kw_only=True)
class FieldDiff:
    """One value of both plans; None where a plan has no such value."""

    name: str
    a: Any
    b: Any

    @property
    def differs(self) -> bool:
        """Whether the values are unequal."""
        return bool(self.a != self.b)


@dataclass(frozen=True, kw_only=True)
class DatasetDiff:
    """What both plans take of one dataset; each pair is (A, B).

    Attributes:
        dataset: its name.
        episodes: that the plan knows.
        spans: source spans that occur.
        planned: occurrences in all epochs.
        tokens: of these occurrences.
    """

    dataset: str
    episodes: tuple[int, int]
    spans: tuple[int, int]
    planned: tuple[int, int]
    tokens: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class StatsDiff:
    """Normalisation statistics that differ.

    Attributes:
        spec_id, feature: what of.
        counts: steps counted in A and B; None where a plan has no statistics of it.
        mean_shift: the most that an element's mean moves, in standard deviations of A; infinite
            where it is constant in A, None where only one plan has them.
        std_ratio: the most that an element's standard deviation changes, as the larger over the
            smaller; infinite and None likewise.
    """

    spec_id: str
    feature: str
    counts: tuple[int | None, int | None]
    mean_shift: float | None
    std_ratio: float | None


@dataclass(frozen=True, kw_only=True)
class PlanDiff:
    """The difference of plan B from plan A.

    Attributes:
        hashes: of A and B.
        header: settings, layout, span maker, mixture, selection, lake versions and names that
            differ.
        only_a, only_b: episode ids, sorted.
        changed: episodes with the same id and other content.
        datasets: by name, of both.
        stats: normalisation statistics that differ.
        texts: distinct texts that only A, and only B, has (with their token ids).
        quality: figures of the newest segments side by side, equal ones too.
        first_step_spans: the first step that consumes other spans, whichever slots they are in;
            the shorter plan's end where it is a part of the other; None where there is none.
        first_step_slots: likewise, for the spans of every slot in their order.
    """

    hashes: tuple[str, str]
    header: tuple[FieldDiff, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    changed: tuple[str, ...]
    datasets: tuple[DatasetDiff, ...]
    stats: tuple[StatsDiff, ...]
    texts: tuple[int, int]
    quality: tuple[FieldDiff, ...]
    first_step_spans: int | None
    first_step_slots: int | None

    @property
    def same(self) -> bool:
        """Whether it is the same plan: every batch of every rank is equal."""
        return self.hashes[0] == self.hashes[1]


def diff_plans(a: Plan, b: Plan) -> PlanDiff:
    """Compare two plans."""
    episodes_a, episodes_b = (_episodes(plan) for plan in (a, b))
    common = episodes_a.keys() & episodes_b.keys()
    spans_a, slots_a, spans_b, slots_b = _step_digests(a, b)
    texts_a, texts_b = (
        {(row["text"], *row["token_ids"]) for row in plan.texts.to_pylist()} for plan in (a, b)
    )
    return PlanDiff(
        hashes=(a.plan_hash, b.plan_hash),
        header=tuple(f for f in _paired(_choices(a.header, b), _choices(b.header, a)) if f.differs),
        only_a=tuple(sorted(episodes_a.keys() - common)),
        only_b=tuple(sorted(episodes_b.keys() - common)),
        changed=tuple(sorted(e for e in common if episodes_a[e] != episodes_b[e])),
        datasets=_datasets(a, b),
        stats=_stats(a.header, b.header),
        texts=(len(texts_a - texts_b), len(texts_b - texts_a)),
        quality=tuple(_paired(_figures(a.header), _figures(b.header))),
        first_step_spans=_first_difference(spans_a, spans_b),
        first_step_slots=_first_difference(slots_a, slots_b),
    )


def _episodes(plan: Plan) -> dict[str, bytes]:
    columns = (plan.episodes[name].to_pylist() for name in ("episode_id", "content_sha256"))
    return dict(zip(*columns, strict=True))


def _choices(header: PlanHeader, other: Plan) -> dict[str, Any]:
    """Name -> what was chosen for the plan."""
    choices: dict[str, Any] = {
        **_flat("layout", asdict(header.layout)),
        "tokenizer_fingerprint": header.tokenizer_fingerprint,
        "cameras": header.cameras,
        "embodiments": header.embodiments,
        **{f"state of spec {s.spec_id[:8]}": "+".join(s.state) for s in header.specs},
        **{f"action of spec {s.spec_id[:8]}": "+".join(s.action) for s in header.specs},
        **_flat("lake version", header.versions),
    }
    several = max(len(header.segments), len(other.header.segments)) > 1
    for number, segment in enumerate(header.segments):
        where = f"segment {number}: " if several else ""
        raw = asdict(segment)
        of_segment = {
            "selection": segment.selection_hash,
            "steps": segment.num_steps,
            "source spans": segment.num_spans,
            **_flat("span maker", raw["span_maker"]),
            **_flat("", raw["settings"]),
            **_flat("mixture", raw["mixture"] or {}),
        }
        choices.update({where + name: value for name, value in of_segment.items()})
    return choices


def _figures(header: PlanHeader) -> dict[str, Any]:
    """Name -> how good the newest segment is."""
    figures = asdict(header.quality)
    figures["storage"] = {
        f"ranks {use.world_size}": {
            "requests_per_step": use.requests_per_step,
            "mb_per_step": use.bytes_per_step / 1e6,
            "decoded_over_shown": use.decoded_over_shown,
            "kept_mb": use.kept_bytes / 1e6,
        }
        for use in header.quality.storage
    }
    return {"packs_over_bound": header.certificate.packs_over_bound, **_flat("", figures)}


def _flat(prefix: str, value: Mapping[Any, Any]) -> dict[str, Any]:
    """Nested mappings as one, keys joined by blanks."""
    flat: dict[str, Any] = {}
    for key, each in value.items():
        name = f"{prefix} {key}".strip()
        if isinstance(each, Mapping):
            flat.update(_flat(name, each))
        else:
            flat[name] = each
    return flat


def _paired(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[FieldDiff]:
    for name in dict.fromkeys([*a, *b]):
        yield FieldDiff(name=name, a=a.get(name), b=b.get(name))


def _datasets(a: Plan, b: Plan) -> tuple[DatasetDiff, ...]:
    counted = (_by_dataset(a), _by_dataset(b))
    names = sorted({*a.header.datasets, *b.header.datasets})
    nothing = dict.fromkeys(("episodes", "spans", "planned", "tokens"), 0)
    return tuple(
        DatasetDiff(
            dataset=name,
            **{
                what: (counted[0].get(name, nothing)[what], counted[1].get(name, nothing)[what])
                for what in nothing
            },
        )
        for name in names
    )


def _by_dataset(plan: Plan) -> dict[str, dict[str, int]]:
    names = plan.header.datasets
    of_episode = plan.episodes["dataset"].to_numpy()
    dataset = of_episode[_column(plan, "episode")]
    tokens = _column(plan, "prefix_tokens").astype(np.int64) + _column(plan, "action_tokens")
    of_span = np.full(plan.header.num_spans, len(names), np.int64)
    of_span[_column(plan, "span_id")] = dataset

    def per_dataset(values: NDArray[Any], weights: Int64s | None = None) -> list[int]:
        # float64 sums are exact: counts stay far below 2^53.
        counts = np.bincount(values, weights, minlength=len(names) + 1)[: len(names)]
        return [int(count) for count in counts.tolist()]

    columns = {
        "episodes": per_dataset(of_episode),
        "spans": per_dataset(of_span),
        "planned": per_dataset(dataset),
        "tokens": per_dataset(dataset, tokens),
    }
    return {
        name: {what: counts[number] for what, counts in columns.items()}
        for number, name in enumerate(names)
    }


def _stats(a: PlanHeader, b: PlanHeader) -> tuple[StatsDiff, ...]:
    ours, theirs = ({(s.spec_id, s.feature): s for s in header.stats} for header in (a, b))
    return tuple(
        _stats_diff(key, ours.get(key), theirs.get(key))
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    )


def _stats_diff(key: tuple[str, str], a: NormStats | None, b: NormStats | None) -> StatsDiff:
    shift = ratio = None
    if a is not None and b is not None:
        moved = np.abs(np.subtract(a.mean, b.mean))
        stds = np.sort([a.std, b.std], axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            # 0 / 0: an element that is constant in both plans has not changed its spread.
            shift = float(np.where(moved > 0, moved / np.asarray(a.std), 0.0).max(initial=0.0))
            ratio = float(np.where(stds[1] > 0, stds[1] / stds[0], 1.0).max(initial=1.0))
    return StatsDiff(
        spec_id=key[0],
        feature=key[1],
        counts=(a.count if a else None, b.count if b else None),
        mean_shift=shift,
        std_ratio=ratio,
    )


def _step_digests(a: Plan, b: Plan) -> tuple[_UInt64s, _UInt64s, _UInt64s, _UInt64s]:
    """Of A, then of B: per step a digest of its spans, and one of its spans in their slots."""
    keys = [
        pc.binary_join_element_wise(
            plan.episodes["episode_id"].cast(pa.binary()),
            plan.episodes["content_sha256"].cast(pa.binary()),
            b"\0",
        ).combine_chunks()
        for plan in (a, b)
    ]
    every = pc.unique(pa.concat_arrays(keys))
    digests: list[_UInt64s] = []
    for plan, own in zip((a, b), keys, strict=True):
        number = pc.index_in(own, value_set=every).to_numpy()
        span = _mixed(number[_column(plan, "episode")], np.zeros(1, np.uint64))
        for name in _SPAN_STEPS:
            span = _mixed(_column(plan, name), span)
        slots = plan.header.slots_per_step
        offsets = _offsets(plan)
        pack = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        place = (np.arange(len(span)) - offsets[pack]) * slots + pack % slots
        step_offsets = offsets[::slots]
        digests += [_summed(span, step_offsets), _summed(_mixed(place, span), step_offsets)]
    return digests[0], digests[1], digests[2], digests[3]


def _mixed(values: NDArray[Any], digest: _UInt64s) -> _UInt64s:
    """uint64 [n]: digests that another value each has gone into (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = digest * np.uint64(0x9E3779B97F4A7C15) + values.astype(np.uint64) + np.uint64(1)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def _summed(digest: _UInt64s, offsets: Int64s) -> _UInt64s:
    """uint64 [len(offsets) - 1]: the sums between offsets, whatever the order inside."""
    total = np.zeros(len(digest) + 1, np.uint64)
    np.cumsum(digest, out=total[1:])
    return np.diff(total[offsets])


def _first_difference(a: _UInt64s, b: _UInt64s) -> int | None:
    steps = min(len(a), len(b))
    unequal = np.flatnonzero(a[:steps] != b[:steps])
    if len(unequal):
        return int(unequal[0])
    return None if len(a) == len(b) else steps


def _column(plan: Plan, name: str) -> NDArray[Any]:
    values: NDArray[Any] = pc.list_flatten(plan.packs[name]).to_numpy()
    return values


def _offsets(plan: Plan) -> Int64s:
    """int64 [slots + 1]: where each slot begins among the planned occurrences."""
    sizes = pc.list_value_length(plan.packs["span_id"]).to_numpy().astype(np.int64)
    return np.concatenate([[0], np.cumsum(sizes)])

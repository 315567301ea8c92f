"""Growth: a plan and what was planned later become one plan that begins as the first does.

Nothing of the first plan changes: its packs, its numbering of spans, epochs, steps, texts and
names, and its normalisation statistics stay; what is new is appended. So a position in the first
plan means the same in the joined one, and a training run goes on from where it stands.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lake.store import Lake
from lake.visible import visible_episodes
from packing.errors import PlanError
from packing.layout import TokenLayout
from packing.plan import EPISODES_SCHEMA, TEXTS_SCHEMA, Plan
from packing.plan_header import PackShape, PlanHeader, PlanSpec

Int32s = NDArray[np.int32]

_ALIKE = ("tokenizer_fingerprint", "vocab_size", "budget_tokens", "slots_per_step", "span_maker")


def join_plans(lake: Lake, parent: Plan, grown: Plan) -> Plan:
    """Append the segment of a newly made plan to a plan.

    Args:
        lake: of both; read at the versions of `grown`, where all episodes must still be.
        parent: the plan that goes on.
        grown: made by `make_plan`, with one segment. Its episodes may be in `parent` as well.

    Returns:
        A sealed plan that pins the versions of `grown`. Statistics of specs that `parent` knows are
        those of `parent`, since a policy that is being trained normalises by them.

    Raises:
        PlanError: the plans differ in layout, tokenizer, budget, slots, span maker, features or
            cameras of an episode, or the lake has lost an episode of `parent` since.
    """
    for name, (ours, theirs) in _pairs(parent.header, grown.header).items():
        if ours != theirs:
            raise PlanError(f"plan {parent.plan_hash} has {name} {ours}, its growth has {theirs}")
    names = {
        name: _union(getattr(parent.header, name), getattr(grown.header, name))
        for name in ("datasets", "embodiments", "cameras")
    }
    specs = _union_specs(parent.header.specs, grown.header.specs)
    texts = _union(parent.texts["text"].to_pylist(), grown.texts["text"].to_pylist())
    renumbered = _renumber_episodes(grown, names, specs)
    kept = _at_versions(lake, parent, grown.header.versions)
    episodes, episode = _union_episodes(kept, renumbered)
    header = parent.header
    segment = replace(
        grown.header.newest,
        parent_hash=parent.plan_hash,
        first_step=header.num_steps,
        first_epoch=header.epochs,
        first_span=header.num_spans,
    )
    known = {spec.spec_id for spec in header.specs}
    return Plan(
        header=replace(
            header,
            versions=grown.header.versions,
            shape=_larger(header.shape, grown.header.shape),
            datasets=names["datasets"],
            embodiments=names["embodiments"],
            cameras=names["cameras"],
            specs=specs,
            stats=header.stats + tuple(s for s in grown.header.stats if s.spec_id not in known),
            segments=(*header.segments, segment),
        ),
        packs=pa.concat_tables(
            [parent.packs, _renumber_packs(grown, header, parent, episode, texts)]
        ).combine_chunks(),
        episodes=episodes,
        texts=_texts(texts, parent, grown),
        runs=pa.concat_tables(
            [parent.runs, _set(grown.runs, "episode", episode[grown.runs["episode"].to_numpy()])]
        ).combine_chunks(),
        selection=grown.selection,
    ).sealed()


def _pairs(first: PlanHeader, second: PlanHeader) -> dict[str, tuple[object, object]]:
    """What must be equal in both, by name. A tokenizer is what it does, not its file's name."""
    layouts = {
        f"layout.{f.name}": (getattr(first.layout, f.name), getattr(second.layout, f.name))
        for f in fields(TokenLayout)
        if f.name != "tokenizer"
    }
    return layouts | {name: (getattr(first, name), getattr(second, name)) for name in _ALIKE}


def _union(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """The names of both, those of the first in their places."""
    return tuple(dict.fromkeys((*first, *second)))


def _numbers(names: Sequence[str], of: Sequence[str]) -> Int32s:
    """int32: for each name of `of` its place in `names`."""
    place = {name: number for number, name in enumerate(names)}
    return np.asarray([place[name] for name in of], np.int32)


def _union_specs(first: tuple[PlanSpec, ...], second: tuple[PlanSpec, ...]) -> tuple[PlanSpec, ...]:
    known = {spec.spec_id: spec for spec in first}
    for spec in second:
        ours = known.setdefault(spec.spec_id, spec)
        if ours != spec:
            raise PlanError(
                f"spec {spec.spec_id}: the plan feeds state {'+'.join(ours.state) or 'none'} and"
                f" action {'+'.join(ours.action) or 'none'}, its growth"
                f" {'+'.join(spec.state) or 'none'} and {'+'.join(spec.action) or 'none'}; choose"
                " the same features"
            )
    return tuple(known.values())


def _renumber_episodes(
    grown: Plan, names: Mapping[str, tuple[str, ...]], specs: tuple[PlanSpec, ...]
) -> pa.Table:
    """The grown plan's episodes with the joined plan's numbers."""
    header, table = grown.header, grown.episodes
    spec_ids = [spec.spec_id for spec in specs]
    numbers = {
        "spec": _numbers(spec_ids, [spec.spec_id for spec in header.specs]),
        "dataset": _numbers(names["datasets"], header.datasets),
        "embodiment": _numbers(names["embodiments"], header.embodiments),
    }
    for column, number in numbers.items():
        table = _set(table, column, number[table[column].to_numpy()])
    camera = _numbers(names["cameras"], header.cameras)
    present = [sorted(camera[ours].tolist()) for ours in table["cameras"].to_pylist()]
    return _set(table, "cameras", present)


def _at_versions(lake: Lake, parent: Plan, versions: Mapping[str, int]) -> pa.Table:
    """The parent's episodes with their row addresses at newer versions."""
    there = visible_episodes(lake.at(versions), ["episode_id", "content_sha256"])
    ids = parent.episodes["episode_id"].combine_chunks()
    row = pc.index_in(ids, value_set=there["episode_id"].combine_chunks())
    gone = ids.filter(pc.is_null(row))
    if len(gone) and versions["trajectories"] < parent.header.versions["trajectories"]:
        raise PlanError(
            f"{len(gone)} episodes of plan {parent.plan_hash}, first {gone[0]}, came into the lake"
            " after the selection that it is to grow by: freeze the selection again"
        )
    if len(gone):
        raise PlanError(
            f"{len(gone)} episodes of plan {parent.plan_hash} are not in the lake any more, first"
            f" {gone[0]}: a plan cannot grow past a deletion; make a new plan"
        )
    changed = ids.filter(
        pc.not_equal(
            there["content_sha256"].take(row), parent.episodes["content_sha256"]
        ).combine_chunks()
    )
    if len(changed):
        raise PlanError(
            f"{len(changed)} episodes of plan {parent.plan_hash} have other content now, first"
            f" {changed[0]}; make a new plan"
        )
    return _set(parent.episodes, "address", there["address"].take(row).combine_chunks())


def _union_episodes(kept: pa.Table, renumbered: pa.Table) -> tuple[pa.Table, Int32s]:
    """The episodes of both, and the place of each grown episode among them."""
    kept_ids = kept["episode_id"].combine_chunks()
    known = pc.index_in(renumbered["episode_id"].combine_chunks(), value_set=kept_ids)
    again = renumbered.filter(pc.is_valid(known))
    before = kept.take(known.drop_null())
    for name in EPISODES_SCHEMA.names:
        ours, theirs = before[name].to_pylist(), again[name].to_pylist()
        if ours != theirs:
            row = next(n for n, value in enumerate(ours) if value != theirs[n])
            raise PlanError(
                f"episode {again['episode_id'][row]} is in the plan with {name} {ours[row]}, in its"
                f" growth with {theirs[row]}; choose the same features, cameras and span maker"
            )
    new = renumbered.filter(pc.is_null(known))
    place = known.to_numpy(zero_copy_only=False).copy()
    place[np.isnan(place)] = np.arange(kept.num_rows, kept.num_rows + new.num_rows)
    return pa.concat_tables([kept, new]).combine_chunks(), place.astype(np.int32)


def _renumber_packs(
    grown: Plan, header: PlanHeader, parent: Plan, episode: Int32s, texts: tuple[str, ...]
) -> pa.Table:
    text = _numbers(texts, grown.texts["text"].to_pylist())
    packs = grown.packs.combine_chunks()
    for name, first in (
        ("pack", parent.packs.num_rows),
        ("epoch", header.epochs),
        ("step", header.num_steps),
    ):
        packs = _set(packs, name, packs[name].to_numpy() + first)
    for name, values in (
        ("span_id", lambda spans: spans + header.num_spans),
        ("episode", lambda spans: episode[spans]),
        ("text", lambda spans: text[spans]),
    ):
        lists = packs[name].combine_chunks()
        flat = values(lists.values.to_numpy())
        packs = _set(packs, name, pa.ListArray.from_arrays(lists.offsets, pa.array(flat)))
    return packs


def _texts(texts: tuple[str, ...], parent: Plan, grown: Plan) -> pa.Table:
    new = grown.texts.filter(
        pc.invert(pc.is_in(grown.texts["text"], value_set=parent.texts["text"].combine_chunks()))
    )
    joined = pa.concat_tables([parent.texts, new]).combine_chunks().cast(TEXTS_SCHEMA)
    assert joined["text"].to_pylist() == list(texts)
    return joined


def _larger(first: PackShape, second: PackShape) -> PackShape:
    return PackShape(
        **{f.name: max(getattr(first, f.name), getattr(second, f.name)) for f in fields(PackShape)}
    )


def _set(table: pa.Table, name: str, values: object) -> pa.Table:
    """The table with one column's values exchanged, of the same type."""
    field = table.schema.field(name)
    array = values if isinstance(values, pa.Array) else pa.array(values, field.type)
    return table.set_column(table.schema.get_field_index(name), field, array.cast(field.type))

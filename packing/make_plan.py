"""From a selection of episodes to a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.errors import CatalogError
from catalog.reader import Catalog
from catalog.selection import SELECTION_NAME, Selection, answer_selection, load_selection
from lake.store import Lake
from lake.visible import visible_episodes
from packing.arrange import arrange
from packing.cost import DEFAULT_COST, CostModel
from packing.draw import aligned_run, enough_open_runs, runs_of
from packing.errors import PlanError
from packing.layout import TokenLayout
from packing.measure import audit_spans, measure_quality
from packing.norm_stats import NormStats, merge_stats
from packing.pack_table import pack_shape, pack_table
from packing.plan import TEXTS_SCHEMA, Plan
from packing.plan_episodes import PlanEpisodes, read_plan_episodes
from packing.plan_header import PlanHeader, PlanSegment
from packing.settings import Packer, PlanSettings
from packing.span_makers import describe_spans
from packing.spans import Int64s, SpanLimits, SpanMaker, Spans
from packing.tokenizer import find_tokenizer
from packing.window_spans import WindowSpans

READ_TABLES: Final = ("commits", "trajectories", "episodes", "specs", "stats")
"""Tables that a plan is made from, and whose versions it pins."""


def make_plan(
    lake: Lake,
    episodes: Selection | Sequence[str] | str | None = None,
    *,
    spans: SpanMaker,
    layout: TokenLayout | None = None,
    budget_tokens: int,
    slots_per_step: int,
    epochs: int = 1,
    seed: int = 0,
    packer: Packer = "shuffle-fill",
    look_ahead: int = 1024,
    open_runs: int | None = None,
    run_length: int | None = None,
    balance_window_steps: int | None = None,
    cost: CostModel | None = None,
    d_model: int | None = None,
    max_images: int | None = None,
    max_action_queries: int | None = None,
    max_spans: int | None = None,
    state: Sequence[str] | None = None,
    action: Sequence[str] | None = None,
    cameras: Sequence[str] | None = None,
) -> Plan:
    """Plan what every training step consumes. Nothing is written: see `packing.plan_store`.

    Args:
        lake: the versions that it sees are pinned (`refresh` it for the newest), or those of the
            selection.
        episodes: a selection, episode ids, the name or hash of a selection, a condition over
            `episodes` (answered now, and kept when the plan is saved), or None for every episode.
        spans: `TrajectorySpans(...)` or `WindowSpans(...)`.
        layout: what costs tokens.
        budget_tokens: see `PlanSettings`, also for all arguments down to `max_spans`.
        slots_per_step: packs of a step over all ranks.
        epochs: passes, each freshly packed.
        seed: of every random choice.
        packer: `shuffle-fill` or `bfd`.
        look_ahead: of shuffle-fill.
        open_runs: runs drawn from at the same time; None takes enough for the size of a step.
        run_length: windows of a run; None aligns it to the distance of key frames.
        balance_window_steps: steps among which packs of like cost are gathered; None takes as
            many as are needed.
        cost: what a pack costs to compute, measured by `headrace bench cost` (`MeasuredCost`).
        d_model: width of a plain transformer in place of `cost`; 1024 where both are None.
        max_images: cap per pack.
        max_action_queries: cap per pack.
        max_spans: cap per pack.
        state: features fed as state, by role where None (see `packing.roles`).
        action: features fed as action, by role where None.
        cameras: cameras used, all but depth where None.

    Raises:
        PackingError: the plan cannot be made as asked; says why and what to change.
        CatalogError: the condition is not one.
    """
    layout = layout or TokenLayout()
    settings = PlanSettings(
        budget_tokens=budget_tokens,
        slots_per_step=slots_per_step,
        epochs=epochs,
        seed=seed,
        packer=packer,
        look_ahead=look_ahead,
        open_runs=open_runs,
        run_length=run_length,
        balance_window_steps=balance_window_steps,
        cost=_cost(cost, d_model),
        max_images=max_images,
        max_action_queries=max_action_queries,
        max_spans=max_spans,
    )
    return make_plan_with(
        settings,
        lake,
        episodes,
        spans=spans,
        layout=layout,
        state=state,
        action=action,
        cameras=cameras,
    )


def make_plan_with(
    settings: PlanSettings,
    lake: Lake,
    episodes: Selection | Sequence[str] | str | None = None,
    *,
    spans: SpanMaker,
    layout: TokenLayout,
    state: Sequence[str] | None = None,
    action: Sequence[str] | None = None,
    cameras: Sequence[str] | None = None,
) -> Plan:
    """As `make_plan`, with the settings in one."""
    tokenizer = find_tokenizer(layout.tokenizer)
    chosen = _choose(lake, episodes)
    pinned = lake.at(chosen.versions)
    source = read_plan_episodes(
        pinned,
        chosen.episode_ids,
        layout=layout,
        tokenizer=tokenizer,
        state=state,
        action=action,
        cameras=cameras,
    )
    limits = SpanLimits(
        tokens=settings.budget_tokens,
        images=settings.max_images,
        action_queries=settings.max_action_queries,
    )
    made = spans.make(source.steps, layout, limits)
    _require_spans(made.spans, source)
    settings, runs = _runs(made.spans, spans, settings, source.gop_steps)
    arrangement = arrange(made.spans, runs, settings)
    settings = arrangement.settings
    segment = PlanSegment(
        num_steps=len(arrangement.packing) // settings.slots_per_step,
        num_spans=len(made.spans),
        selection_hash=chosen.selection.hash if chosen.selection else None,
        span_maker=describe_spans(spans),
        settings=settings,
        certificate=arrangement.certificate,
        audit=audit_spans(
            made,
            source.steps,
            arrangement,
            settings.epochs,
            source.table["dataset"].to_numpy().astype(np.int64),
            source.datasets,
            pc.list_value_length(source.table["invalid_action_steps"]).to_numpy().astype(np.int64),
        ),
        quality=measure_quality(
            made.spans, runs, arrangement, settings, layout, len(source.cameras)
        ),
    )
    header = PlanHeader(
        versions=dict(chosen.versions),
        layout=layout,
        tokenizer_fingerprint=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        shape=pack_shape(made.spans, arrangement),
        datasets=source.datasets,
        embodiments=source.embodiments,
        cameras=source.cameras,
        specs=source.specs,
        stats=_stats(pinned, source),
        segments=(segment,),
    )
    return Plan(
        header=header,
        packs=pack_table(made.spans, arrangement, settings.slots_per_step),
        episodes=source.table,
        texts=pa.table(
            {"text": list(source.texts), "token_ids": [list(ids) for ids in source.token_ids]},
            schema=TEXTS_SCHEMA,
        ),
        selection=chosen.selection,
    ).sealed()


def _cost(cost: CostModel | None, d_model: int | None) -> CostModel:
    if d_model is None:
        return cost or DEFAULT_COST
    if cost is not None:
        raise PlanError("a cost model and d_model are both given; d_model only makes one of them")
    return CostModel.of_width(d_model)


@dataclass(frozen=True)
class _Chosen:
    episode_ids: Sequence[str]
    versions: Mapping[str, int]
    selection: Selection | None


def _choose(lake: Lake, episodes: Selection | Sequence[str] | str | None) -> _Chosen:
    if isinstance(episodes, str):
        episodes = _selection(lake, episodes)
    if isinstance(episodes, Selection):
        return _Chosen(episodes.episode_ids, episodes.versions, episodes)
    versions = {
        table: version for table, version in lake.versions().items() if table in READ_TABLES
    }
    ids = (
        visible_episodes(lake.at(versions))["episode_id"].to_pylist()
        if episodes is None
        else episodes
    )
    return _Chosen(list(ids), versions, None)


def _selection(lake: Lake, text: str) -> Selection:
    """The selection of this name or hash, else the answer to the text as a condition."""
    if not SELECTION_NAME.fullmatch(text):
        return _answer(lake, text)
    try:
        return load_selection(lake, text)
    except CatalogError as no_selection:
        try:
            return _answer(lake, text)
        except CatalogError as no_condition:
            raise PlanError(
                f"{text!r} names no selection ({no_selection}) and is no condition over episodes"
                f" ({no_condition})"
            ) from no_condition


def _answer(lake: Lake, condition: str) -> Selection:
    with Catalog(lake) as catalog:
        return answer_selection(catalog, condition)


def _require_spans(spans: Spans, source: PlanEpisodes) -> None:
    if not len(spans):
        raise PlanError(
            f"no span can be made of the {len(source.steps.episode_ids)} selected episodes: every"
            " step has an invalid state; choose another state feature or other episodes"
        )
    if int(spans.tokens.min()) == 0:
        episode = source.steps.episode_ids[spans.episode[int(spans.tokens.argmin())]]
        raise PlanError(
            f"a span of episode {episode} costs no token: the layout counts nothing that the"
            " episode has; give the layout state or action tokens"
        )


def _runs(
    spans: Spans, maker: SpanMaker, settings: PlanSettings, gop_steps: int
) -> tuple[PlanSettings, Int64s]:
    """Run of each span, and the settings with run length and open runs as they were chosen.

    Windows share decoded frames with their neighbours; a trajectory shares nothing, so each is a
    run of its own.
    """
    mean = float(spans.tokens.mean(dtype=np.float64))
    step = settings.slots_per_step * settings.budget_tokens / mean
    settings = replace(settings, open_runs=settings.open_runs or enough_open_runs(step))
    if not isinstance(maker, WindowSpans):
        return replace(settings, run_length=1), np.arange(len(spans))
    length = settings.run_length or aligned_run(max(1, round(gop_steps / maker.stride)))
    return replace(settings, run_length=length), runs_of(spans, length * maker.stride)


def _stats(lake: Lake, source: PlanEpisodes) -> tuple[NormStats, ...]:
    stats: list[NormStats] = []
    for number, spec in enumerate(source.specs):
        ids = source.table.filter(pc.equal(source.table["spec"], number))["episode_id"].to_pylist()
        features = list(dict.fromkeys(spec.state + spec.action))
        stats += merge_stats(lake, spec.spec_id, features, ids)
    return tuple(stats)

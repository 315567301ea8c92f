"""From a selection of episodes to a plan."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from catalog.selection import Selection
from lake.store import Lake
from packing.arrange import Arrangement, arrange
from packing.cost import DEFAULT_COST, CostModel
from packing.count_spans import Tally, audit_shares, audit_spans
from packing.draw import enough_open_runs
from packing.errors import PlanError
from packing.gop_steps import read_groups
from packing.known_layouts import choose_prompt
from packing.layout import TokenLayout
from packing.measure import measure_quality
from packing.mix_sources import choose_mixed, find_sources, load_mixed_selections, mix
from packing.mixture import Mixture
from packing.norm_stats import NormStats, merge_stats
from packing.occurrences import draw_occurrences
from packing.pack_table import pack_shape, pack_table, runs_table
from packing.plan import Plan
from packing.plan_episodes import PlanEpisodes, list_masked_states, read_plan_episodes
from packing.plan_header import PlanHeader, PlanSegment
from packing.runs import RUN_LENGTH, cut_runs, runs_of
from packing.settings import Packer, PlanSettings
from packing.span_makers import describe_spans
from packing.spans import Int64s, SpanLimits, SpanMaker, Spans, SpanSet
from packing.storage.model import with_storage
from packing.tokenizer import Tokenizer
from packing.window_spans import WindowSpans


def make_plan(
    lake: Lake,
    episodes: Selection | Sequence[str] | str | None = None,
    *,
    spans: SpanMaker,
    layout: TokenLayout | str | None = None,
    tokenizer: Tokenizer | str | Path | None = None,
    budget_tokens: int,
    slots_per_step: int,
    epochs: int = 1,
    seed: int = 0,
    packer: Packer = "shuffle-fill",
    look_ahead: int = 1024,
    open_runs: int | None = None,
    run_length: int | None = None,
    lanes: int | None = None,
    balance_window_steps: int | None = None,
    cost: CostModel | None = None,
    d_model: int | None = None,
    max_images: int | None = None,
    max_action_queries: int | None = None,
    max_spans: int | None = None,
    mixture: Mixture | None = None,
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
        layout: what costs tokens: a layout, or the name or JSON file of one
            (`packing.known_layouts`).
        tokenizer: of the texts: a tokenizer, the file of one, or None for that of the layout.
        budget_tokens: see `PlanSettings`, also for all arguments down to `max_spans`.
        slots_per_step: packs of a step over all ranks.
        epochs: passes, each freshly packed.
        seed: of every random choice.
        packer: `shuffle-fill` or `bfd`.
        look_ahead: of shuffle-fill.
        open_runs: of windows, runs drawn from at the same time; None takes enough for the size of
            a step.
        run_length: windows of a run, about: whole groups of pictures (`packing.runs`); None: 8.
        lanes: parts of the stream that keep to their slots; None takes as many as are worth it.
        balance_window_steps: steps among which packs of like cost are gathered; None takes as
            many as are needed.
        cost: what a pack costs to compute, measured by `headrace bench cost` (`MeasuredCost`).
        d_model: width of a plain transformer in place of `cost`; 1024 where both are None.
        max_images: cap per pack.
        max_action_queries: cap per pack.
        max_spans: cap per pack.
        mixture: how many tokens of an epoch each dataset, embodiment or selection gives; None has
            every span once per epoch. Statistics are those of the episodes all the same, each once.
        state: features fed as state, by role where None (see `packing.roles`).
        action: features fed as action, by role where None.
        cameras: cameras used, in the order in which a prompt shows them; all but depth, by name,
            where None.

    Raises:
        PackingError: the plan cannot be made as asked; says why and what to change.
        CatalogError: the condition is not one.
    """
    if not isinstance(spans, WindowSpans) and (open_runs is not None or run_length is not None):
        raise PlanError(
            "open_runs and run_length are of windows, whose neighbours share frames; trajectories"
            " are drawn one by one: leave both out"
        )
    settings = PlanSettings(
        budget_tokens=budget_tokens,
        slots_per_step=slots_per_step,
        epochs=epochs,
        seed=seed,
        packer=packer,
        look_ahead=look_ahead,
        open_runs=open_runs,
        run_length=run_length,
        lanes=lanes,
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
        layout=TokenLayout() if layout is None else layout,
        tokenizer=tokenizer,
        mixture=mixture,
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
    layout: TokenLayout | str,
    tokenizer: Tokenizer | str | Path | None = None,
    mixture: Mixture | None = None,
    state: Sequence[str] | None = None,
    action: Sequence[str] | None = None,
    cameras: Sequence[str] | None = None,
) -> Plan:
    """As `make_plan`, with the settings in one."""
    prompt = choose_prompt(layout, tokenizer)
    layout = prompt.layout
    _require_one_state(spans, layout)
    selections = load_mixed_selections(lake, mixture) if mixture else ()
    chosen = choose_mixed(lake, mixture, selections, episodes)
    pinned = lake.at(chosen.versions)
    source = read_plan_episodes(
        pinned,
        chosen.episode_ids,
        prompt=prompt,
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
    _require_spans(made, source)
    prompt.require_frames(int(made.spans.images.max()))
    settings, runs = _runs(pinned, made.spans, spans, settings, source)
    mixed = find_sources(mixture, source, selections) if mixture else None
    run_table = runs_table(made.spans, runs, mixed.of_episode if mixed else None)
    planned = mix(mixture, mixed, run_table) if mixture and mixed else None
    drawn = draw_occurrences(run_table, planned, settings.seed) if planned else None
    arrangement = arrange(made.spans, runs, settings, drawn.counts if drawn else None)
    settings = arrangement.settings
    dataset = source.table["dataset"].to_numpy().astype(np.int64)
    segment = PlanSegment(
        num_steps=len(arrangement.packing) // settings.slots_per_step,
        num_spans=len(made.spans),
        selection_hash=chosen.selection.hash if chosen.selection else None,
        span_maker=describe_spans(spans),
        settings=settings,
        mixture=planned,
        certificate=arrangement.certificate,
        audit=audit_spans(
            made,
            source.steps,
            _tally(made.spans, arrangement, dataset, len(source.datasets)),
            dataset,
            source.datasets,
            pc.list_value_length(source.table["invalid_action_steps"]).to_numpy().astype(np.int64),
            mixed=planned is not None,
        ),
        shares=audit_shares(
            planned,
            _tally(made.spans, arrangement, mixed.of_episode, len(mixed.names)),
            settings.epochs,
        )
        if planned and mixed
        else (),
        quality=measure_quality(
            made.spans,
            runs,
            arrangement,
            settings,
            layout,
            len(source.cameras),
            source.unused_text,
        ),
    )
    header = PlanHeader(
        versions=dict(chosen.versions),
        layout=layout,
        tokenizer_fingerprint=prompt.tokenizer.fingerprint,
        vocab_size=prompt.vocab_size,
        prompt_ids=prompt.ids,
        shape=pack_shape(made.spans, arrangement),
        datasets=source.datasets,
        embodiments=source.embodiments,
        cameras=source.cameras,
        specs=source.specs,
        stats=_stats(pinned, source),
        segments=(segment,),
    )
    plan = Plan(
        header=header,
        packs=pack_table(made.spans, arrangement, settings.slots_per_step),
        episodes=list_masked_states(source.table, source.steps, made.masked),
        runs=run_table,
        texts=source.texts,
        selection=chosen.selection,
    ).sealed()
    return with_storage(pinned, plan)


def _require_one_state(spans: SpanMaker, layout: TokenLayout) -> None:
    if layout.prompt.writes_state and not isinstance(spans, WindowSpans):
        raise PlanError(
            f"layout {layout.name} writes one state into the text, and a trajectory has a state per"
            " step; use windows, or a layout with state_tokens"
        )


def _tally(spans: Spans, arrangement: Arrangement, owner: Int64s, groups: int) -> Tally:
    """Occurrences of spans by the owner of their episode."""
    return Tally.of(
        arrangement.packing.items,
        arrangement.epoch_bounds(),
        owner[spans.episode],
        groups,
        spans.tokens.astype(np.int64),
    )


def _cost(cost: CostModel | None, d_model: int | None) -> CostModel:
    if d_model is None:
        return cost or DEFAULT_COST
    if cost is not None:
        raise PlanError("a cost model and d_model are both given; d_model only makes one of them")
    return CostModel.of_width(d_model)


def _require_spans(made: SpanSet, source: PlanEpisodes) -> None:
    spans = made.spans
    if not len(spans):
        refused = ", ".join(f"{reason} {counts.sum()}" for reason, counts in made.refused.items())
        raise PlanError(
            f"no span can be made of the {len(source.steps.episode_ids)} selected episodes"
            f" (refused: {refused}); choose another state feature, other spans or other episodes"
        )
    if int(spans.tokens.min()) == 0:
        episode = source.steps.episode_ids[spans.episode[int(spans.tokens.argmin())]]
        raise PlanError(
            f"a span of episode {episode} costs no token: the layout counts nothing that the"
            " episode has; give the layout state or action tokens"
        )


def _runs(
    lake: Lake, spans: Spans, maker: SpanMaker, settings: PlanSettings, source: PlanEpisodes
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
    settings = replace(settings, run_length=settings.run_length or RUN_LENGTH)
    offsets = source.steps.step_offsets
    groups = read_groups(lake, source.rows, source.cameras, offsets)
    begins = cut_runs(groups, offsets, (settings.run_length or 1) * maker.stride)
    return settings, runs_of(spans, begins, offsets)


def _stats(lake: Lake, source: PlanEpisodes) -> tuple[NormStats, ...]:
    stats: list[NormStats] = []
    for number, spec in enumerate(source.specs):
        ids = source.table.filter(pc.equal(source.table["spec"], number))["episode_id"].to_pylist()
        features = list(dict.fromkeys(spec.state + spec.action))
        stats += merge_stats(lake, spec.spec_id, features, ids)
    return tuple(stats)

"""`headrace pack`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lake.errors import HeadraceError
from tools.commands import pack_mixture as mix
from tools.commands.lake_options import StorageOptions, storage_options

if TYPE_CHECKING:
    from packing.cost import CostModel
    from packing.plan import Plan
    from packing.spans import SpanMaker

_PADDING_WORTH_ADVICE = 0.01


class PackOptionError(HeadraceError):
    """Options of `headrace pack` that do not go together."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("pack")(pack)


def pack(
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake.")],
    episodes: Annotated[
        str | None,
        typer.Argument(
            metavar="EPISODES",
            help="A selection's name, or a condition over episodes; none takes every episode.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the plan.")] = None,
    spans: Annotated[
        Literal["window", "trajectory"], typer.Option(help="What is packed.")
    ] = "window",
    horizon: Annotated[
        int | None,
        typer.Option(min=1, help="Window: action steps. [default: the layout's, else 16]"),
    ] = None,
    history: Annotated[
        int | None, typer.Option(min=1, help="Window: observed steps. [default: 1]")
    ] = None,
    stride: Annotated[
        int | None, typer.Option(min=1, help="Window: steps from one to the next. [default: 1]")
    ] = None,
    history_stride: Annotated[
        int | None, typer.Option(min=1, help="Window: steps between observations. [default: 1]")
    ] = None,
    tail: Annotated[
        Literal["short", "drop", "pad"] | None,
        typer.Option(
            help="Window past its episode's end: acts on fewer steps, is dropped, or has queries"
            " without weight. [default: short]"
        ),
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(min=1, help="Trajectory: split above. [default: what fits into a pack]"),
    ] = None,
    observe_every: Annotated[
        int | None, typer.Option(min=1, help="Trajectory: observe each N-th step. [default: 1]")
    ] = None,
    split: Annotated[
        Literal["full", "even", "refuse"] | None,
        typer.Option(
            help="Trajectory: longest pieces and a rest, equal ones, or an error instead."
            " [default: full]"
        ),
    ] = None,
    across_gaps: Annotated[
        bool | None,
        typer.Option(
            "--across-gaps", help="Trajectory: cross invalid states, masked, not split there."
        ),
    ] = None,
    budget_tokens: Annotated[int, typer.Option(help="Tokens of a pack, a multiple of 128.")] = 8192,
    slots: Annotated[
        int, typer.Option(help="Packs of a training step over all ranks: the most ranks.")
    ] = 8,
    epochs: Annotated[int, typer.Option(help="Passes, each freshly packed.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    packer: Annotated[
        Literal["shuffle-fill", "bfd"],
        typer.Option(help="bfd is tighter, and gathers spans of like length."),
    ] = "shuffle-fill",
    look_ahead: Annotated[
        int, typer.Option(help="shuffle-fill: spans from which a pack is closed.")
    ] = 1024,
    open_runs: Annotated[
        int | None,
        typer.Option(
            help="Window: runs drawn from at once, more is better shuffled. [default: 256, or twice"
            " the spans of a step]"
        ),
    ] = None,
    run_length: Annotated[
        int | None,
        typer.Option(help="Window: about how many are a run, cut at key frames. [default: 8]"),
    ] = None,
    lanes: Annotated[
        int | None,
        typer.Option(
            help="Parts of the stream that keep to their slots, so that one rank decodes a run; a"
            " divisor of --slots. [default: as many as the data fills]"
        ),
    ] = None,
    balance_window_steps: Annotated[
        int | None,
        typer.Option(
            help="Steps among which packs of like cost are gathered. [default: what 2 % needs]"
        ),
    ] = None,
    cost: Annotated[
        Path | None,
        typer.Option(help="Measured cost of packs: the file of `headrace bench cost --out`."),
    ] = None,
    d_model: Annotated[
        int | None,
        typer.Option(help="Width of a plain transformer in place of --cost. [default: 1024]"),
    ] = None,
    max_images: Annotated[int | None, typer.Option(help="Cap on images of a pack.")] = None,
    max_action_queries: Annotated[
        int | None, typer.Option(help="Cap on action tokens of a pack.")
    ] = None,
    max_spans: Annotated[int | None, typer.Option(help="Cap on spans of a pack.")] = None,
    mixture: mix.MixtureFile = None,
    mix_over: mix.MixOver = None,
    mix_selection: mix.MixSelection = None,
    weight: mix.Weight = None,
    temperature: mix.Temperature = None,
    epoch_tokens: mix.EpochTokens = None,
    max_repeats: mix.MaxRepeats = None,
    min_share: mix.MinShare = None,
    max_share: mix.MaxShare = None,
    per: mix.Per = None,
    layout: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="Token layout: a name that `headrace plan layouts` lists, or a JSON file.",
        ),
    ] = "compact",
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Tokenizer of the texts: a tokenizer.json, a SentencePiece .model, or utf8-bytes."
            " [default: the layout's]",
        ),
    ] = None,
    image_tokens: Annotated[
        int | None, typer.Option(help="Tokens of an image. [default: the layout's]")
    ] = None,
    state_tokens: Annotated[
        int | None, typer.Option(help="Tokens of a state. [default: the layout's]")
    ] = None,
    action_tokens: Annotated[
        int | None, typer.Option(help="Tokens of an action step. [default: the layout's]")
    ] = None,
    extra_tokens: Annotated[
        int | None, typer.Option(help="Further tokens of a span. [default: the layout's]")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(help="Feature fed as state, a+b to concatenate; repeat for alternatives."),
    ] = None,
    action: Annotated[
        list[str] | None, typer.Option(help="Feature fed as action, in the same way.")
    ] = None,
    camera: Annotated[
        list[str] | None,
        typer.Option(help="Camera to use; repeat, in a prompt's order. [default: all but depth]"),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Also draw the plan into this file (png, svg, pdf).")
    ] = None,
    materialize: Annotated[
        bool,
        typer.Option(
            "--materialize",
            help="Also write each pack as one row (`headrace plan materialize` has more options).",
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="With --materialize: processes that write. [default: 1]"),
    ] = None,
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Plan what every training step consumes.

    The plan is saved in the lake. Printed are padding with its certificate, balance, shuffle
    quality, savings and the audit. Every span occurs once per epoch, unless a mixture is asked
    for (--mixture, --mix-over, --weight and the options after it).

    Example: headrace pack robots.lake "success and num_steps > 30" --name mix --horizon 16

    Example: headrace pack robots.lake --weight droid=0.7 --weight bridge=0.3 --epoch-tokens 1e9
    """
    from rich.console import Console

    from lake import open_lake
    from loader.materialized.settings import MaterializedSettings
    from packing.make_plan import make_plan
    from packing.plan_picture import draw_plan
    from packing.plan_store import save_plan
    from tools.commands.pack_layout import chosen_layout, long_texts_note, untold_note
    from tools.commands.plan_materialize import print_report, report_document, write_packs
    from tools.commands.plan_report import print_plan, print_plan_json

    chosen = chosen_layout(
        layout,
        {
            "image_tokens": image_tokens,
            "state_tokens": state_tokens,
            "action_tokens": action_tokens,
            "extra_tokens": extra_tokens,
        },
    )
    window = {
        "horizon": horizon,
        "history": history,
        "stride": stride,
        "history_stride": history_stride,
        "tail": tail,
    }
    trajectory = {
        "max_steps": max_steps,
        "observe_every": observe_every,
        "split": split,
        "across_gaps": across_gaps,
    }
    maker = _span_maker(spans, window, trajectory, horizon=chosen.padded.horizon or 16)
    mixture_asked = mix.chosen_mixture(
        file=mixture,
        over=mix_over,
        selections=mix_selection,
        weights=weight,
        temperature=temperature,
        epoch_tokens=epoch_tokens,
        max_repeats=max_repeats,
        min_share=min_share,
        max_share=max_share,
        per=per,
        episodes=episodes,
    )
    if workers is not None and not materialize:
        raise PackOptionError("--workers: processes that write packs; add --materialize")
    opened = open_lake(lake, storage_options=storage_options(store))
    with Console(stderr=True).status("planning"):
        plan = make_plan(
            opened,
            episodes,
            spans=maker,
            layout=chosen,
            tokenizer=tokenizer,
            budget_tokens=budget_tokens,
            slots_per_step=slots,
            epochs=epochs,
            seed=seed,
            packer=packer,
            look_ahead=look_ahead,
            open_runs=open_runs,
            run_length=run_length,
            lanes=lanes,
            balance_window_steps=balance_window_steps,
            cost=_cost(cost, d_model),
            d_model=d_model,
            max_images=max_images,
            max_action_queries=max_action_queries,
            max_spans=max_spans,
            mixture=mixture_asked,
            state=_alternatives(state),
            action=_alternatives(action),
            cameras=camera,
        )
        if picture is not None:
            draw_plan(plan, picture)  # first: a picture that fails leaves no plan behind
        entry = save_plan(opened, plan, name)
    written = None
    if materialize:
        written = write_packs(
            opened, plan, MaterializedSettings(), 1 if workers is None else workers
        )
    if as_json:
        more = {} if written is None else {"materialized": report_document(written)}
        print_plan_json(entry, plan.header, **more)
        return
    print_plan(entry, plan.header)
    if written is not None:
        print_report(written, lake, entry.name)
    for note in (untold_note(plan), long_texts_note(plan)):
        if note is not None:
            typer.echo(note)
    _advise(plan)


def _span_maker(
    kind: str, window: dict[str, Any], trajectory: dict[str, Any], *, horizon: int
) -> "SpanMaker":
    from packing.trajectory_spans import TrajectorySpans
    from packing.window_spans import WindowSpans

    ours, others = (window, trajectory) if kind == "window" else (trajectory, window)
    foreign = [f"--{name.replace('_', '-')}" for name, value in others.items() if value is not None]
    if foreign:
        raise PackOptionError(f"{', '.join(foreign)}: not an option of --spans {kind}")
    given: dict[str, Any] = {name: value for name, value in ours.items() if value is not None}
    if kind == "window":
        return WindowSpans(**{"horizon": horizon, **given})
    return TrajectorySpans(**given)


def _cost(file: Path | None, d_model: int | None) -> "CostModel | None":
    from packing.cost import MeasuredCost

    if file is None:
        return None
    if d_model is not None:
        raise PackOptionError("--cost and --d-model: the file says what a pack costs; give one")
    return MeasuredCost.read(file).cost


def _alternatives(values: list[str] | None) -> list[str] | None:
    """Repeated options and comma-separated ones mean the same."""
    if not values:
        return None
    return [entry for value in values for entry in value.split(",") if entry]


def _advise(plan: "Plan") -> None:
    """Say what to do about padding that another budget would avoid."""
    from packing.budgets import suggest_budgets
    from packing.planned_spans import PlannedSpans

    header = plan.header
    rows = header.num_steps * header.slots_per_step
    filled = rows - header.quality.empty_slots
    padding = 1.0 - (1.0 - header.quality.padding) * rows / filled
    if padding > _PADDING_WORTH_ADVICE and header.certificate.packs > 1:
        planned = PlannedSpans.of(plan)
        tokens = planned.spans.tokens[planned.packing.items]
        best = suggest_budgets(tokens, header.budget_tokens, seed=header.seed)
        others = [s for s in best if s.budget_tokens != header.budget_tokens]
        better = [s for s in others if s.padding < padding / 2]
        if better:
            budgets = ", ".join(f"{s.budget_tokens} ({s.padding:.2%})" for s in better)
            typer.echo(f"packs pad {padding:.2%}; --budget-tokens that fit these spans: {budgets}")
    if header.quality.empty_slots > filled // 10:
        typer.echo(
            f"{header.quality.empty_slots} of {rows} slots are empty, since an epoch ends in the"
            " middle of a step; fewer --slots or a smaller --budget-tokens waste less"
        )

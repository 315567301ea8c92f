"""Print what a plan is and how good it is: for people, or as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict

import typer
from rich.console import Console
from rich.table import Table

from packing.audit import SourceShare
from packing.layout import TokenLayout
from packing.mixture import PlannedMixture
from packing.plan_header import PlanHeader
from packing.plan_store import PlanEntry
from tools.commands.segment_report import segment_table
from tools.commands.storage_report import storage_table


def print_plan_json(entry: PlanEntry, header: PlanHeader, **more: object) -> None:
    """The header as one JSON object, with totals and the newest segment's fields, and `more`."""
    document = {
        "name": entry.name,
        "location": entry.location,
        **asdict(header.newest),
        **asdict(header),
        "num_steps": header.num_steps,
        "num_spans": header.num_spans,
        "epochs": header.epochs,
        "packs_over_bound": header.certificate.packs_over_bound,
        "storage": [use.to_dict() for use in header.quality.storage],
        **more,
    }
    typer.echo(json.dumps(document, ensure_ascii=False))


def print_plan(entry: PlanEntry, header: PlanHeader) -> None:
    """Tables for people: size, quality, audit."""
    console = Console(highlight=False)
    console.print(_facts(entry, header))
    if len(header.segments) > 1:
        console.print(segment_table(header))
    console.print(_quality(header))
    if header.quality.storage:
        console.print(storage_table(header.quality.storage))
    if header.mixture is not None:
        console.print(_mixture(header.mixture, header.shares))
    console.print(_audit(header))


def _facts(entry: PlanEntry, header: PlanHeader) -> Table:
    settings, layout, shape = header.settings, header.layout, header.shape
    maker = ", ".join(
        f"{k} {v}" for k, v in sorted(header.span_maker.items()) if k != "kind" and v is not None
    )
    caps = ", ".join(
        f"{name[4:]} {value}"
        for name in ("max_images", "max_action_queries", "max_spans")
        if (value := getattr(settings, name)) is not None
    )
    grid = Table(title=f"plan {entry.name}", title_justify="left", show_header=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in (
        ("hash", header.plan_hash),
        ("spans", f"{header.num_spans:,} {header.span_maker['kind']} spans ({maker})"),
        (
            "steps",
            (
                f"{header.num_steps:,} in {header.epochs} epochs, {header.slots_per_step} packs"
                f" each: any world size from 1 to {header.slots_per_step}"
            ),
        ),
        ("pack", f"{header.budget_tokens} tokens" + (f"; caps: {caps}" if caps else "")),
        (
            "fullest",
            (
                f"{shape.spans} spans, {shape.images} images, {shape.action_queries} action"
                f" queries; longest span {shape.span_tokens} tokens"
            ),
        ),
        (
            "layout",
            (
                f"{layout.name}: image {layout.image_tokens}, state {layout.state_tokens}, action"
                f" {layout.action_tokens}, extra {layout.extra_tokens}, text by {layout.tokenizer}"
            ),
        ),
        ("cameras", ", ".join(header.cameras) or "none"),
        (
            "features",
            "; ".join(
                f"state {'+'.join(s.state) or 'none'}[{s.state_size}], action"
                f" {'+'.join(s.action) or 'none'}[{s.action_size}]"
                for s in header.specs
            ),
        ),
        (
            "packer",
            (
                f"{settings.packer}, look-ahead {settings.look_ahead}, {settings.open_runs} open"
                f" runs of about {settings.run_length} in {settings.lanes} lanes, balanced over"
                f" {settings.balance_window_steps} steps by {settings.cost}, seed {settings.seed}"
            ),
        ),
        ("lake versions", ", ".join(f"{t} {v}" for t, v in sorted(header.versions.items()))),
    ):
        grid.add_row(name, str(value))
    return grid


def _quality(header: PlanHeader) -> Table:
    quality, certificate = header.quality, header.certificate
    grid = Table(title="how good", title_justify="left", show_header=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    balance = ", ".join(f"{w}: {v:.3f}" for w, v in quality.max_over_mean.items())
    shuffle = ", ".join(f"Q{k} {v:.2f}" for k, v in quality.shuffle.items()) or "too few steps"
    bounds = ", ".join(f"{name} {bound}" for name, bound in certificate.bounds.items())
    for row in (
        (
            "padding",
            f"{quality.padding:.3%}",
            f"{quality.empty_slots} empty slots included"
            + (
                f"; about {quality.state_text_padding:.2%} more where states are shorter text than"
                " the longest"
                if quality.state_text_padding
                else ""
            ),
        ),
        (
            "certificate",
            f"{certificate.packs_over_bound:.4f}",
            (
                f"{certificate.packs} packs an epoch, no plan has fewer than {certificate.bound}"
                f" (bounds: {bounds})"
            ),
        ),
        (
            "balance",
            f"{list(quality.max_over_mean.values())[-1]:.3f}",
            f"costliest over mean rank by world size: {balance}",
        ),
        (
            "shuffle",
            f"{quality.shuffle.get(1, 1.0):.2f}",
            (
                f"variety of episodes in k steps over a global shuffle's: {shuffle};"
                f" {quality.near_duplicates:.1%} of spans have a near-duplicate in their step"
            ),
        ),
        (
            "length bias",
            f"{quality.bias_over_random:.2f}",
            "variance of packs' mean span length over random packs",
        ),
        (
            "tokens saved",
            f"{1 - quality.tokens_over_padded:.1%}",
            f"against rows padded {_padding_of(header.layout)}",
        ),
        (
            "images saved",
            f"{1 - quality.images_over_padded:.1%}",
            "pixels neither read nor decoded, against the same padded rows",
        ),
        (
            "reads saved",
            f"{1 - quality.reads_per_span:.1%}",
            (
                "spans that share the read of their episode with another span of the step;"
                f" a run is used within {quality.run_steps} steps"
            ),
        ),
    ):
        grid.add_row(*row)
    return grid


def _mixture(mixture: PlannedMixture, shares: Sequence[SourceShare]) -> Table:
    asked = mixture.asked
    rules = [
        f"of {asked.over}s, {'each span alike' if asked.per == 'step' else 'each episode alike'}",
        "weights" if asked.weights is not None else f"temperature {asked.temperature or 1:g}",
        f"{sum(source.epoch_tokens for source in mixture.sources)} tokens an epoch",
    ]
    if asked.max_repeats is not None:
        rules.append(f"at most {asked.max_repeats} times an epoch")
    rules += [
        f"{name} "
        + ", ".join(
            f"{source.replace('*', 'others')} {share:g}" for source, share in limits.items()
        )
        for name, limits in (("min share", asked.min_share), ("max share", asked.max_share))
        if limits
    ]
    grid = Table(title=f"mixture {'; '.join(rules)}", title_justify="left")
    grid.add_column(asked.over, overflow="fold")
    for name in ("spans", "weight", "asked", "got", "repeats", "omitted", "most"):
        grid.add_column(name, justify="right", no_wrap=True)
    for share in shares:
        # On a line of its own, for 80 columns to have room for the name.
        omitted = str(share.omitted) + (f"\n{share.never} never" if share.never else "")
        grid.add_row(
            share.source,
            str(share.spans),
            f"{share.wished_share:.2%}",
            f"{share.asked_share:.2%}",
            f"{share.got_share:.2%}",
            str(share.repeated),
            omitted,
            str(share.most_in_epoch),
        )
    return grid


def _padding_of(layout: TokenLayout) -> str:
    """What the padded rows are that a plan is measured against."""
    padded = layout.padded
    sizes = (
        f"{padded.cameras} cameras" if padded.cameras else "all cameras",
        f"{padded.text_tokens} text tokens" if padded.text_tokens else "the longest text",
        f"{padded.horizon} action steps" if padded.horizon else "the full horizon",
    )
    return f"as {layout.name} pads them: {', '.join(sizes)} (or more where a span needs more)"


def _audit(header: PlanHeader) -> Table:
    grid = Table(title="audit", title_justify="left")
    grid.add_column("dataset", overflow="fold")
    for name in ("episodes", "steps", "spans", "tokens", "planned"):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("repeated, left out, changed", overflow="fold")
    for source in header.audit:
        notes = [
            f"{count:,} {what}"
            for what, count in (
                ("repeated", source.repeated),
                ("omitted", source.omitted),
                ("dropped", source.dropped),
                ("cut", source.cut),
                ("action steps left out of the loss", source.unscored),
                ("invalid states crossed", source.masked),
                ("further pieces of split episodes", source.split),
                *((f"refused: {reason}", count) for reason, count in source.refused.items()),
            )
            if count
        ]
        counts = (source.episodes, source.steps, source.spans, source.tokens, source.planned)
        numbers = [f"{number:,}" for number in counts]
        grid.add_row(source.dataset, *numbers, ", ".join(notes) or "nothing")
    return grid

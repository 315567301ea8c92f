"""A plan at a glance: fill, balance, shares of the datasets, length bias, shuffle and storage."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from packing.balance import pack_costs
from packing.packs import Packing
from packing.picture_file import new_figure, write_figure
from packing.plan import Plan
from packing.planned_spans import PlannedSpans
from packing.seeded import STREAM_REFERENCE, permutation
from packing.spans import Spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAME: Final = 30  # characters of a name that are drawn


def draw_plan(plan: Plan, path: Path) -> None:
    """Write a picture of the plan; the suffix of `path` decides the format (png, svg, pdf).

    Raises:
        PackingError: matplotlib is not installed, or the file cannot be written.
    """
    planned = PlannedSpans.of(plan)
    spans, packing = planned.spans, planned.packing
    figure = new_figure(15, 7.5)
    (fill, cost, share), (bias, shuffle, storage) = figure.subplots(2, 3)
    _draw_fill(fill, plan, spans, packing)
    _draw_balance(cost, plan, spans, packing)
    _draw_shares(share, plan)
    _draw_bias(bias, plan, spans, packing)
    _draw_shuffle(shuffle, plan)
    _draw_storage(storage, plan)
    header = plan.header
    figure.suptitle(
        f"plan {header.plan_hash[:12]}: {header.num_spans} {header.span_maker['kind']} spans,"
        f" {header.epochs} epochs, {header.num_steps} steps of {header.slots_per_step} packs of"
        f" {header.budget_tokens} tokens"
    )
    write_figure(figure, path)


def _draw_fill(axes: "Axes", plan: Plan, spans: Spans, packing: Packing) -> None:
    fill = packing.sum(spans.tokens)[packing.sizes > 0] / plan.header.budget_tokens
    axes.hist(fill * 100, bins=50, color="tab:blue")
    axes.set_yscale("log")
    axes.set_title(
        f"Fill of packs: padding {plan.header.quality.padding:.2%},"
        f" packs / bound {plan.header.certificate.packs_over_bound:.4f}"
    )
    axes.set_xlabel("tokens of the budget used, %")
    axes.set_ylabel("packs")


def _draw_balance(axes: "Axes", plan: Plan, spans: Spans, packing: Packing) -> None:
    slots = plan.header.slots_per_step
    cost = pack_costs(packing, spans, plan.header.settings.cost).reshape(-1, slots)
    mean = np.sort(cost.mean(axis=1))[::-1]
    top = cost.max(axis=1)[np.argsort(-cost.mean(axis=1), kind="stable")]
    unit = max(float(mean.mean()), 1.0)
    axes.plot(top / unit, label="costliest pack", color="tab:red", linewidth=1)
    axes.plot(mean / unit, label="mean pack", color="tab:blue", linewidth=1)
    ratio = plan.header.quality.max_over_mean.get(slots, 1.0)
    axes.set_title(f"Balance: max / mean over {slots} ranks {ratio:.4f}")
    axes.set_xlabel("steps, costliest first")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("cost, mean = 1")
    axes.legend()


def _draw_shares(axes: "Axes", plan: Plan) -> None:
    header = plan.header
    recorded = {source.dataset: source.tokens for source in header.audit}
    over = "dataset"
    if header.mixture is not None:
        over = header.mixture.asked.over
        recorded = {share.source: share.tokens for share in header.shares}
    names, total = list(recorded), max(1, sum(recorded.values()))
    shares = [100 * tokens / total for tokens in recorded.values()]
    rows = np.arange(len(names))
    if header.mixture is not None:
        axes.barh(rows, shares, 0.7, color="0.8", label="recorded")
        shares = [100 * share.got_share for share in header.shares]
        axes.barh(rows, shares, 0.4, color="tab:green", label="planned")
        axes.legend()
    else:
        axes.barh(rows, shares, 0.5, color="tab:green")
    size = min(10.0, 200 / max(1, len(names)))  # points: the axes are about 200 high
    axes.set_yticks(rows, [_short(name) for name in names], fontsize=size)
    axes.set_ylim(-0.75, len(names) - 0.25)
    axes.set_title(f"Tokens by {over}: {header.quality.tokens_over_padded:.1%} of padded rows")
    axes.set_xlabel("share of all tokens, %")


def _short(name: str) -> str:
    """Begin and end of a name that would leave its axes no room."""
    return name if len(name) <= _NAME else f"{name[: _NAME // 2 - 1]}\u2026{name[-_NAME // 2 :]}"


def _draw_bias(axes: "Axes", plan: Plan, spans: Spans, packing: Packing) -> None:
    sizes = packing.sizes[packing.sizes > 0]
    ours = packing.sum(spans.tokens)[packing.sizes > 0] / sizes
    shuffled = packing.items[permutation(len(packing.items), plan.header.seed, STREAM_REFERENCE)]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    random = np.add.reduceat(spans.tokens[shuffled].astype(np.int64), starts) / sizes
    bins = np.linspace(min(ours.min(), random.min()), max(ours.max(), random.max()) + 1e-9, 50)
    axes.hist(random, bins=bins.tolist(), color="0.7", label="filled at random")
    axes.hist(ours, bins=bins.tolist(), histtype="step", color="tab:blue", label="this plan")
    axes.set_title(f"Length bias: variance over random {plan.header.quality.bias_over_random:.2f}")
    axes.set_xlabel("mean span length of a pack, tokens")
    axes.set_ylabel("packs")
    axes.legend()


def _draw_shuffle(axes: "Axes", plan: Plan) -> None:
    quality = plan.header.quality
    names = [str(k) for k in quality.shuffle]
    axes.bar(names, list(quality.shuffle.values()), 0.5, color="tab:purple")
    axes.axhline(1.0, color="0.5", linewidth=1)
    axes.set_title(f"Shuffle: {quality.near_duplicates:.1%} of spans have a near-duplicate")
    axes.set_xlabel("steps taken together")
    axes.set_ylabel("variety of episodes, global shuffle = 1")


def _draw_storage(axes: "Axes", plan: Plan) -> None:
    uses = plan.header.quality.storage
    video = [use.video_bytes * use.world_size / 1e6 for use in uses]
    other = [use.bytes_per_step / 1e6 - size for use, size in zip(uses, video, strict=True)]
    names = [
        f"ranks: {use.world_size}\n{use.requests_per_step:,.0f} requests\n"
        f"{use.decoded_over_shown:.2f} frames decoded\nper picture"
        for use in uses
    ]
    axes.bar(names, video, 0.5, color="tab:green", label="video")
    axes.bar(names, other, 0.5, bottom=video, color="tab:orange", label="signals and indexes")
    axes.set_title("Storage: read in a step by all ranks")
    axes.set_ylabel("MB")
    if uses:
        axes.margins(y=0.3)  # room for the legend above the bars
        axes.legend(loc="upper left")

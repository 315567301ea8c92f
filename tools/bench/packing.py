"""How well, how fast and in how little memory spans are packed, beside what others do.

Trajectories of lognormal length are packed by every contender in the same drawn order, each in a
process of its own (`packing_case`): padding, packs over the L2 bound, length bias, balance of the
ranks, seconds by phase, peak memory. Windows are drawn with more and more open runs
(`packing_windows`): shuffle quality beside the frames a loader decodes and keeps for it.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress

from tools.bench.framework import BenchResult, spread
from tools.bench.packing_case import CONTENDERS, OURS, RANKS, TREE, Case, Figures, run_case
from tools.bench.packing_contenders import PEERS
from tools.bench.packing_data import Windows, windows
from tools.bench.packing_frontier import draw_frontier
from tools.bench.packing_trl import TRL_ITSELF, trl_version
from tools.bench.packing_windows import OPEN_RUNS, WindowPlan, frontier, row_of

BUDGETS: Final = (8192, 16384, 32768)
TOKENS_PER_STEP: Final = (1, 4, 16)
HUNDRED_MILLION: Final = 100_000_000
COMPARED: Final = 1_000_000  # where the ratios are taken
_WINDOWS: Final = "windows"
# Beyond these a contender in plain Python takes minutes, or its time grows with n^2.
_MOST: Final = {
    "TRL bfd, batches of 1,000": 1_000_000,
    "TRL bfd, global": 1_000_000,
    "knapsack, batches of 1,000": 1_000_000,
    "knapsack, global": 100_000,
    "next-fit": 10_000_000,
    TREE: 10_000_000,
}


def run(quick: bool) -> BenchResult:  # noqa: FBT001  # the one signature of all benches
    """Measure; `quick` packs at most 1e6 spans once and fewer windows."""
    return compare(
        quick_cases() if quick else full_cases(),
        windows(600 if quick else 5000),
        slots=(1, 64) if quick else (1, 8, 64),
        open_runs=(64, 256, 1024) if quick else OPEN_RUNS,
    )


def compare(
    cases: Sequence[Case],
    drawn: Windows,
    *,
    slots: Sequence[int],
    open_runs: Sequence[int],
    compared: int = COMPARED,
) -> BenchResult:
    """Measure these cases, and the frontier of these windows.

    Args:
        cases: with shuffle-fill and next-fit on `compared` spans among them.
        drawn: the windows.
        slots: packs of 32 windows in a step.
        open_runs: runs drawn from at the same time.
        compared: number of spans at which the ratios are taken.
    """
    figures = measure_all(cases)
    plans = list(frontier(drawn, slots=slots, open_runs=open_runs))
    return BenchResult(
        name="packing",
        rows=[case_row(case, runs) for case, runs in figures.items()],
        tables={_WINDOWS: [row_of(plan) for plan in plans]},
        ratios=_ratios(figures, plans, compared),
        notes=_notes(len(drawn.spans), len(drawn.gop)),
    )


def picture(result: BenchResult, path: Path) -> None:
    """Draw the frontier over open runs (`--picture`)."""
    draw_frontier(result.tables[_WINDOWS], path)


def quick_cases() -> list[Case]:
    """Everyone on 1e5 spans; the fast ones on 1e6."""
    few = [Case(contender=name, n=100_000) for name in CONTENDERS]
    return few + [Case(contender=name, n=COMPARED) for name in (*OURS, "next-fit")]


def full_cases() -> list[Case]:
    """All budgets and layouts with 1e5 spans; more spans as far as a contender can.

    The case of the ratios (budget 8192, 4 tokens per step) up to 1e6 spans comes three times, its
    contenders one after the other in each round.
    """
    cases = []
    others = (*PEERS, TREE)
    for n in (100_000, COMPARED, 10_000_000):
        for budget, k in ((b, k) for b in BUDGETS for k in TOKENS_PER_STEP):
            compared = (budget, k) == (8192, 4)
            asked = others if compared or n == 100_000 else ("next-fit",) if n == COMPARED else ()
            able = [name for name in asked if n <= _MOST[name]]
            cases += [
                Case(contender=name, n=n, budget=budget, tokens_per_step=k)
                for name in (*OURS, *able)
            ] * (3 if compared and n <= COMPARED else 1)
    cases += [
        Case(contender="shuffle-fill", n=HUNDRED_MILLION, budget=b, tokens_per_step=k)
        for b in BUDGETS
        for k in TOKENS_PER_STEP
        if b == 8192 or k == 4
    ]
    cases.append(Case(contender="bfd (histogram)", n=HUNDRED_MILLION))
    return cases + [Case(contender=TRL_ITSELF, n=100_000)] * (trl_version() is not None)


def measure_all(cases: Sequence[Case]) -> dict[Case, list[Figures]]:
    """Run the cases in their order; a case that comes several times has several figures."""
    figures: dict[Case, list[Figures]] = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("packing", total=len(cases))
        for case in cases:
            progress.update(task, description=f"{case.contender}, {case.n:,}")
            figures.setdefault(case, []).append(run_case(case))
            progress.advance(task)
    return figures


def case_row(case: Case, runs: Sequence[Figures]) -> dict[str, Any]:
    """A line of the table."""
    first = runs[0]
    totals = [run.total_s for run in runs]
    phases = [
        f"{statistics.median(run.seconds[phase] for run in runs):.3g}" for phase in first.seconds
    ]
    window = ", ".join(str(steps) for steps in first.window_steps.values())
    return {
        "contender": case.contender,
        "spans": f"{case.n:,}",
        "budget": case.budget,
        "tokens/step": case.tokens_per_step,
        "padding": f"{first.padding:.3%}",
        "packs/L2": f"{first.packs / first.bound:.5f}",
        "bias/random": first.bias,
        **{
            f"max/mean, {ranks}": f"{ratio:.4f}" if ratio else "-"
            for ranks, ratio in ((ranks, first.max_over_mean.get(ranks)) for ranks in RANKS)
        },
        "balance window, steps": window if any(first.window_steps.values()) else "-",
        "seconds": spread(totals) if len(totals) > 1 else totals[0],
        "CPU seconds": statistics.median(run.cpu_s for run in runs),
        "phases": " + ".join(
            f"{phase} {seconds}" for phase, seconds in zip(first.seconds, phases, strict=True)
        ),
        "peak GB": f"{first.peak_rss_gb:.2f}",
        "lost as shipped": f"{first.lost:.1%}" if first.lost else "-",
    }


def _ratios(
    figures: Mapping[Case, Sequence[Figures]], plans: Sequence[WindowPlan], compared: int
) -> dict[str, float]:
    """The figures that aims name."""
    runs = figures[Case(contender="shuffle-fill", n=compared)]
    ours = runs[0]
    plain = figures[Case(contender="next-fit", n=compared)][0]
    chosen = [plan.shuffle for plan in plans if plan.chosen]
    out = {
        "padding": ours.padding,
        "packs_over_l2": ours.packs / ours.bound,
        "bias_over_random": ours.bias,
        "bias_over_next_fit": ours.bias / plain.bias,
        **{f"max_over_mean_{ranks}": ours.max_over_mean[ranks] for ranks in RANKS},
        "q1": min(shuffle[1] for shuffle in chosen),
        "q16": min(shuffle[16] for shuffle in chosen),
        "seconds_1e6": statistics.median(run.total_s for run in runs),
        "peak_rss_gb": max(_ours_peak(figures)),
    }
    largest = figures.get(Case(contender="shuffle-fill", n=HUNDRED_MILLION))
    if largest:
        out["seconds_1e8"] = statistics.median(run.total_s for run in largest)
    return out


def _ours_peak(figures: Mapping[Case, Sequence[Figures]]) -> Iterator[float]:
    for case, runs in figures.items():
        if case.contender == "shuffle-fill":
            yield from (run.peak_rss_gb for run in runs)


def _notes(num_windows: int, episodes: int) -> tuple[str, ...]:
    most = {name: f"{n:,}" for name, n in _MOST.items()}
    return (
        (
            "trajectories: lognormal, mean 400 steps, sigma 0.8, at least 16; those longer than a"
            " pack are split into full packs and a rest (as trajectory spans are, and as TRL's"
            " bfd_split does), until there are as many spans as stated; all contenders pack the"
            " same spans in the same drawn order; ratios are of 1e6 spans, budget 8192, 4 tokens"
            " per step"
        ),
        (
            "TRL's bfd (also behind bfd_split) and the knapsack of LLaMA-Factory are re-implemented"
            " in Python, as theirs are; the former makes the packs of TRL 1.16.0 one by one. TRL"
            f" itself (a row of the full run): {trl_version() or 'not installed'}."
            " `lost as shipped` is what TRL's default bfd cuts off and LLaMA-Factory"
            f" leaves out of rows longer than a pack. Most spans tried: {most}"
        ),
        (
            "max/mean: how much longer a job takes than with equal costs, one pack per rank and"
            " step, whole steps; packs of others are shuffled as by their trainers' samplers,"
            " ours gathered by cost within the window stated; the time of balance is for 512 ranks"
        ),
        (
            "bias/random: variance of the packs' mean span length over that of random packs of the"
            " same sizes; peak GB: of the contender's own process, data included"
        ),
        (
            f"windows: {num_windows:,} of {episodes:,} episodes (lognormal, about 200 steps), two"
            " cameras, key frames every 8 to 10 steps, 32 windows per pack; q1 and q16 are the"
            " least of the plans that the planner would choose; frames decoded and kept follow the"
            " loader's rule, but for its limit: it keeps a quarter of its buffer_bytes at most;"
            " GB kept: of one rank, both cameras, 640x480 4:2:0"
        ),
    )

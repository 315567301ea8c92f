"""What number formats do to a loss curve: the same plan and weights, trained in each of them.

    python -m tools.bench.fp8_parity LAKE PLAN --out DIR [--steps N] [--preset tiny] [--seeds 0 1 2]

FP8 is emulated where the device has none: its rounding is there, its speed is not. One run differs
from another by where training went as well as by rounding, so there are several, each format from
the same weights; `seeds` is how far runs of the first format differ from each other. Runs that are
in DIR already are gone on with, so that a measurement can be stopped.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from statistics import stdev
from typing import Final

from lake.store import open_lake
from packing.picture_file import new_figure, write_figure
from packing.stored_plan import open_plan
from training.config import TrainConfig
from training.logs.metrics import read_metrics
from training.loop import train
from training.precision.config import PrecisionConfig

_FORMATS: Final[Mapping[str, PrecisionConfig]] = {
    "fp32": PrecisionConfig(),
    "bf16": PrecisionConfig(dtype="bf16"),
    "fp8-tensor": PrecisionConfig(dtype="bf16", fp8="emulate", recipe="tensor"),
    "fp8-block": PrecisionConfig(dtype="bf16", fp8="emulate", recipe="block"),
    "fp8-mx": PrecisionConfig(dtype="bf16", fp8="emulate", recipe="mx"),
}
_SMOOTH: Final = 10


def main() -> None:
    """Train in each format, print the mean loss of quarters of the run and the gaps in the last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("lake")
    parser.add_argument("plan")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--formats", nargs="+", default=list(_FORMATS), choices=list(_FORMATS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    given = parser.parse_args()
    lake = open_lake(given.lake)
    plan = open_plan(lake, given.plan)
    curves: dict[str, list[list[float]]] = {name: [] for name in given.formats}
    for seed, name in product(given.seeds, given.formats):
        config = TrainConfig.load(
            preset=given.preset,
            overrides={
                "steps": given.steps,
                "seed": seed,
                "log_every": 1,
                "loader.image_size": given.image_size,
                **{f"precision.{key}": value for key, value in vars(_FORMATS[name]).items()},
            },
        )
        out = given.out / f"{name}-{seed}"
        if not train(lake, plan, out, config).finished:
            sys.exit("stopped; the same command goes on from there")
        curves[name].append([float(line["loss"]) for line in read_metrics(out / "metrics.jsonl")])
    _print(curves)
    _draw({name: _mean(runs) for name, runs in curves.items()}, given.out / "parity.png")


def quarters(curve: Sequence[float]) -> list[float]:
    """Mean loss of each quarter of the steps."""
    cuts = [len(curve) * part // 4 for part in range(5)]
    return [sum(curve[a:b]) / (b - a) for a, b in pairwise(cuts)]


def gaps(runs: Sequence[Sequence[float]], exact: Sequence[Sequence[float]]) -> list[float]:
    """Loss of the last quarter over that of the exact run from the same weights, less one."""
    return [quarters(a)[-1] / quarters(b)[-1] - 1 for a, b in zip(runs, exact, strict=True)]


def _print(curves: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Means over seeds, and of the gap its standard error too."""
    _row("format", ("1/4", "2/4", "3/4", "4/4", "last gap", "+-"))
    exact = next(iter(curves.values()))
    for name, runs in curves.items():
        gap = gaps(runs, exact)
        error = f"{stdev(gap) / len(gap) ** 0.5:.3%}" if len(gap) > 1 else "-"
        means = [f"{loss:.5f}" for loss in quarters(_mean(runs))]
        _row(name, [*means, f"{sum(gap) / len(gap):+.3%}", error])
    ends = [quarters(run)[-1] for run in exact]
    if len(ends) > 1:
        _row("seeds", [*[""] * 4, "", f"{stdev(ends) / (sum(ends) / len(ends)):.3%}"])


def _mean(runs: Sequence[Sequence[float]]) -> list[float]:
    return [sum(losses) / len(losses) for losses in zip(*runs, strict=True)]


def _row(name: str, cells: Iterable[str]) -> None:
    print(f"{name:12}" + "".join(f"{cell:>10}" for cell in cells))


def _draw(curves: Mapping[str, Sequence[float]], path: Path) -> None:
    figure = new_figure(8.0, 4.0)
    axes = figure.subplots()
    for name, curve in curves.items():
        smooth = [
            sum(curve[max(0, step - _SMOOTH) : step + 1]) / min(step + 1, _SMOOTH + 1)
            for step in range(len(curve))
        ]
        axes.plot(range(1, len(curve) + 1), smooth, linewidth=1, label=name)
    axes.set_xlabel("optimizer step")
    axes.set_ylabel(f"loss, mean of {_SMOOTH + 1} steps")
    axes.set_yscale("log")
    axes.legend()
    axes.grid(visible=True, alpha=0.3)
    write_figure(figure, path)


if __name__ == "__main__":
    main()

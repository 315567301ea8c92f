"""What number formats do to a loss curve: the same plan and weights, trained in each of them.

    python -m tools.bench.fp8_parity LAKE PLAN --out DIR [--steps N] [--preset tiny]

FP8 is emulated where the device has none: its rounding is there, its speed is not. Runs that are in
DIR already are gone on with, so that a measurement can be stopped.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
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
    given = parser.parse_args()
    lake = open_lake(given.lake)
    plan = open_plan(lake, given.plan)
    curves = {}
    for name in given.formats:
        config = TrainConfig.load(
            preset=given.preset,
            overrides={
                "steps": given.steps,
                "log_every": 1,
                "loader.image_size": given.image_size,
                **{f"precision.{key}": value for key, value in vars(_FORMATS[name]).items()},
            },
        )
        if not train(lake, plan, given.out / name, config).finished:
            sys.exit("stopped; the same command goes on from there")
        lines = read_metrics(given.out / name / "metrics.jsonl")
        curves[name] = [float(line["loss"]) for line in lines]
    _print(curves)
    _draw(curves, given.out / "parity.png")


def quarters(curve: Sequence[float]) -> list[float]:
    """Mean loss of each quarter of the steps."""
    cuts = [len(curve) * part // 4 for part in range(5)]
    return [sum(curve[a:b]) / (b - a) for a, b in pairwise(cuts)]


def _print(curves: Mapping[str, Sequence[float]]) -> None:
    _row("format", ("1/4", "2/4", "3/4", "4/4", "last gap"))
    *_, end = quarters(next(iter(curves.values())))
    for name, curve in curves.items():
        means = quarters(curve)
        _row(name, [*(f"{loss:.5f}" for loss in means), f"{means[-1] / end - 1:+.3%}"])


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

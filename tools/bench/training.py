"""`headrace bench training`: a packed training step against the same spans padded.

Three workloads (whole trajectories, windows of many robots, LIBERO-like windows of pi0.5) and a
control of equal lengths, where padding costs nothing and the ratio should be 1. Every contender
runs the same model with the same weights and the same attention function on the same spans;
gradients are compared before anything is timed. Then packed and padded train side by side, and
packed with FP8 emulated, and their loss curves are laid one over the other.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from tools.bench.framework import BenchResult
from tools.bench.training_backends import measure_backends, shared_backend
from tools.bench.training_case import Case, Measured, measure_case
from tools.bench.training_curves import LossCurves, train_alike
from tools.bench.training_libero import OPENPI, as_openpi, load_libero
from tools.bench.training_oxe import CAMERAS, load_oxe
from tools.bench.training_packs import BUCKETED, LONGEST, PACKED, Packs, padded_ways
from tools.bench.training_picture import draw_curves
from tools.bench.training_sizes import PUBLISHED, REDUCED, without_weights, work_of
from tools.bench.training_trajectories import SIGMA, load_trajectories, lognormal_lengths
from training.attention.varlen import use_backend
from training.models.kinds import PRESETS, ModelConfig, build_model
from training.models.pi05.config import Pi05Config
from training.models.policy_model import PolicyModel

_CONTROL: Final = "equal lengths (control)"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How much is measured.

    Attributes:
        trajectories, mean_steps, longest_steps: of the lognormal workload.
        trajectory_budget: tokens of its packs; they hold more spans than a padded batch does, so
            that packing sets no batch size.
        trajectory_batch: spans of a padded batch.
        windows: of each window workload.
        window_budget, window_batch: a pack has about the tokens that a padded batch computes: on
            a CPU larger arrays cost more per token.
        curve_steps: optimizer steps of the loss curves.
        repetitions: of every timing; more than twice as many of the control, which asks for
            3 percent.
        trajectory_model, window_model: sizes.
    """

    trajectories: int = 64
    mean_steps: int = 200
    longest_steps: int = 1000
    trajectory_budget: int = 16384
    trajectory_batch: int = 16
    windows: int = 32
    window_budget: int = 6144
    window_batch: int = 8
    curve_steps: int = 300
    repetitions: int = 3
    trajectory_model: ModelConfig = PRESETS["small"]
    window_model: Pi05Config = REDUCED


FULL: Final = Setup()
QUICK: Final = Setup(
    trajectories=24,
    mean_steps=60,
    trajectory_budget=4096,
    windows=8,
    window_budget=3072,
    window_batch=4,
    curve_steps=40,
    repetitions=2,
    trajectory_model=PRESETS["tiny"],
    window_model=replace(REDUCED, layers=2, vision_depth=2),
)


def run(quick: bool, picture: Path | None = None) -> BenchResult:  # noqa: FBT001  (of every bench)
    """Measure on one thread, or on the GPU where there is one.

    Args:
        quick: less of everything.
        picture: draw the loss curves there.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return measure_training(QUICK if quick else FULL, picture)
    finally:
        torch.set_num_threads(threads)


def measure_training(setup: Setup, picture: Path | None = None) -> BenchResult:
    """All workloads, and the loss curves."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    lengths = lognormal_lengths(
        setup.trajectories, mean=setup.mean_steps, longest=setup.longest_steps
    )
    equal = [setup.mean_steps] * (setup.trajectories // 2)
    short = lognormal_lengths(4 * setup.trajectories, mean=30, longest=120)
    with tempfile.TemporaryDirectory() as folder:
        root, budget = Path(folder), setup.trajectory_budget
        lognormal = load_trajectories(root / "lognormal.lake", lengths, budget_tokens=budget)
        control = load_trajectories(root / "equal.lake", equal, budget_tokens=budget)
        learned = load_trajectories(root / "short.lake", short, budget_tokens=1024)
        windows = {"windows": setup.windows, "budget_tokens": setup.window_budget}
        oxe = load_oxe(root / "oxe.lake", **windows)
        libero = load_libero(root / "libero.lake", **windows)
    batch, sizes = setup.trajectory_batch, setup.trajectory_model
    cases = [
        _case("trajectories, lognormal", lognormal, sizes, padded_ways(lognormal, batch)),
        _case(_CONTROL, control, sizes, {LONGEST: padded_ways(control, batch)[LONGEST]}),
        _case(
            "OXE-like windows",
            oxe,
            setup.window_model,
            padded_ways(oxe, setup.window_batch, pictures=CAMERAS),
        ),
        _case(
            "LIBERO-like windows",
            libero,
            setup.window_model,
            {OPENPI: as_openpi(libero, setup.window_batch)},
        ),
    ]
    repetitions = setup.repetitions
    with use_backend(shared_backend(device)):
        measured = [
            measure_case(
                case,
                repetitions=2 * repetitions + 1 if case.name == _CONTROL else repetitions,
                device=device,
            )
            for case in cases
        ]
    backends = measure_backends(cases[3], repetitions=repetitions, device=device)
    curves = train_alike(
        _model(PRESETS["tiny"], learned),
        learned,
        steps=setup.curve_steps,
        batch_size=8,
        device=device,
    )
    if picture is not None:
        draw_curves(curves, picture)
    return BenchResult(
        name="training",
        rows=[row for each in measured for row in each.rows],
        ratios=_ratios(cases, measured, curves, backends),
        tables={
            "attention backends, LIBERO-like windows packed": backends,
            "work of pi0.5, forward": _work_rows(setup, cases[2:], [oxe, libero]),
            "loss of the same training": _curve_rows(curves),
        },
        notes=_notes(setup, lengths, curves, device),
    )


def _case(name: str, packs: Packs, sizes: ModelConfig, padded: dict[str, Any]) -> Case:
    return Case(
        name=name,
        model=_model(sizes, packs),
        contenders={PACKED: packs.packed, **padded},
        tokens=packs.tokens,
    )


def _model(sizes: ModelConfig, packs: Packs) -> PolicyModel:
    torch.manual_seed(0)
    return build_model(sizes, packs.spec)


def _ratios(
    cases: list[Case],
    measured: list[Measured],
    curves: LossCurves,
    backends: list[dict[str, Any]],
) -> dict[str, float]:
    trajectories, control, oxe, libero = measured
    ratios = {
        "packed_over_padded_trajectories": trajectories.packed_over(LONGEST),
        "packed_over_bucketed_trajectories": trajectories.packed_over(BUCKETED),
        "padding_factor_trajectories": cases[0].padding_factor(LONGEST),
        "packed_over_padded_oxe": oxe.packed_over(LONGEST),
        "padding_factor_oxe": cases[2].padding_factor(LONGEST),
        "control_equal_lengths": control.packed_over(LONGEST),
        "pi05_libero_tokens_removed_speedup": libero.packed_over(OPENPI),
        "fp8_loss_gap": curves.fp8_gap,
    }
    mfus = [row["MFU"] for row in backends if row["MFU"] != "-"]
    return {**ratios, "mfu": max(mfus)} if mfus else ratios


def _work_rows(setup: Setup, cases: list[Case], packs: list[Packs]) -> list[dict[str, Any]]:
    rows = []
    for case, spans in zip(cases, packs, strict=True):
        for sizes, config in (("published", PUBLISHED), ("of this bench", setup.window_model)):
            model = without_weights(config, spans.spec)
            work = {name: work_of(model, each) for name, each in case.contenders.items()}
            rows += [
                {
                    "workload": case.name,
                    "sizes": sizes,
                    "contender": name,
                    "FLOP over packed": round(each.total / work[PACKED].total, 3),
                    "attention": f"{100 * each.attention / each.total:.1f} %",
                    "vision tower": f"{100 * each.vision / each.total:.1f} %",
                }
                for name, each in work.items()
            ]
    return rows


def _curve_rows(curves: LossCurves) -> list[dict[str, Any]]:
    last = len(curves.packed) - 1
    return [
        {
            "step": step + 1,
            "packed": round(curves.packed[step], 6),
            "padded": round(curves.padded[step], 6),
            "FP8 emulated": round(curves.fp8[step], 6),
        }
        for step in sorted({0, last // 4, last // 2, 3 * last // 4, last})
    ]


def _notes(setup: Setup, lengths: list[int], curves: LossCurves, device: torch.device) -> list[str]:
    how = "fp32, one thread, CPU s" if device.type == "cpu" else "bf16 autocast, elapsed s"
    trajectories = (
        f"trajectories: sigma {SIGMA}, {len(lengths)} of {min(lengths)}..{max(lengths)} steps,"
        f" state, text and action tokens; packs of {setup.trajectory_budget} tokens, padded batches"
        f" of {setup.trajectory_batch}"
    )
    windows = (
        f"windows: 256 tokens a picture, one text token a word, about {setup.windows} of them;"
        f" packs of {setup.window_budget} tokens, padded batches of {setup.window_batch}; slots"
        " without a camera hold black pictures, computed and hidden"
    )
    sizes = (
        "pi0.5 with widths reduced so that attention and vision tower have their published shares"
        " of the work: see the table"
    )
    gaps = (
        f"loss curves: {len(curves.packed)} steps of the preset tiny; padded is off by"
        f" {curves.largest_gap:.1e} of the packed loss at most, FP8 by {curves.fp8_gap:.1e} of the"
        " mean over the last quarter"
    )
    return [
        f"forward and backward of all spans; no optimizer, no loading; {how}",
        f"attention of all contenders by {shared_backend(device)}",
        trajectories,
        windows,
        sizes,
        "gradients: norm of the difference to the packed ones over their norm",
        gaps,
    ]

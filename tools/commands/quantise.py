"""`headrace quantise`."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tools.commands.lake_options import StorageOptions, storage_options

if TYPE_CHECKING:
    from training.precision.action_error import ActionErrors
    from training.precision.quantise import Quantised

_REPETITIONS: Final = 15


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("quantise")(quantise)


def quantise(
    checkpoint: Annotated[
        Path, typer.Argument(help="Folder of a checkpoint, or of a run (its latest checkpoint).")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder to make; STEP-fp8 in the run's where not given.")
    ] = None,
    lake: Annotated[str | None, typer.Option(help="Lake of --plan: a folder or s3:// URI.")] = None,
    plan: Annotated[
        str | None,
        typer.Option(help="Plan of windows to compare actions on, of episodes not trained on."),
    ] = None,
    windows: Annotated[int, typer.Option(min=1, help="Windows of the plan, about.")] = 512,
    episodes: Annotated[
        int,
        typer.Option(min=0, help="Also roll both out in the simulation, on so many starts."),
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the starts.")] = 0,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="Tokenizer file that the plan was made with, where it is not built in."),
    ] = None,
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Write a trained policy with its matrices in FP8, and say what that changes.

    Matrices of 128 rows and columns or more get a scale for each 128 x 128 block. The folder is
    taken by headrace assess as a checkpoint is.
    """
    import torch

    from training.errors import ConfigError
    from training.policy import find_checkpoint
    from training.precision.quantise import quantise_checkpoint

    if (lake is None) != (plan is None):
        raise ConfigError("--lake and --plan go together: actions are compared on a lake's plan")
    torch.set_num_threads(1)  # one observation at a time is too little work to share
    folder = find_checkpoint(checkpoint)
    done = quantise_checkpoint(folder, out or _beside(folder))
    found: dict[str, Any] = {
        "checkpoint": str(folder),
        "out": str(done.folder),
        "plain_bytes": done.plain_bytes,
        "fp8_bytes": done.fp8_bytes,
        "weights": {name: asdict(error) for name, error in done.errors.items()},
        "act_ms": _latencies(folder, done.folder, tokenizer),
        "actions": None,
        "success": None,
    }
    if lake is not None and plan is not None:
        errors, trained_on = _action_errors(
            folder, done.folder, lake, plan, windows, storage_options(store)
        )
        found["actions"] = {**asdict(errors), "trained_on": trained_on}
    if episodes:
        found["success"] = _success(
            folder, done.folder, episodes=episodes, seed=seed, tokenizer=tokenizer
        )
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _print(done, found)


def _beside(folder: Path) -> Path:
    """Not among a run's checkpoints, which are deleted as they age."""
    parent = folder.resolve().parent
    return (parent.parent if parent.name == "checkpoints" else parent) / f"{folder.name}-fp8"


def _action_errors(
    folder: Path, quantised: Path, lake: str, plan: str, windows: int, store: dict[str, str] | None
) -> tuple["ActionErrors", bool]:
    from lake.store import open_lake
    from packing.stored_plan import open_plan
    from training.checkpoints.folder import read_progress
    from training.policy import load_model
    from training.precision.action_error import action_errors, windows_of

    opened = open_lake(lake, storage_options=store)
    loaded = open_plan(opened, plan)
    model = load_model(folder).eval()
    batches = windows_of(opened, loaded, model.spec, windows)
    errors = action_errors(model, load_model(quantised).eval(), batches)
    return errors, loaded.plan_hash == read_progress(folder).plan_hash


def _latencies(folder: Path, quantised: Path, tokenizer: Path | None) -> dict[str, float] | str:
    """Median time of an action chunk in ms; why not, where the policy cannot act."""
    import statistics
    import time

    import numpy as np

    from training.errors import ConfigError
    from training.policy import Policy, load_model

    spec = load_model(folder).spec
    size = spec.image_size or 224
    images = {name: np.zeros((size, size, 3), np.uint8) for name in spec.cameras}
    state = np.zeros(len(spec.state[0].mean), np.float32)
    times: dict[str, list[float]] = {"plain": [], "fp8": []}
    try:
        policies = {
            name: Policy.load(
                path,
                embodiment=spec.embodiments[0],
                spec_id=spec.spec_ids[0],
                tokenizer=tokenizer,
            )
            for name, path in (("plain", folder), ("fp8", quantised))
        }
        for _ in range(_REPETITIONS):
            for name, policy in policies.items():
                begin = time.perf_counter()
                policy.act(images, state, "go")
                times[name].append(1e3 * (time.perf_counter() - begin))
    except ConfigError as error:
        return str(error)
    return {name: statistics.median(each) for name, each in times.items()}


def _success(
    folder: Path, quantised: Path, *, episodes: int, seed: int, tokenizer: Path | None
) -> dict[str, Any]:
    from training.simulation.evaluations import assessment_json
    from training.simulation.trial import try_checkpoint

    return {
        name: assessment_json(
            try_checkpoint(
                path, episodes=episodes, seed=seed, control=False, keep=0, tokenizer=tokenizer
            ).trained
        )
        for name, path in (("plain", folder), ("fp8", quantised))
    }


def _print(done: "Quantised", found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    grid = Table(
        title="matrices in FP8",
        caption="error: norm of the difference; largest: over the largest value of its block",
    )
    for name in ("weight", "shape", "error", "largest"):
        grid.add_column(name, justify="left" if name == "weight" else "right", no_wrap=True)
    for name, error in done.errors.items():
        shape = "x".join(map(str, error.shape))
        grid.add_row(name, shape, f"{error.relative:.2%}", f"{error.largest:.2%}")
    console.print(grid)
    for line in _lines(done, found):
        console.print(line, soft_wrap=True, markup=False)


def _lines(done: "Quantised", found: dict[str, Any]) -> Iterator[str]:
    share = done.fp8_bytes / done.plain_bytes
    yield f"weights   {done.plain_bytes:,} bytes, now {done.fp8_bytes:,} ({share:.1%})"
    act = found["act_ms"]
    if isinstance(act, str):
        yield f"latency   not measured: {act}"
    else:
        yield f"latency   {act['plain']:.1f} ms a chunk, now {act['fp8']:.1f} ms"
    if (actions := found["actions"]) is not None:
        seen = " that the policy was trained on" if actions["trained_on"] else ""
        yield (
            f"actions   differ by {actions['mean_relative']:.2%} of their standard deviation on"
            f" average, {actions['max_relative']:.2%} at most,"
            f" on {actions['windows']} windows{seen}"
        )
        each = zip(actions["mean_abs"], actions["max_abs"], strict=True)
        apart = ", ".join(f"{mean:.2g} (at most {most:.2g})" for mean, most in each)
        yield f"          in recorded units, by dimension: {apart}"
        yield (
            f"          from the recording: {actions['recorded_relative']:.2%},"
            f" now {actions['other_recorded_relative']:.2%}"
        )
    if (success := found["success"]) is not None:
        yield f"success   {_rate(success['plain'])}, now {_rate(success['fp8'])}"
    yield f"policy    {done.folder}"


def _rate(assessment: dict[str, Any]) -> str:
    return (
        f"{assessment['successes']} of {assessment['episodes']} (95 % interval"
        f" {assessment['wilson_low']:.0%} to {assessment['wilson_high']:.0%})"
    )

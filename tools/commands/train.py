"""`headrace train`, alone and under torchrun."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tools.commands.lake_options import StorageOptions, storage_options
from training.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from lake import Lake
    from training.config import TrainConfig
    from training.logs.metrics import StepMetrics
    from training.loop import TrainResult

_SIGTERM_EXIT = 143  # as a shell reports a process that SIGTERM ended
_LARGE_EMBEDDING = 10_000_000
_BYTES_PER_PARAMETER = 5 * 4  # itself, its gradient, AdamW's two moments, the moving average


class Resume(StrEnum):
    """Values of --resume."""

    AUTO = "auto"
    NEVER = "never"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train")(train)


def train(
    lake: Annotated[str, typer.Argument(help="Lake: a folder or s3:// URI.")],
    plan: Annotated[str, typer.Argument(help="Name or hash of a plan in the lake.")],
    out: Annotated[Path, typer.Option(help="Folder of the run: checkpoints, metrics, ledger.")],
    config: Annotated[
        Path | None, typer.Option(help="YAML file with any part of the configuration.")
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="Kind and size of the model: tiny, small, pi05-tiny, pi05, gr00t-tiny or"
            " gr00t-n1.5."
        ),
    ] = "tiny",
    steps: Annotated[
        int | None, typer.Option(min=1, help="Optimizer steps; the whole plan where not given.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, help="Resize pictures to this height and width.")
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between two checkpoints.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the initial weights.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=0, help="CPU threads of torch per process; 0: its default.")
    ] = None,
    padded: Annotated[
        bool,
        typer.Option(
            "--padded",
            help="Compute the pads that packing saves, to compare: same batches, loss, gradients.",
        ),
    ] = False,
    resume: Annotated[
        Resume,
        typer.Option(help="auto: go on from OUT's checkpoint; never: refuse an OUT with a run."),
    ] = Resume.AUTO,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting, as optimizer.ema_decay=0.9"),
    ] = None,
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Train a policy on a plan.

    The same command again goes on from the last checkpoint, however it was stopped.

    Under torchrun: torchrun --no-python --nproc-per-node 2 headrace train LAKE PLAN --out DIR
    """
    from lake import open_lake
    from training.config import TrainConfig

    resolved = TrainConfig.load(
        config,
        preset=preset,
        overrides={
            **_given(
                {
                    "steps": steps,
                    "optimizer.lr": lr,
                    "loader.image_size": image_size,
                    "checkpoint.every_steps": checkpoint_every,
                    "seed": seed,
                    "threads": threads,
                    "padded": padded or None,
                }
            ),
            **_parse(settings or []),
        },
    )
    is_first = os.environ.get("RANK", "0") == "0"
    stderr = Console(stderr=True, highlight=False, quiet=not is_first)
    opened = open_lake(lake, storage_options=storage_options(store))
    result = _run(opened, plan, out, resolved, resume, stderr)
    if is_first:
        notes = _picture(out)
        if as_json:
            typer.echo(json.dumps(_summary(result, out)))
        else:
            _report(result, out, stderr, notes)
    if not result.finished:
        raise typer.Exit(_SIGTERM_EXIT)


def _run(
    opened: "Lake", plan: str, out: Path, config: "TrainConfig", resume: Resume, stderr: Console
) -> "TrainResult":
    from packing.stored_plan import open_plan
    from training.loop import train as train_loop

    loaded = open_plan(opened, plan)
    if loaded.header.span_maker["kind"] != "window":
        stderr.print(
            "this plan's spans are whole trajectories: their actions see later observations, so"
            " the policy can be trained but not rolled out (for that, pack windows)",
            style="yellow",
        )
    if note := _vocabulary_note(loaded.header.vocab_size, config.model.width):
        stderr.print(note, style="yellow")
    for section, values in _sections(config.to_dict()).items():
        stderr.print(f"{section}: {values}", style="dim", markup=False)
    with _progress(stderr) as on_step:
        return train_loop(
            opened,
            loaded,
            out,
            config,
            resume=resume.value,
            on_step=on_step,
        )


def _vocabulary_note(ids: int, width: int) -> str | None:
    """What to know where the tokenizer's vocabulary is most of what a small policy holds."""
    parameters = ids * width
    if parameters < _LARGE_EMBEDDING:
        return None
    held = parameters * _BYTES_PER_PARAMETER / 1e9
    return (
        f"the plan's tokenizer has {ids:,} ids: at width {width} their embedding alone is"
        f" {parameters / 1e6:.0f} million parameters, {held:.1f} GB with gradients, moments and"
        " average; pack with --tokenizer utf8-bytes where the policy need not read the model's ids"
    )


@contextmanager
def _progress(stderr: Console) -> Iterator[Callable[["StepMetrics", int], None]]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  {task.fields[rate]:,.0f} tokens/s"),
        TextColumn("data wait {task.fields[wait]:.0%}"),
    )
    shown = stderr.is_terminal and not stderr.quiet
    with Progress(*columns, console=stderr, disable=not shown) as bars:
        bar = bars.add_task("training", total=None, loss=float("nan"), rate=0.0, wait=0.0)

        def on_step(metrics: "StepMetrics", total: int) -> None:
            bars.update(
                bar,
                total=total,
                completed=metrics.step,
                loss=metrics.loss,
                rate=metrics.tokens_per_s,
                wait=metrics.data_wait_share,
            )

        yield on_step


def _picture(out: Path) -> list[str]:
    """Draw the loss; what could not be drawn, in words."""
    from training.logs.loss_picture import save_loss_picture

    try:
        save_loss_picture(out / "metrics.jsonl", out / "loss.png")
    except TrainingError as error:
        return [str(error)]
    return []


def _report(result: "TrainResult", out: Path, stderr: Console, notes: list[str]) -> None:
    if result.resumed_from is not None:
        stderr.print(f"resumed from step {result.resumed_from}")
    if result.last is None:
        stderr.print(f"nothing left to do: the run has its {result.total_steps} steps")
    else:
        last = result.last
        stderr.print(
            f"step {result.steps} of {result.total_steps}: loss {last.loss:.4f},"
            f" {last.tokens_per_s:,.0f} tokens/s, {last.spans_per_s:,.0f} spans/s,"
            f" waiting for data {last.data_wait_share:.1%}"
        )
    stderr.print(f"checkpoint {result.checkpoint}", soft_wrap=True)
    stderr.print(f"metrics    {out / 'metrics.jsonl'}", soft_wrap=True)
    for note in notes:
        stderr.print(note, style="yellow", markup=False)
    if not result.finished:
        stderr.print("stopped by SIGTERM; the same command goes on from there", style="yellow")


def _summary(result: "TrainResult", out: Path) -> dict[str, Any]:
    return {
        "run_id": result.run_id,
        "out": str(out),
        "steps": result.steps,
        "total_steps": result.total_steps,
        "finished": result.finished,
        "resumed_from": result.resumed_from,
        "checkpoint": str(result.checkpoint),
        "last": None if result.last is None else asdict(result.last),
    }


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _parse(settings: list[str]) -> dict[str, str]:
    parsed = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set takes NAME=VALUE, not {setting!r}")
        parsed[name] = value
    return parsed


def _sections(config: dict[str, Any]) -> dict[str, str]:
    """One line of settings per section, as `--set section.name=value` takes them."""
    nested = {name: value for name, value in config.items() if isinstance(value, dict)}
    nested["run"] = {name: value for name, value in config.items() if name not in nested}
    return {
        section: ", ".join(f"{name}={value}" for name, value in values.items())
        for section, values in nested.items()
    }

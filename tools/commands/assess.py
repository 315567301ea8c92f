"""`headrace assess`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tools.commands.lake_options import StorageOptions, storage_options

if TYPE_CHECKING:
    from training.simulation.assess import Assessment
    from training.simulation.trial import Trial


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("assess")(assess)


def assess(
    checkpoint: Annotated[
        Path, typer.Argument(help="Folder of a checkpoint, or of a run (its latest checkpoint).")
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Starts, the same for all policies.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the starts.")] = 0,
    exam: Annotated[
        bool,
        typer.Option("--exam", help="Starts kept for the final figure, never for development."),
    ] = False,
    execute: Annotated[
        int, typer.Option(min=1, help="Actions executed of each chunk the policy chooses.")
    ] = 6,
    control: Annotated[
        bool,
        typer.Option(
            "--control/--no-control", help="Also roll out the policy told another colour."
        ),
    ] = True,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="Tokenizer file that the plan was made with, where it is not built in."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Save a contact sheet of the first rollouts here.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Write the policy's rollouts here as HDF5 episodes.")
    ] = None,
    lake: Annotated[
        str | None, typer.Option(help="Lake whose `evaluations` table gets the result.")
    ] = None,
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Roll a trained policy out, beside a random one.

    Both act in the simulation of `headrace simulate`, on the same starts.
    """
    import torch
    from rich.console import Console
    from rich.progress import Progress

    from lake.store import open_lake
    from training.simulation.evaluations import write_evaluation
    from training.simulation.picture import save_rollout_picture
    from training.simulation.recorder import require_empty, write_episode
    from training.simulation.rollout import RolloutResult
    from training.simulation.task import Purpose, SceneConfig
    from training.simulation.trial import try_checkpoint

    torch.set_num_threads(1)  # one observation at a time is too little work to share
    purpose = Purpose.EXAM if exam else Purpose.ASSESS
    opened = None if lake is None else open_lake(lake, storage_options=storage_options(store))
    config = SceneConfig()
    if record is not None:
        require_empty(record)
    stderr = Console(stderr=True)
    with Progress(console=stderr, disable=not stderr.is_terminal, transient=True) as bars:
        bar = bars.add_task("rolling out", total=episodes * (3 if control else 2))
        count = 0

        def played(name: str, result: RolloutResult) -> None:
            nonlocal count
            bars.advance(bar)
            if record is not None and count < episodes:  # the trained policy comes first
                write_episode(
                    record / f"episode_{count}.hdf5",
                    result,
                    config,
                    origin={"policy": name, "purpose": purpose.name.lower(), "seed": seed},
                )
            count += 1

        trial = try_checkpoint(
            checkpoint,
            episodes=episodes,
            seed=seed,
            purpose=purpose,
            execute=execute,
            control=control,
            config=config,
            tokenizer=tokenizer,
            progress=played,
        )
    evaluation_id = None
    if opened is not None:
        evaluation_id = write_evaluation(
            opened, trial.trained, run_id=trial.run_id, checkpoint=trial.checkpoint.name
        )
    if picture is not None:
        _, success, interval, *_ = _cells(trial.trained)
        title = f"{trial.checkpoint.name}: success {success}, 95 % interval {interval}"
        save_rollout_picture(picture, trial.trained.samples, title=title)
    if as_json:
        typer.echo(json.dumps(_as_json(trial, picture, evaluation_id)))
    else:
        _print(trial)


def _as_json(trial: "Trial", picture: Path | None, evaluation_id: str | None) -> dict[str, object]:
    from training.simulation.evaluations import assessment_json

    return {
        "checkpoint": str(trial.checkpoint),
        "run_id": trial.run_id,
        "privileged": trial.privileged,
        "evaluation_id": evaluation_id,
        "picture": None if picture is None else str(picture),
        "trained": assessment_json(trial.trained),
        "told_wrongly": trial.misinformed and assessment_json(trial.misinformed),
        "random": assessment_json(trial.random),
    }


def _print(trial: "Trial") -> None:
    from rich.console import Console
    from rich.table import Table

    grid = Table(title="went to the asked block, from starts not in the recording")
    for name in ("policy", "success", "95 % interval", "wrong", "late", "steps"):
        grid.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for assessment in trial.assessments:
        grid.add_row(*_cells(assessment))
    console = Console()
    console.print(grid)
    console.print("wrong: touched another block first; late: ran out of time", style="dim")
    if trial.privileged:
        console.print("the policy was fed where the blocks are (env_state), not pictures alone")
    for text, score in trial.trained.by_instruction.items():
        console.print(f'"{text}": {score.successes} of {score.episodes}', highlight=False)


def _cells(assessment: "Assessment") -> tuple[str, ...]:
    score = assessment.total
    low, high = score.interval
    late = score.episodes - score.successes - score.wrong
    steps = "-" if assessment.mean_steps is None else f"{assessment.mean_steps:.0f}"
    return (
        assessment.policy,
        f"{score.successes}/{score.episodes} = {score.rate:.0%}",
        f"{low:.0%} to {high:.0%}",
        str(score.wrong),
        str(late),
        steps,
    )

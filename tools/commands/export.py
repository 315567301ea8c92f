"""`headrace export`."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from tools.commands.lake_options import OptionError, StorageOptions, storage_options


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)


def export(
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake.")],
    dest: Annotated[Path, typer.Argument(help="Folder to make; it must not be there yet.")],
    episodes: Annotated[
        str | None,
        typer.Argument(
            metavar="EPISODES",
            help="A selection's name, or a condition over episodes; none takes every episode.",
        ),
    ] = None,
    to: Annotated[
        Literal["lerobot-v3.0", "lerobot-v2.1"], typer.Option("--format", help="What to write.")
    ] = "lerobot-v3.0",
    leave_out: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Do not write this feature or camera; may be repeated."),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=KEY",
            help="Write a feature or camera under this key, such as qpos=observation.state; may be"
            " repeated.",
        ),
    ] = None,
    on_unfit: Annotated[
        Literal["fail", "skip"],
        typer.Option(help="Stop at episodes that the format cannot express, or leave them out."),
    ] = "fail",
    several: Annotated[
        bool,
        typer.Option(
            "--several",
            help="Make DEST a folder of datasets, one for all episodes that agree in rate, robot,"
            " features and cameras.",
        ),
    ] = False,
    data_file_mb: Annotated[
        int, typer.Option(min=1, help="v3.0: a data file that would be larger is ended.")
    ] = 100,
    video_file_mb: Annotated[
        int, typer.Option(min=1, help="v3.0: a video file that would be larger is ended.")
    ] = 200,
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Write episodes as a LeRobot dataset, with their video packets as they are.

    What LeRobot cannot express (invalid steps, uneven times, steps without a picture) is refused,
    never filled. DEST appears when all of it is written; killed before, there is none.

    Example: headrace export robots.lake good_lerobot "success" --format lerobot-v2.1
    """
    from rich.console import Console

    from ingest.export.lerobot.export import export_lerobot
    from ingest.export.lerobot.plan import Choices
    from lake import open_lake
    from packing.choose_episodes import choose_episodes
    from tools.commands import export_report

    renamed = dict(_pair(text) for text in rename or [])
    opened = open_lake(lake, storage_options=storage_options(store))
    chosen = choose_episodes(opened, episodes)
    with export_report.progress_bar(Console(stderr=True, highlight=False)) as update:
        report = export_lerobot(
            opened.at(opened.versions()),  # one state of the lake, whatever is written meanwhile
            dest,
            chosen.episode_ids,
            choices=Choices(
                version="2.1" if to == "lerobot-v2.1" else "3.0",
                left_out=frozenset(leave_out or []),
                renamed=renamed,
            ),
            on_unfit=on_unfit,
            several=several,
            data_file_mb=data_file_mb,
            video_file_mb=video_file_mb,
            progress=update,
        )
    if as_json:
        typer.echo(json.dumps(export_report.as_json(report), ensure_ascii=False))
    else:
        export_report.print_report(report, to)


def _pair(text: str) -> tuple[str, str]:
    name, sign, key = text.partition("=")
    if not sign or not name or not key:
        raise OptionError(f"--rename {text!r}: write NAME=KEY")
    return name, key

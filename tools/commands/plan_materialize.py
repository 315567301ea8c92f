"""`headrace plan materialize`, and what other commands say of materialised packs."""

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tools.commands.lake_options import OptionError, StorageOptions, storage_options

if TYPE_CHECKING:
    from lake import Lake
    from loader.materialized.report import MaterializedReport
    from loader.materialized.settings import MaterializedSettings
    from packing.stored_plan import AnyPlan

_SIZE = re.compile(r"(\d+)x(\d+)")


def materialize(
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake.")],
    plan: Annotated[str, typer.Argument(help="Name or hash of the plan.")],
    workers: Annotated[
        int, typer.Option(min=0, help="Processes that write; 0 writes in this one.")
    ] = 1,
    codec: Annotated[
        Literal["copy", "h264", "mjpeg", "png"],
        typer.Option(
            help="copy keeps the recorded packets: the same batches, bit for bit. The others encode"
            " each pack's pictures anew; png without loss."
        ),
    ] = "copy",
    image_size: Annotated[
        str | None,
        typer.Option(metavar="HxW", help="Scale pictures before they are encoded, as loading does"),
    ] = None,
    quality: Annotated[
        int | None,
        typer.Option(
            help="h264: crf, 0 to 51. mjpeg: quantiser scale, 2 to 31. Less is better."
            " [default: 18 and 3]"
        ),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete the packs of these options instead.")
    ] = False,
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Write each pack of a plan as one row, so that loading reads a pack in one go.

    The plan and positions in it stay valid: training may change between the episodes and their
    packs in the middle of an epoch. Give the same command again to finish one that was stopped.

    Example: headrace plan materialize robots.lake mix --workers 8 --codec h264 --image-size 224x224
    """
    from lake import open_lake
    from loader.materialized.settings import MaterializedSettings
    from packing.stored_plan import open_plan

    settings = MaterializedSettings(
        codec=codec, image_size=_image_size(image_size), quality=quality
    )
    opened = open_lake(lake, storage_options=storage_options(store))
    if remove:
        _remove(opened, plan, settings, as_json=as_json)
        return
    report = write_packs(opened, open_plan(opened, plan), settings, workers)
    if as_json:
        typer.echo(json.dumps(report_document(report)))
    else:
        print_report(report, lake, plan)


def write_packs(
    lake: "Lake", plan: "AnyPlan", settings: "MaterializedSettings", workers: int
) -> "MaterializedReport":
    """Materialise under a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from loader.materialized.materialize import materialize as write
    from loader.materialized.report import report_of

    console = Console(stderr=True)
    with Progress(
        TextColumn("materialising {task.fields[set_name]}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} packs, {task.fields[size]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=None, size="", set_name=settings.name)

        def show(done: int, total: int, size: int) -> None:
            progress.update(task, completed=done, total=total, size=f"{size / 1e6:,.0f} MB")

        target = write(lake, plan, settings, workers=workers, on_progress=show)
    return report_of(target, plan)


def report_document(report: "MaterializedReport") -> dict[str, Any]:
    """All figures as plain JSON."""
    return {
        **asdict(report),
        "bytes_per_pack": round(report.bytes_per_pack, 1),
        "bytes_per_span": round(report.bytes_per_span, 1),
        "amplification": round(report.amplification, 4),
    }


def print_report(report: "MaterializedReport", lake: str, plan: str) -> None:
    """The figures for people, and how to load the packs."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"packs of {plan}: {report.name}", title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    size = f"{report.data_bytes / 1e6:,.1f} MB, of it {report.video_bytes / 1e6:,.1f} MB of video"
    for name, value in (
        ("packs", f"{report.packs} of {report.num_packs}, with {report.spans} spans"),
        ("size", size),
        ("per pack", f"{report.bytes_per_pack / 1e3:,.1f} kB"),
        ("per span", f"{report.bytes_per_span / 1e3:,.1f} kB"),
        (
            "amplification",
            (
                f"{report.amplification:.2f} times the {report.episode_bytes / 1e6:,.1f} MB of the"
                " plan's episodes, all epochs in one"
            ),
        ),
        ("pictures", _fidelity(report)),
        ("at", report.uri),
    ):
        table.add_row(name, value)
    console = Console(highlight=False)
    console.print(table)
    chosen = "--materialized" if report.exact else f"--set {report.name}"
    console.print(f"load them with: headrace load {lake} {plan} {chosen}", soft_wrap=True)


def materialized_sets(lake: "Lake", plan_hash: str) -> list[dict[str, Any]] | None:
    """The sets of a plan as plain JSON; None where the lake cannot be listed."""
    from lake.errors import LakeError
    from loader.materialized.pack_set import list_sets

    try:
        return [asdict(entry) for entry in list_sets(lake, plan_hash)]
    except LakeError:
        return None


def sets_text(sets: list[dict[str, Any]] | None) -> str:
    """The sets in a few words."""
    if sets is None:
        return "unknown: they cannot be listed"
    return ", ".join(
        entry["name"]
        if entry["packs"] == entry["num_packs"]
        else f"{entry['name']} ({entry['packs']} of {entry['num_packs']} packs)"
        for entry in sets
    )


def _fidelity(report: "MaterializedReport") -> str:
    if report.exact:
        return f"{report.pictures}, recorded packets: batches equal those from the episodes"
    if report.psnr_db is None:
        return f"{report.pictures}, equal to those that were encoded"
    return f"{report.pictures}, PSNR {report.psnr_db:.1f} dB against those that were encoded"


def _remove(lake: "Lake", plan: str, settings: "MaterializedSettings", *, as_json: bool) -> None:
    from loader.materialized.pack_set import remove_set
    from packing.plan_store import find_plan

    remove_set(lake, find_plan(lake, plan).plan_hash, settings)
    if as_json:
        typer.echo(json.dumps({"removed": settings.name}))
    else:
        typer.echo(f"removed the materialised packs {settings.name} of {plan}")


def _image_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    if (found := _SIZE.fullmatch(text)) is None:
        raise OptionError(f"--image-size {text!r}: write HEIGHTxWIDTH, such as 224x224")
    return int(found[1]), int(found[2])

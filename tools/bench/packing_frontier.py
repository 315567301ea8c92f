"""A picture of what shuffling costs: quality, decoded frames and memory over the open runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packing.errors import PackingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_frontier(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw rows of `packing_windows.row_of`, a column per number of slots.

    The dashed line is the planner's choice, dotted ones a global shuffle.

    Raises:
        PackingError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PackingError(
            "a picture needs matplotlib, which is not installed: pip install 'headrace[packing]'"
        ) from error
    slots = sorted({row["slots"] for row in rows})
    figure = Figure(figsize=(5.5 * len(slots), 9), layout="constrained")
    grid = figure.subplots(3, len(slots), squeeze=False, sharex="col", sharey="row")
    for column, count in enumerate(slots):
        ours = [row for row in rows if row["slots"] == count and row["order"] == "runs"]
        shuffled = [row for row in rows if row["slots"] == count and row["order"] == "shuffled"]
        grid[0][column].set_title(f"steps of {count} x 32 windows")
        _draw(grid[0][column], ours, [], "near-duplicates")
        _draw(grid[0][column], ours, [], "Q")
        _draw(grid[1][column], ours, shuffled, "decoded/wanted")
        _draw(grid[2][column], ours, shuffled, "GB kept")
        grid[2][column].set_yscale("log")
        grid[2][column].set_xlabel("open runs")
    for axes, label in zip(
        grid[:, 0],
        ("of a global shuffle, 1 is best", "frames decoded per frame shown", "GB of frames kept"),
        strict=True,
    ):
        axes.set_ylabel(label)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise PackingError(f"cannot write the picture {path}: {error}") from error


def _draw(
    axes: "Axes",
    rows: Sequence[Mapping[str, Any]],
    shuffled: Sequence[Mapping[str, Any]],
    *figures: str,
) -> None:
    """Draw the columns whose names begin so, as far as they are measured."""
    open_runs = [row["open runs"] for row in rows]
    for name in rows[0]:
        if not name.startswith(figures) or rows[0][name] == "-":
            continue
        ranks = name.partition(", ")[2]
        [line] = axes.plot(
            open_runs,
            [row[name] for row in rows],
            label=f"{ranks} rank{'s' if int(ranks) > 1 else ''}" if ranks else name,
            linestyle="--" if name == "near-duplicates" else "-",
            marker="o",
            markersize=3,
        )
        for row in shuffled:
            axes.axhline(row[name], color=line.get_color(), linestyle=":", linewidth=1)
    for row in rows:
        if row["chosen"] == "yes":
            axes.axvline(row["open runs"], color="grey", linestyle="--", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")

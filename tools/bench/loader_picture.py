"""Bars of CPU per window sample, a panel per coding of the video."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packing.picture_file import new_figure, write_figure

_CPU: Final = "CPU ms per sample"
_BAR_IN: Final = 0.32


def draw_contenders(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the table of window samples.

    Args:
        rows: of `headrace bench loader`; contenders that are not installed are left out.
        path: its suffix says which format.

    Raises:
        PackingError: matplotlib is not installed, or the file cannot be written.
    """
    measured = [row for row in rows if row[_CPU] != "-"]
    videos = list(dict.fromkeys(row["video"] for row in measured))
    counts = [sum(row["video"] == video for row in measured) for video in videos]
    figure = new_figure(9.0, 1.0 + _BAR_IN * sum(counts) + 0.8 * len(videos))
    panels = figure.subplots(
        len(videos), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": counts}
    )[:, 0]
    for axes, video in zip(panels, videos, strict=True):
        shown = [row for row in measured if row["video"] == video][::-1]
        middle, least, most = zip(*(_spread(row[_CPU]) for row in shown), strict=True)
        errors = [
            [m - low for m, low in zip(middle, least, strict=True)],
            [high - m for m, high in zip(middle, most, strict=True)],
        ]
        colours = ["tab:blue" if _is_ours(row) else "tab:grey" for row in shown]
        names = [f"{row['contender']}  (Q1 {row['Q1']})" for row in shown]
        axes.barh(names, middle, xerr=errors, color=colours)
        axes.bar_label(axes.containers[-1], labels=[f"{m:.2f}" for m in middle], padding=3)
        axes.set_title(video, loc="left", fontsize=10)
    panels[-1].set_xlabel("CPU ms per sample: 2 pictures, 50 actions")
    write_figure(figure, path)


def _is_ours(row: Mapping[str, Any]) -> bool:
    return str(row["contender"]).lower().startswith("window")


def _spread(text: str) -> tuple[float, float, float]:
    """The figures of `median [least, most]`."""
    middle, least, most = text.replace(",", "").replace("[", "").replace("]", "").split()
    return float(middle), float(least), float(most)

"""A picture of played episodes: what the cameras saw, or where the tip went."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from training.simulation.errors import SimulationError, SimulatorMissingError
from training.simulation.rollout import RolloutResult
from training.simulation.task import BLOCK_HALF_M, COLOURS, WORKSPACE_M

_COLUMNS: Final = 8


def save_rollout_picture(
    path: Path, results: Sequence[RolloutResult], *, camera: str = "top", title: str = ""
) -> None:
    """Save a contact sheet: one row per episode, seen evenly through time, and its path.

    Without pictures of `camera` a row is the path of the tip alone, seen from above.

    Args:
        path: file to write; the suffix chooses the format (`.png`, `.svg`, ...).
        results: played episodes, at least one.
        camera: which camera to show.
        title: line above the picture.

    Raises:
        SimulationError: nothing to show, or the file cannot be written.
        SimulatorMissingError: matplotlib is not installed.
    """
    if not results:
        raise SimulationError("no played episode to draw")
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  optional and slow
    except ModuleNotFoundError as error:
        raise SimulatorMissingError(
            "pictures need matplotlib: pip install 'headrace[sim]'"
        ) from error
    columns = (_COLUMNS if any(camera in r.images for r in results) else 0) + 1
    figure = Figure(
        figsize=(max(1.5 * columns, 5), 1.75 * len(results) + 0.5), layout="constrained"
    )
    axes = figure.subplots(len(results), columns, squeeze=False)
    for row, result in zip(axes, results, strict=True):
        _draw_path(row[-1], result)
        pictures = result.images.get(camera, ())
        most = min(columns - 1, len(pictures))  # a short episode has fewer steps than columns
        shown = np.linspace(0, max(0, len(pictures) - 1), most).round().astype(int)
        for axis in row[:-1]:
            axis.set_axis_off()
        for axis, step in zip(row, shown, strict=False):
            axis.imshow(pictures[step])
            axis.text(1, 1, f"step {step}", fontsize=7, color="white", verticalalignment="top")
        outcome = "touched it" if result.success else _failure(result)
        if columns > 1:
            row[-1].set_title("its path", fontsize=7)
        row[0].set_title(f'"{result.start.instruction}": {outcome}', fontsize=7, loc="left")
    if title:
        figure.suptitle(title, fontsize=9)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise SimulationError(f"cannot write the picture {path}: {error}") from error


def _failure(result: RolloutResult) -> str:
    if result.touched is None:
        return "ran out of time"
    return f"touched {tuple(COLOURS)[result.touched]}"


def _draw_path(axis: Any, result: RolloutResult) -> None:  # noqa: ANN401  matplotlib is optional
    x, y = result.states[:, 0], result.states[:, 1]
    for colour, (block_x, block_y, turn) in zip(COLOURS, result.start.blocks, strict=False):
        corners = BLOCK_HALF_M * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
        turned = corners @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
        axis.fill(turned[:, 0] + block_x, turned[:, 1] + block_y, color=COLOURS[colour], alpha=0.6)
    axis.plot(x, y, color="black", linewidth=1)
    axis.plot(x[:1], y[:1], "o", color="black", markersize=3)
    axis.set_xlim(-WORKSPACE_M, WORKSPACE_M)
    axis.set_ylim(-WORKSPACE_M, WORKSPACE_M)
    axis.set_aspect("equal")
    axis.set_xticks([])
    axis.set_yticks([])

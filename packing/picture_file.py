"""Pictures: a figure to draw on, and the file it is written to."""

from pathlib import Path
from typing import TYPE_CHECKING

from packing.errors import PackingError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width_in: float, height_in: float) -> "Figure":
    """An empty figure of a size in inches.

    Raises:
        PackingError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - of the extra, and slow to import
    except ImportError as error:
        raise PackingError(
            "a picture needs matplotlib, which is not installed: pip install 'headrace[packing]'"
        ) from error
    return Figure(figsize=(width_in, height_in), layout="constrained")


def write_figure(figure: "Figure", path: Path) -> None:
    """Write a figure; the suffix of `path` decides the format (png, svg, pdf).

    Raises:
        PackingError: the file cannot be written.
    """
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise PackingError(f"{path}: the picture cannot be written: {error}") from error

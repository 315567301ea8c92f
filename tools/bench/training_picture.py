"""Loss curves of packed, padded and FP8 training, one over the other."""

from pathlib import Path

from packing.picture_file import new_figure, write_figure
from tools.bench.training_curves import LossCurves


def draw_curves(curves: LossCurves, path: Path) -> None:
    """Draw the curves, and their relative gaps to the packed one below.

    Args:
        curves: of the same training.
        path: its suffix says which format.

    Raises:
        PackingError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(8.0, 6.0)
    above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1]})
    steps = range(1, len(curves.packed) + 1)
    above.plot(steps, curves.padded, color="tab:grey", linewidth=4, alpha=0.5, label="padded")
    above.plot(steps, curves.packed, color="tab:blue", linewidth=1, label="packed")
    above.plot(steps, curves.fp8, color="tab:orange", linewidth=1, label="packed, FP8 emulated")
    above.set_ylabel("loss (mean over action values)")
    above.legend()
    for other, colour in ((curves.padded, "tab:grey"), (curves.fp8, "tab:orange")):
        gaps = [abs(a - b) / a for a, b in zip(curves.packed, other, strict=True)]
        below.plot(steps, gaps, color=colour, linewidth=1)
    below.set_ylabel("relative gap")
    below.set_yscale("symlog", linthresh=1e-8)
    below.set_xlabel("optimizer step")
    for axes in (above, below):
        axes.grid(visible=True, alpha=0.3)
    write_figure(figure, path)

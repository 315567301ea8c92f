"""A picture of the loss over steps."""

from pathlib import Path

from training.errors import TrainingError
from training.logs.metrics import read_metrics


def save_loss_picture(metrics: Path, picture: Path) -> None:
    """Plot loss and learning rate of a run.

    Args:
        metrics: the run's `metrics.jsonl`.
        picture: PNG to write.

    Raises:
        TrainingError: there are no metrics, matplotlib is not installed, or the picture cannot be
            written.
    """
    try:
        # The object interface: no global state, no display.
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise TrainingError(
            "a loss picture needs matplotlib: pip install 'headrace[sim]'"
        ) from error
    lines = read_metrics(metrics)
    if not lines:
        raise TrainingError(f"{metrics} holds no step yet")
    steps = [line["step"] for line in lines]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, [line["loss"] for line in lines], color="tab:blue")
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("loss (mean over action values)")
    axes.set_yscale("log")
    axes.grid(visible=True, which="both", alpha=0.3)
    rate = axes.twinx()
    rate.plot(steps, [line["lr"] for line in lines], color="tab:gray", linewidth=0.8)
    rate.set_ylabel("learning rate", color="tab:gray")
    partial = picture.with_name(f".partial-{picture.name}")
    try:
        figure.savefig(partial, format="png", dpi=110)
        partial.replace(picture)
    except OSError as error:
        raise TrainingError(f"cannot write the picture {picture}: {error}") from error

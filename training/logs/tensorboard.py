"""The figures of a run for TensorBoard."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from training.errors import ConfigError
from training.logs.metrics import StepMetrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def open_tensorboard(folder: Path, *, first_step: int) -> "SummaryWriter":
    """A writer that hides what an earlier attempt wrote of the steps after `first_step`.

    Raises:
        ConfigError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  # only where asked for
    except ImportError as error:
        raise ConfigError(
            "observe.tensorboard needs TensorBoard: pip install 'headrace[tensorboard]'"
        ) from error
    return SummaryWriter(str(folder), purge_step=first_step + 1)


def write_step(writer: "SummaryWriter", metrics: StepMetrics) -> None:
    """Add every figure of a step, and of the ranks the largest one."""
    for name, value in asdict(metrics).items():
        if isinstance(value, tuple):
            writer.add_scalar(f"ranks/{name.removeprefix('rank_')}_max", max(value), metrics.step)
        elif value is not None and name != "step":
            writer.add_scalar(f"train/{name}", value, metrics.step)
    writer.flush()

"""Metrics of a training step, written as JSON lines."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import torch

from training.errors import TrainingError

# Dense BF16 peak of one device in FLOP/s, from the vendor's data sheets (without sparsity).
_PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "B200": 2250e12, "A100": 312e12}


@dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """One optimizer step, over all ranks.

    Attributes:
        step: steps done, this one included.
        epoch: of the plan.
        loss: global mean over action values.
        lr: learning rate used.
        grad_norm: before clipping.
        action_values: what the loss is a mean over.
        tokens, spans: prefix and action tokens of spans, and their number.
        bad_spans: of them, those that are damaged in the lake and were without loss.
        padding_share: padding over all tokens of the plan's packs.
        step_s: wall time of the step with its data.
        data_wait_share: part of it that a rank waited for data, mean over ranks.
        tokens_per_s, spans_per_s: over all ranks.
        mfu: share of the devices' peak, None where the peak is not known (CPUs).
        rank_wait_s: of each rank, waiting for data.
        rank_compute_s: of each rank, forward and backward, with what of the exchange of gradients
            is not hidden behind them.
        rank_sync_s: of each rank, waiting for the slowest one before the update.
    """

    step: int
    epoch: int
    loss: float
    lr: float
    grad_norm: float
    action_values: int
    tokens: int
    spans: int
    bad_spans: int
    padding_share: float
    step_s: float
    data_wait_share: float
    tokens_per_s: float
    spans_per_s: float
    mfu: float | None
    rank_wait_s: tuple[float, ...]
    rank_compute_s: tuple[float, ...]
    rank_sync_s: tuple[float, ...]


class MetricsLog:
    """Append-only JSON lines; a resumed run goes on in the same file.

    The first line of each attempt is `{"attempt": n, "first_step": s, ...}`.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        # A killed attempt may have left half a line: it must not swallow the one written next.
        torn = path.exists() and _last_byte(path) not in {b"", b"\n"}
        self._file: TextIO = path.open("a", encoding="utf-8")
        if torn:
            self._file.write("\n")
        self._write(header)

    def write(self, metrics: StepMetrics) -> None:
        """Append a line and hand it to the system, so that a kill loses none."""
        self._write(asdict(metrics))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        return file.read(1)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Lines of the surviving trajectory: of a step trained twice, the newer; ordered by step.

    Raises:
        TrainingError: the file cannot be read.
    """
    by_step: dict[int, dict[str, Any]] = {}
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TrainingError(f"cannot read the metrics {path}: {error}") from error
    for line in text.splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            continue  # half a line of a killed process
        if "first_step" in values:
            by_step = {s: v for s, v in by_step.items() if s <= values["first_step"]}
        else:
            by_step[values["step"]] = values
    return [by_step[step] for step in sorted(by_step)]


def peak_flops(device: torch.device) -> float | None:
    """Dense BF16 peak of a device, None where it is not in the table."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for known, peak in _PEAK_FLOPS.items() if known in name), None)

"""What an attempt of a run writes beside its checkpoints: metrics and the ledger of spans."""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from loader.batch import PackedBatch
from training.distributed import Ranks, barrier
from training.ledger import Consumed, Ledger, next_attempt
from training.metrics import MetricsLog, StepMetrics


class Records:
    """Context manager over the files of this attempt; every rank opens it.

    Args:
        out: folder of the run.
        ranks: of this process.
        first_step: at which the attempt begins.
        facts: what the attempt runs with (configuration, backend), for the metrics' first line.
        every: steps between two lines of metrics.
    """

    def __init__(
        self, out: Path, ranks: Ranks, first_step: int, *, facts: dict[str, Any], every: int
    ) -> None:
        folder = out / "ledger"
        attempt = next_attempt(folder)
        barrier()  # all ranks have counted before one of them adds a file
        self._every, self._first = every, first_step
        self._ledger = Ledger(folder, rank=ranks.rank, attempt=attempt, first_step=first_step)
        self._metrics = (
            MetricsLog(
                out / "metrics.jsonl", {"attempt": attempt, "first_step": first_step, **facts}
            )
            if ranks.is_first
            else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ledger.close()
        if self._metrics is not None:
            self._metrics.close()

    def step(self, packs: Iterable[PackedBatch[Tensor]], metrics: StepMetrics) -> None:
        """Write down a step whose update is done."""
        self._ledger.record(
            [
                Consumed(
                    step=pack.step,
                    slot=pack.slot,
                    epoch=pack.epoch,
                    span_ids=tuple(pack.span_ids[: pack.num_spans].tolist()),
                )
                for pack in packs
                if pack.num_spans
            ]
        )
        done = metrics.step - self._first
        if self._metrics is not None and (done == 1 or metrics.step % self._every == 0):
            self._metrics.write(metrics)

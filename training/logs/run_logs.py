"""What an attempt of a run writes beside its checkpoints: metrics and the ledger of spans."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from loader.batch import PackedBatch
from training.distributed import Ranks, barrier
from training.errors import TrainingError
from training.logs.ledger import Consumed, Ledger, next_attempt
from training.logs.metrics import MetricsLog, StepMetrics
from training.logs.tensorboard import open_tensorboard, write_step


class Records:
    """Context manager over the files of this attempt; every rank opens it.

    Args:
        out: folder of the run.
        ranks: of this process.
        first_step: at which the attempt begins.
        facts: what the attempt runs with (configuration, backend), for the metrics' first line.
        every: steps between two lines of metrics.
        tensorboard: write the lines for TensorBoard too.

    Raises:
        ConfigError: TensorBoard is asked for and not installed.
        TrainingError: the files cannot be written (a full disk).
    """

    def __init__(
        self,
        out: Path,
        ranks: Ranks,
        first_step: int,
        *,
        facts: dict[str, Any],
        every: int,
        tensorboard: bool = False,
    ) -> None:
        folder = out / "ledger"
        attempt = next_attempt(folder)
        barrier()  # all ranks have counted before one of them adds a file
        self._out, self._every, self._first = out, every, first_step
        self._metrics: MetricsLog | None = None
        self._board = (
            open_tensorboard(out / "tensorboard", first_step=first_step)
            if tensorboard and ranks.is_first
            else None
        )
        with _written_into(out):
            self._ledger = Ledger(folder, rank=ranks.rank, attempt=attempt, first_step=first_step)
            if ranks.is_first:
                header = {"attempt": attempt, "first_step": first_step, **facts}
                self._metrics = MetricsLog(out / "metrics.jsonl", header)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Each step was flushed; what a full disk left in a buffer has been reported.
        with suppress(OSError):
            self._ledger.close()
        if self._metrics is not None:
            with suppress(OSError):
                self._metrics.close()
        if self._board is not None:
            self._board.close()

    def step(
        self,
        packs: Iterable[PackedBatch[Tensor]],
        metrics: StepMetrics,
        *,
        is_last: bool = False,
    ) -> None:
        """Write down a step whose update is done.

        Args:
            packs: that it consumed on this rank.
            metrics: its figures.
            is_last: the run ends with it, so that its figures are written whatever the interval.

        Raises:
            TrainingError: it cannot be written (a full disk).
        """
        consumed = [
            Consumed(
                step=pack.step,
                slot=pack.slot,
                epoch=pack.epoch,
                span_ids=tuple(pack.span_ids[: pack.num_spans].tolist()),
                occurrences=tuple(pack.occurrence_ids[: pack.num_spans].tolist()),
            )
            for pack in packs
            if pack.num_spans
        ]
        done = metrics.step - self._first
        with _written_into(self._out):
            self._ledger.record(consumed)
            due = is_last or done == 1 or metrics.step % self._every == 0
            if self._metrics is not None and due:
                self._metrics.write(metrics)
                if self._board is not None:
                    write_step(self._board, metrics)


@contextmanager
def _written_into(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrainingError(
            f"cannot write the records of the run into {out}: {error}; make room, and the same"
            " command goes on from the last checkpoint"
        ) from error

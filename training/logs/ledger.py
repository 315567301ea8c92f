"""The ledger of consumed spans: what each rank really trained on, appended once per step.

One file per attempt (a start or a resume) and rank. A line is written after the optimizer step
that consumed it. An attempt that was killed leaves lines beyond its last checkpoint; the attempt
that resumed from there trained on these steps again, and its lines are the ones that count: the
*surviving trajectory* is what led to the newest weights.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from training.errors import TrainingError


@dataclass(frozen=True, kw_only=True)
class Consumed:
    """One pack that contributed to the weights.

    `occurrences` holds for each span how often it occurred in the epoch before.
    """

    step: int
    slot: int
    epoch: int
    span_ids: tuple[int, ...]
    occurrences: tuple[int, ...]


class Ledger:
    """Append-only record of one attempt and rank.

    Args:
        folder: of the run's ledger.
        rank: of this process.
        attempt: number of this start, counted from 0.
        first_step: at which it began.
    """

    def __init__(self, folder: Path, *, rank: int, attempt: int, first_step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"attempt-{attempt:04d}-rank-{rank:04d}.jsonl"
        self._file: TextIO = path.open("x", encoding="utf-8")
        self._write({"first_step": first_step})

    def record(self, packs: Sequence[Consumed]) -> None:
        """Append the packs of one step."""
        for pack in packs:
            self._write(asdict(pack))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")


def next_attempt(folder: Path) -> int:
    """Number of the next start of a run."""
    attempts = [int(path.name.split("-")[1]) for path in folder.glob("attempt-*.jsonl")]
    return max(attempts, default=-1) + 1


def surviving_trajectory(folder: Path, *, stop_step: int | None = None) -> list[Consumed]:
    """All packs that led to the newest weights, ordered by step and slot.

    Args:
        folder: of the run's ledger.
        stop_step: leave out this step and later ones (those after a checkpoint).

    Raises:
        TrainingError: a line other than the last of a file cannot be read.
    """
    attempts: dict[int, list[Path]] = {}
    for path in sorted(folder.glob("attempt-*.jsonl")):
        attempts.setdefault(int(path.name.split("-")[1]), []).append(path)
    packs: list[Consumed] = []
    end = stop_step
    for attempt in sorted(attempts, reverse=True):
        first = None
        for path in attempts[attempt]:
            lines = _lines(path)
            header = next(lines, None)
            if header is None:
                continue
            first = int(header["first_step"])
            packs += [pack for pack in map(_consumed, lines) if end is None or pack.step < end]
        if first is not None:
            end = first if end is None else min(end, first)
    return sorted(packs, key=lambda pack: (pack.step, pack.slot))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for number, line in enumerate(lines):
        try:
            yield json.loads(line)
        except ValueError as error:
            # A process killed while it wrote leaves half a last line, of a step that no
            # checkpoint can hold.
            if number == len(lines) - 1 and not text.endswith("\n"):
                return
            raise TrainingError(f"{path}, line {number + 1} is damaged: {error}") from error


def _consumed(line: dict[str, Any]) -> Consumed:
    lists = {name: tuple(line[name]) for name in ("span_ids", "occurrences")}
    return Consumed(**{**line, **lists})

"""The folder of a run, held by one training at a time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.distributed import Ranks
from training.errors import TrainingError


@contextmanager
def run_folder(out: Path, ranks: Ranks) -> Iterator[None]:
    """Make the folder of a run and hold it; the first rank does so for all.

    The kernel drops the lock however the process ends, so that a killed run can be resumed at
    once.

    Raises:
        TrainingError: another training writes into it, or it cannot be made.
    """
    if not ranks.is_first:
        yield
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("w", encoding="utf-8")
    except OSError as error:
        raise TrainingError(
            f"cannot write into {out} ({error.strerror}): use another --out"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(
                f"another training writes into {out} now: wait for its end, or use another --out"
            ) from None
        except OSError:
            pass  # a file system that knows no locks
        yield

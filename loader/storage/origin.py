"""Reading from the lake itself: bounded in time and requests, repeated, watched."""

import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final, TypeVar

from lake.errors import LakeError
from lake.object_store import is_object_store
from lake.store import Lake
from lake.transient import is_refused, is_throttled, is_transient
from loader.errors import LoaderError, StorageTimeoutError
from loader.observe.metrics import LoaderMetrics
from loader.storage.request_budget import RequestBudget, budget_of_process
from loader.storage.settings import StorageSettings
from loader.storage.watchdog import Watchdog

_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 20.0
_CONNECT_S: Final = 5.0
_LONGEST_REASON: Final = 400

Read = TypeVar("Read")


def bounded(lake: Lake, settings: StorageSettings) -> Lake:
    """The same lake with time-outs for each request to its object store; the user's own win.

    Lance repeats a failed request in three layers, of which only two can be told how often: these
    values bound one read to about four times the sum of both time-outs.
    """
    if not is_object_store(lake.uri):
        return lake
    timeout_s = settings.request_timeout_s
    return lake.with_default_options(
        {
            "timeout": f"{math.ceil(timeout_s * 1000)}ms",
            "connect_timeout": f"{math.ceil(min(timeout_s, _CONNECT_S) * 1000)}ms",
            "client_max_retries": "3",
            "client_retry_timeout": str(math.ceil(timeout_s)),
            "download_retry_count": "3",
            "lance_aimd_max_retries": "1",
        }
    )


def full_jitter(first_s: float, longest_s: float, draw: Callable[[], float]) -> Iterator[float]:
    """Waits before each next attempt, for ever: `draw()` in [0, 1) of a ceiling that doubles.

    "Full jitter" of M. Brooker, Exponential Backoff And Jitter (AWS Architecture Blog, 2015): who
    failed together does not come back together.
    """
    ceiling_s = first_s
    while True:
        yield draw() * ceiling_s
        ceiling_s = min(2 * ceiling_s, longest_s)


class Origin:
    """Runs the reads of one lake; safe to use from several threads.

    Args:
        lake: that is read.
        settings: see `StorageSettings`.
        metrics: where retries and slow reads are counted.
        reopen: drops what is open of the lake, and what Lance keeps of it.
        clock: monotonic seconds.
        sleep: waits; where not given, until `close` at the longest.
    """

    def __init__(
        self,
        lake: Lake,
        settings: StorageSettings,
        metrics: LoaderMetrics,
        *,
        reopen: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._lake = lake
        self._reopen = reopen or lake.reopen
        self._uri = lake.uri
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._closing = threading.Event()
        self._sleep = sleep or self._closing.wait
        self._budget: RequestBudget | None = None
        if is_object_store(lake.uri):
            self._budget = budget_of_process(
                lake.uri, settings.requests_per_node, settings.cache_dir
            )
        self._watchdog = Watchdog(
            settings.stall_warning_s, lambda: metrics.add(slow_reads=1), clock=clock
        )

    def read(self, what: Callable[[], str], attempt: Callable[[], Read]) -> Read:
        """Call `attempt` until it succeeds; what failed in passing is repeated.

        Any other failure is looked at once more: credentials may be renewed, and what Lance keeps
        of a table may have been damaged on its way. Each further attempt but those of a store that
        asks for patience opens the table anew, past what Lance keeps.

        Args:
            what: names what is read.
            attempt: reads; harmless to repeat.

        Raises:
            LakeError: as `attempt`, where repeating does not help.
            StorageTimeoutError: it failed until the deadline.
            LoaderError: `close` was called meanwhile.
        """
        begin, reason, second_look = self._clock(), "", False

        def doing() -> str:
            return f"reading {what()} of {self._uri}{reason and f' (last failure: {reason})'}"

        waits = full_jitter(_FIRST_WAIT_S, _LONGEST_WAIT_S, random.random)
        with self._watchdog.watching(doing):
            for attempts, waiting_s in enumerate(waits, 1):
                wait_s = waiting_s
                with self._slot():
                    self._require_open()
                    try:
                        return attempt()
                    except LakeError as error:
                        if not is_transient(self._uri, error):
                            if second_look:
                                raise
                            second_look, wait_s = True, 0.0
                            if is_refused(error):
                                self._lake.renew_credentials()
                        reason = str(error)[:_LONGEST_REASON]
                        spent_s = self._clock() - begin
                        if spent_s + wait_s > self._settings.deadline_s:
                            raise self._timeout(what(), attempts, spent_s, reason) from error
                        throttled = is_throttled(error)
                    self._metrics.add(retries=1)
                    if throttled:  # waits with its slot, so that the whole node asks for less
                        self._sleep(wait_s)
                if not throttled:
                    self._reopen()
                    self._sleep(wait_s)
                self._require_open()
        raise AssertionError("the waits never end")

    def close(self) -> None:
        """End waiting, and the watchdog's thread."""
        self._closing.set()
        self._watchdog.close()

    def _require_open(self) -> None:
        if self._closing.is_set():
            raise LoaderError(f"{self._uri}: the loader was closed while it read")

    def _timeout(
        self, what: str, attempts: int, spent_s: float, reason: str
    ) -> StorageTimeoutError:
        return StorageTimeoutError(
            f"{self._uri}: {what} could not be read: failed {attempts} times in {spent_s:.0f} s, at"
            f" last with: {reason}; look at the store and the network, then go on from the last"
            f" saved position, or raise deadline_s ({self._settings.deadline_s:g}) of the loader's"
            " StorageSettings"
        )

    def _slot(self) -> AbstractContextManager[None]:
        return (
            nullcontext() if self._budget is None else self._budget.slot(self._sleep, self._clock)
        )

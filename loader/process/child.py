"""The consumer's side of a decode process: start it, receive batches, let go of buffers."""

import contextlib
import mmap
import os
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loader.errors import LoaderError, WorkerDiedError
from loader.observe.metrics import LoaderMetrics
from loader.process.child_process import ChildProcess
from loader.process.error_wire import error_from_message
from loader.process.job import Job
from loader.process.received import Received
from loader.process.wire import Frame
from loader.storage.watchdog import WaitNotice

_SHOW_S: Final = 1.0
_STACKS_S: Final = 5.0  # for which a process is waited for that was asked what it is doing
_SETTLED_S: Final = 0.1


class DecodeProcess:
    """One running `loader.process.worker`; `close` (or the garbage collector) ends it.

    Raises:
        LoaderError: no process can be started.
        WorkerDiedError: it ended at once.
    """

    def __init__(self, job: Job, plan_fd: int) -> None:
        self._process = ChildProcess(
            "loader.process.worker", what="decode process", hint="process='inline' needs none"
        )
        self._maps: dict[int, mmap.mmap] = {}
        self._released: deque[int] = deque()
        self._news: dict[str, list[int]] = {"taken": [], "released": []}  # not told yet
        self._cpu_s = 0.0
        self._ahead_bytes = 0
        self._job = job
        self._process.send(job.to_message(), (plan_fd,))

    def batches(self, metrics: LoaderMetrics) -> Iterator[Received]:
        """Batches as they come; each is counted as taken when it is yielded.

        Raises:
            HeadraceError: what the decode process raised.
            WorkerDiedError: it ended without a word, or hangs (see
                `StorageSettings.batch_timeout_s`) and was killed; says in what.
            LoaderError: asked for in a fork of the process that started it.
        """
        while True:
            received = self._receive(metrics)
            self._process.stderr.show()
            if received is None:
                raise WorkerDiedError(self._process.obituary())
            message, fds = received
            if "error" in message:
                raise error_from_message(message)
            metrics.absorb(message["metrics"])
            metrics.worker_cpu_s += message["cpu_s"] - self._cpu_s
            self._cpu_s = message["cpu_s"]
            metrics.ahead_bytes += message["ahead_bytes"] - self._ahead_bytes
            self._ahead_bytes = message["ahead_bytes"]
            if "end" in message:
                return
            yield self._take(message, fds)

    def _receive(self, metrics: LoaderMetrics) -> tuple[dict[str, Any], tuple[int, ...]] | None:
        storage = self._job.storage
        notice = WaitNotice(storage.stall_warning_s, lambda: self._awaited(metrics))
        # Counted in waits and not by the clock: where all processes of a job are stopped for a
        # while, as by a debugger or a scheduler, none of them hangs.
        silent_s, spoke = 0.0, False
        while True:
            if os.getpid() != self._process.owner_pid:
                raise LoaderError(
                    f"this iteration belongs to process {self._process.owner_pid}, which would miss"
                    " what its fork takes: iterate over the loader anew in the fork"
                )
            try:
                return self._process.channel.receive(_SHOW_S)
            except TimeoutError:
                silent_s += _SHOW_S
            self._acknowledge()
            spoke |= self._process.stderr.show()
            if silent_s >= storage.patience_s:
                return self._last_chance(metrics, silent_s)
            if notice.check():
                if not spoke:  # its own watchdog has not told them
                    self._process.ask_for_stacks()
                spoke = False

    def _last_chance(
        self, metrics: LoaderMetrics, silent_s: float
    ) -> tuple[dict[str, Any], tuple[int, ...]] | None:
        """A message that came after all.

        Raises:
            WorkerDiedError: none did.
        """
        stderr = self._process.stderr
        asked_at = told = stderr.written
        self._process.ask_for_stacks()
        for _ in range(round(_STACKS_S / _SETTLED_S)):
            with contextlib.suppress(TimeoutError):
                return self._process.channel.receive(_SETTLED_S)
            if asked_at < told == stderr.written:
                break
            told = stderr.written
        raise WorkerDiedError(
            f"{self._awaited(metrics)}, did not come within {silent_s:.0f} s:"
            f" {self._process.give_up(asked_at)}; go on from the last saved position, or raise"
            " batch_timeout_s of the loader's StorageSettings where batches may take longer"
        )

    def _awaited(self, metrics: LoaderMetrics) -> str:
        place, job = metrics.waiting_for, self._job
        which = "a batch" if place is None else f"step {place.step}, slot {place.slot}"
        return f"{which} of rank {job.rank}, from its decode process {job.worker}"

    def close(self) -> None:
        """End the process and wait for it; batches handed out stay valid."""
        self._process.close()
        self._maps.clear()

    def _take(self, message: dict[str, Any], fds: tuple[int, ...]) -> Received:
        batch: dict[str, int] = message["batch"]
        for number in message["dropped"]:
            self._maps.pop(number, None)
        number = batch["buffer"]
        for fd in fds:
            self._maps[number] = mmap.mmap(fd, batch["capacity"])
            os.close(fd)
        # A fresh array per batch: when nothing refers to it any more, the buffer is free.
        memory: NDArray[np.uint8] = np.frombuffer(self._maps[number], np.uint8)
        weakref.finalize(memory, self._released.append, number).atexit = False
        self._news["taken"].append(number)
        self._acknowledge()
        return Received(
            position=batch["position"],
            memory=memory,
            spans=batch["spans"],
            steps=batch["steps"],
            bad=Frame.parse(memory).bad_spans if batch["bad"] else (),
        )

    def _acknowledge(self) -> None:
        """Tell the process what was taken and released; later, where it does not read."""
        news = self._news
        news["released"] += [self._released.popleft() for _ in range(len(self._released))]
        if not any(news.values()):
            return
        with contextlib.suppress(ConnectionError):  # it ended; what it sent before is still good
            if not self._process.channel.offer(news):
                return
        self._news = {"taken": [], "released": []}

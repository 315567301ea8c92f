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
_SILENCE_S: Final = 60.0


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
        self._cpu_s = 0.0
        self._ahead_bytes = 0
        self._job = job
        # What it reads ends in data or an error within the deadline and the attempt that passes it.
        storage = job.storage
        self._patience_s = storage.deadline_s + 4 * storage.request_timeout_s + _SILENCE_S
        self._process.send(job.to_message(), (plan_fd,))

    def batches(self, metrics: LoaderMetrics) -> Iterator[Received]:
        """Batches as they come; each is counted as taken when it is yielded.

        Raises:
            HeadraceError: what the decode process raised.
            WorkerDiedError: it ended without a word, or hangs: it says nothing for longer than
                a read may take to end in an error, and a minute more.
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
        notice = WaitNotice(self._job.storage.stall_warning_s, lambda: self._awaited(metrics))
        while True:
            if os.getpid() != self._process.owner_pid:
                raise LoaderError(
                    f"this iteration belongs to process {self._process.owner_pid}, which would miss"
                    " what its fork takes: iterate over the loader anew in the fork"
                )
            try:
                return self._process.channel.receive(_SHOW_S)
            except TimeoutError:
                self._process.stderr.show()
                if notice.check():
                    self._process.show_stacks()
                if notice.waited_s > self._patience_s:
                    raise self._process.give_up(notice.waited_s) from None

    def _awaited(self, metrics: LoaderMetrics) -> str:
        place, job = metrics.waiting_for, self._job
        which = "a batch" if place is None else f"step {place.step}, slot {place.slot}"
        return f"{which} of rank {job.rank}, from its decode process {job.worker}, which is alive"

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
        released = [self._released.popleft() for _ in range(len(self._released))]
        with contextlib.suppress(ConnectionError):  # it ended; what it sent before is still good
            self._process.channel.send({"taken": [number], "released": released})
        return Received(
            position=batch["position"],
            memory=memory,
            spans=batch["spans"],
            steps=batch["steps"],
            bad=Frame.parse(memory).bad_spans if batch["bad"] else (),
        )

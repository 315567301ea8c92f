"""The consumer's side of a decode process: start it, receive batches, let go of buffers."""

import contextlib
import mmap
import os
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import loader
from loader.channel import Channel
from loader.child_stderr import ChildStderr
from loader.error_wire import error_from_message
from loader.errors import LoaderError, WorkerDiedError
from loader.job import Job
from loader.metrics import LoaderMetrics
from loader.received import Received

_PACKAGE_ROOT: Final = str(Path(loader.__file__).resolve().parents[1])
_EXIT_S: Final = 5.0
_SHOW_S: Final = 1.0


class DecodeProcess:
    """One running `loader.worker`; `close` (or the garbage collector) ends it.

    Raises:
        LoaderError: no process can be started.
        WorkerDiedError: it ended at once.
    """

    def __init__(self, job: Job, plan_fd: int) -> None:
        self._owner_pid = os.getpid()
        self._channel, theirs = Channel.pair()
        self._stderr = ChildStderr()
        self._maps: dict[int, mmap.mmap] = {}
        self._released: deque[int] = deque()
        self._cpu_s = 0.0
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "loader.worker", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stderr=self._stderr.fd,
                    env=_environment(),
                )
        except OSError as error:
            self._channel.close()
            self._stderr.close()
            raise LoaderError(
                f"no decode process can be started with {sys.executable!r} ({error});"
                " process='inline' needs none"
            ) from error
        self._finalizer = weakref.finalize(
            self, _end, self._owner_pid, self._process, self._channel, self._stderr
        )
        try:
            self._channel.send(job.to_message(), (plan_fd,))
        except ConnectionError as error:
            raise WorkerDiedError(self._obituary()) from error

    def batches(self, metrics: LoaderMetrics) -> Iterator[Received]:
        """Batches as they come; each is counted as taken when it is yielded.

        Raises:
            HeadraceError: what the decode process raised.
            WorkerDiedError: it ended without a word.
            LoaderError: asked for in a fork of the process that started it.
        """
        while True:
            received = self._receive()
            self._stderr.show()
            if received is None:
                raise WorkerDiedError(self._obituary())
            message, fds = received
            if "error" in message:
                raise error_from_message(message)
            metrics.absorb(message["metrics"])
            metrics.worker_cpu_s += message["cpu_s"] - self._cpu_s
            self._cpu_s = message["cpu_s"]
            if "end" in message:
                return
            yield self._take(message, fds)

    def _receive(self) -> tuple[dict[str, Any], tuple[int, ...]] | None:
        while True:
            if os.getpid() != self._owner_pid:
                raise LoaderError(
                    f"this iteration belongs to process {self._owner_pid}, which would miss what"
                    " its fork takes: iterate over the loader anew in the fork"
                )
            try:
                return self._channel.receive(_SHOW_S)
            except TimeoutError:
                self._stderr.show()

    def close(self) -> None:
        """End the process and wait for it; batches handed out stay valid."""
        self._finalizer()
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
            self._channel.send({"taken": [number], "released": released})
        return Received(
            position=batch["position"],
            memory=memory,
            spans=batch["spans"],
            steps=batch["steps"],
        )

    def _obituary(self) -> str:
        try:
            code = self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            return "the decode process closed its socket but still runs; please report this"
        self._stderr.show()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        hint = "; is the machine out of memory? lower buffer_bytes" if code == -9 else ""
        if last := self._stderr.last_words():
            hint += f"; its last words: {last}"
        return f"the decode process {how} before the plan's end{hint}"


def _end(
    owner_pid: int, process: "subprocess.Popen[bytes]", channel: Channel, stderr: ChildStderr
) -> None:
    if os.getpid() != owner_pid:
        channel.close(shutdown=False)  # a fork of the consumer ends; the consumer goes on
        stderr.close()
        return
    channel.close()  # the process reads the end of the socket and exits
    try:
        process.wait(_EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    stderr.show()
    stderr.close()


def _environment() -> dict[str, str]:
    """Ours, with our own packages first: `-P` hides the working directory from the child."""
    paths = [_PACKAGE_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

"""A process of our own code that imports neither torch nor the user's program, and its channel."""

import contextlib
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any, Final

import loader
from loader.errors import LoaderError, WorkerDiedError
from loader.process.channel import Channel
from loader.process.child_stderr import ChildStderr
from loader.process.stacks import STACKS_SIGNAL, innermost_calls, process_state

_PACKAGE_ROOT: Final = str(Path(loader.__file__).resolve().parents[1])
_EXIT_S: Final = 5.0


class ChildProcess:
    """One running `python -P -m MODULE FD`; `close` (or the garbage collector) ends it.

    Args:
        module: to run; its first argument is the descriptor of its end of the channel.
        what: how messages call it, such as "decode process".
        hint: what to do where no process can be started.

    Raises:
        LoaderError: no process can be started.
    """

    def __init__(self, module: str, *, what: str, hint: str) -> None:
        self.owner_pid: Final = os.getpid()
        self.channel, theirs = Channel.pair()
        self.stderr: Final = ChildStderr()
        self._what = what
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stderr=self.stderr.fd,
                    env=_environment(),
                    # An interrupt at the keyboard reaches the consumer, who decides what it means.
                    process_group=0,
                )
        except OSError as error:
            self.channel.close()
            self.stderr.close()
            raise LoaderError(
                f"no {what} can be started with {sys.executable!r} ({error}); {hint}"
            ) from error
        self._finalizer = weakref.finalize(
            self, _end, self.owner_pid, self._process, self.channel, self.stderr
        )

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send a message.

        Raises:
            WorkerDiedError: the process has ended.
        """
        try:
            self.channel.send(message, fds)
        except ConnectionError as error:
            raise WorkerDiedError(self.obituary()) from error

    def ask_for_stacks(self) -> None:
        """Have the process write on its stderr what each of its threads is doing."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(STACKS_SIGNAL)

    def give_up(self, asked_at: int) -> str:
        """Kill a process that hangs; what it was doing.

        Args:
            asked_at: what it had written on its stderr when it was asked for its stacks.
        """
        state = process_state(self._process.pid)
        doing = innermost_calls(self.stderr.since(asked_at))
        self.stderr.show()
        _kill(self._process)
        if not doing:
            return f"the {self._what} was {state}, told no stacks and was killed"
        return (
            f"the {self._what} was in {doing}; it was {state}, told the stacks of its threads on"
            " stderr and was killed"
        )

    def close(self) -> None:
        """End the process and wait for it."""
        self._finalizer()

    def obituary(self) -> str:
        """How the process ended, and its last words."""
        try:
            code = self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            return f"the {self._what} closed its socket but still runs; please report this"
        self.stderr.show()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        hint = "; is the machine out of memory? lower buffer_bytes" if code == -9 else ""
        if last := self.stderr.last_words():
            hint += f"; its last words: {last}"
        return f"the {self._what} {how} before the plan's end{hint}"


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
        _kill(process)
    stderr.show()
    stderr.close()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process; one that hangs in the kernel ends when that lets it, unwaited for."""
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_EXIT_S)


def _environment() -> dict[str, str]:
    """Ours, with our own packages first: `-P` hides the working directory from the child.

    Its many threads share two of glibc's arenas, unless the user has said otherwise: with eight per
    core, what each has freed adds up over days. It costs no time.
    """
    paths = [_PACKAGE_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"MALLOC_ARENA_MAX": "2", **os.environ, "PYTHONPATH": os.pathsep.join(paths)}

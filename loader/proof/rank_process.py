"""The harness's side of a rank in a process of its own: start it, ask it, kill it."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import loader
from loader.process.child_stderr import ChildStderr
from loader.proof.program import PackReport, RankProgram, State

_PACKAGE_ROOT: Final = str(Path(loader.__file__).resolve().parents[1])


@dataclass(frozen=True)
class RankEnded:
    """A rank gave no report.

    Attributes:
        why: in words.
        error: whether it raised; else its stream ended, or it was killed, or it did not answer.
        named: whether what it raised is an error by which its loader says that it gives up.
        at_end: whether its stream ended in good order.
    """

    why: str
    error: bool = False
    named: bool = False
    at_end: bool = False


class RankProcess:
    """One rank; a context manager that leaves no process behind.

    Args:
        program: what it runs.
        rank, world_size, state, first_step: see `RankSetup`.
        patience_s: how long it may take over one report.
    """

    def __init__(
        self,
        program: RankProgram,
        rank: int,
        world_size: int,
        *,
        state: State | None = None,
        first_step: int = 0,
        patience_s: float = 120.0,
    ) -> None:
        self._patience_s = patience_s
        self._asked = False
        self._ahead = b""
        self._stderr = ChildStderr()
        paths = [_PACKAGE_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "loader.proof.rank_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr.fd,
            pass_fds=program.fds,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        start = {
            "rank": rank,
            "world_size": world_size,
            "state": state,
            "first_step": first_step,
        }
        self._say({"program": asdict(program), "start": start, "path": sys.path})
        self.ask()

    def ask(self) -> None:
        """Let it go on to its next pack, without waiting for it."""
        if not self._asked:
            self._asked = True
            self._say({})

    def report(self) -> PackReport | RankEnded:
        """Its next report, asked for where it was not."""
        self.ask()
        line = self._line()
        if not isinstance(line, bytes):
            return line
        self._asked = False
        message: dict[str, Any] = json.loads(line)
        if "end" in message:
            return RankEnded("its stream ended", at_end=True)
        if "error" in message:
            told = message["error"]
            return RankEnded(f"{told['kind']}: {told['message']}", error=True, named=told["named"])
        return PackReport.from_message(message["report"])

    def end(self) -> bool:
        """Let it end in good order; whether it did so in time."""
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(self._patience_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self._process.kill()
        self._process.wait()

    def kill_children(self) -> int:
        """SIGKILL all processes that it has started; returns how many there were."""
        killed = 0
        for child in _children(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
                killed += 1
        return killed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._stderr.close()

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):  # it is dead: `report` tells
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _line(self) -> bytes | RankEnded:
        """The next line, or how it ended without one."""
        assert self._process.stdout
        fd = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        deadline = time.monotonic() + self._patience_s
        while b"\n" not in self._ahead:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1e3):
                return RankEnded(f"no answer within {self._patience_s:g} s{self._last_words()}")
            more = os.read(fd, 1 << 16)
            if not more:
                code = self._process.wait()
                return RankEnded(f"its process ended with exit code {code}{self._last_words()}")
            self._ahead += more
        line, _, self._ahead = self._ahead.partition(b"\n")
        return line

    def _last_words(self) -> str:
        last = self._stderr.last_words()
        return last and f": {last}"


def _children(pid: int) -> list[int]:
    """Processes whose parent is `pid`."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            # After the name, which may hold anything, in brackets: state, parent.
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
    return found

"""The proxy in a process of its own, so that it takes no interpreter time of what is measured."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tools.faults.fault import FaultError
from tools.faults.traffic import Traffic

_ROOT: Final = Path(__file__).resolve().parents[2]


class S3ProxyProcess:
    """Runs `python -m tools.faults.s3_proxy` while its `with` block runs.

    Args:
        upstream: of the real server, `http://host:port`.
        delay_s: added to every request.
        options: more options of the command, such as `("--fault", "slow_down=0.1")`.

    Attributes:
        endpoint: `http://127.0.0.1:port`, for the clients.

    Raises:
        FaultError: it did not start; its message is on stderr.
    """

    def __init__(
        self, upstream: str, *, delay_s: float = 0.0, options: tuple[str, ...] = ()
    ) -> None:
        command = [sys.executable, "-P", "-m", "tools.faults.s3_proxy", upstream]
        self._process = subprocess.Popen(
            [*command, f"--delay-ms={delay_s * 1e3}", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        first = self._line()
        self.endpoint: Final[str] = json.loads(first)["endpoint"]

    @property
    def traffic(self) -> Traffic:
        """What went through so far."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Traffic(**json.loads(self._line()))

    def close(self) -> None:
        """End the process and wait for it."""
        self._process.communicate()  # its stdin ends

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._process.communicate()
            raise FaultError(f"the proxy ended with exit code {self._process.returncode}")
        return line


def _environment() -> dict[str, str]:
    """Ours, with this package first: `-P` hides the working directory."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

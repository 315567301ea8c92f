"""What a decode process writes to stderr: shown on ours while it runs, quoted when it dies.

It writes into a memfd and not to our descriptor 2, which in a notebook nobody sees, and which
cannot be read again for an error message.
"""

import os
import sys
from typing import Final

_LONGEST_LINE: Final = 500
_CRASH: Final = "Fatal Python error"  # a list of stacks and modules follows


class ChildStderr:
    """The memfd that is a child's stderr; `fd` is for its `Popen`."""

    def __init__(self) -> None:
        self.fd: Final = os.memfd_create("headrace-stderr", os.MFD_CLOEXEC)
        self._shown = 0

    @property
    def written(self) -> int:
        """Bytes so far."""
        return os.fstat(self.fd).st_size

    def since(self, begin: int) -> str:
        """What was written after the first `begin` bytes."""
        return os.pread(self.fd, self.written - begin, begin).decode(errors="replace")

    def show(self) -> bool:
        """Pass on what is new; whether there was something."""
        written = self.written
        if written <= self._shown:
            return False
        new = os.pread(self.fd, written - self._shown, self._shown)
        self._shown = written
        sys.stderr.write(new.decode(errors="replace"))
        sys.stderr.flush()
        return True

    def last_words(self) -> str:
        """The line that says why it ended, shortened; empty where it wrote nothing."""
        written = self.written
        end = os.pread(self.fd, 1 << 16, max(0, written - (1 << 16))).decode(errors="replace")
        lines = end.strip().splitlines()
        fatal = [line for line in lines if line.startswith(_CRASH)]
        return (fatal or lines or [""])[-1][:_LONGEST_LINE]

    def close(self) -> None:
        """Give up the descriptor; the child's own stays."""
        os.close(self.fd)

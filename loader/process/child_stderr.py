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

    def show(self) -> None:
        """Pass on what is new."""
        written = os.fstat(self.fd).st_size
        if written > self._shown:
            new = os.pread(self.fd, written - self._shown, self._shown)
            self._shown = written
            sys.stderr.write(new.decode(errors="replace"))
            sys.stderr.flush()

    def last_words(self) -> str:
        """The line that says why it ended, shortened; empty where it wrote nothing."""
        written = os.fstat(self.fd).st_size
        end = os.pread(self.fd, 1 << 16, max(0, written - (1 << 16))).decode(errors="replace")
        lines = end.strip().splitlines()
        fatal = [line for line in lines if line.startswith(_CRASH)]
        return (fatal or lines or [""])[-1][:_LONGEST_LINE]

    def close(self) -> None:
        """Give up the descriptor; the child's own stays."""
        os.close(self.fd)

"""CPU time, memory and reads of this process and all processes below it, from /proc.

Only the standard library is imported here: peers measure themselves with it in environments of
their own.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Sums over a process tree, so far or between two moments.

    Attributes:
        cpu_s: user and system time, of the living and of those they have waited for.
        read_bytes: through read calls, whatever the cache held; not pages of mapped files.
        reads: read calls.
    """

    cpu_s: float
    read_bytes: int
    reads: int

    def __sub__(self, before: Self) -> Self:
        return type(self)(
            cpu_s=self.cpu_s - before.cpu_s,
            read_bytes=self.read_bytes - before.read_bytes,
            reads=self.reads - before.reads,
        )


def process_tree(root: int | None = None) -> list[int]:
    """Ids of a process, this one where none is given, and of all below it that live now."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [os.getpid() if root is None else root]
    for process in found:  # it grows
        found += children.get(process, [])
    return found


def spent() -> Spent:
    """What this process and those below it have spent so far.

    The difference over some work is exact to a clock tick (10 ms) per process, as long as the same
    processes live.
    """
    own = os.times()
    cpu = own.user + own.system + own.children_user + own.children_system
    reads = read_bytes = 0
    for process in process_tree():
        if process != os.getpid() and (fields := _stat(process)):
            cpu += sum(int(ticks) for ticks in fields[11:15]) / _TICKS_PER_S
        counts = _fields(_PROC / str(process) / "io")
        read_bytes += counts.get("rchar", 0)
        reads += counts.get("syscr", 0)
    return Spent(cpu_s=cpu, read_bytes=read_bytes, reads=reads)


def memory_mb() -> float:
    """Resident memory of this process and those below it in 1e6 bytes, shared pages once."""
    kib = sum(
        _fields(_PROC / str(process) / "smaps_rollup").get("Pss", 0) for process in process_tree()
    )
    return kib * 1024 / 1e6


def held_mb(process: int) -> float:
    """Memory of one process but for pages of files, in 1e6 bytes; shared pages by its share."""
    fields = _fields(_PROC / str(process) / "smaps_rollup")
    return (fields.get("Pss_Anon", 0) + fields.get("Pss_Shmem", 0)) * 1024 / 1e6


def _stat(process: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty where the process is gone."""
    try:
        text = (_PROC / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _fields(path: Path) -> dict[str, int]:
    """`name: number` lines of a file; empty where it is gone or not ours to read."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {
        name: int(rest.split()[0])
        for name, rest in pairs
        if rest.split() and rest.split()[0].isdigit()
    }

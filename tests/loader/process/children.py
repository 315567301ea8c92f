"""Which processes a process has started."""

from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Processes whose parent is `pid`, zombies included."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found

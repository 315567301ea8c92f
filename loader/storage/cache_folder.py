"""What lies where in a node's cache."""

from pathlib import Path
from typing import Final

ENTRIES: Final = "entries"  # <2 hex>/<62 hex>
TEMPORARY: Final = "temporary"  # entries that are being written
FLIGHTS: Final = "flights"  # claims on entries that are being downloaded
SLOTS: Final = "slots"  # of the budget of requests
_FOLDER: Final = "headrace-cache"


def cache_folder(cache_dir: str | Path) -> Path:
    """Our own folder below the one that the user names: eviction comes near nothing else."""
    return Path(cache_dir).expanduser() / _FOLDER


def is_entry_name(name: str) -> bool:
    """Whether a file of this name is an entry: the SHA-256 that names it, in hex."""
    return len(name) == 64 and not name.strip("0123456789abcdef")

"""Where the catalog of a lake lies."""

import hashlib
import os
from pathlib import Path

from lake.store import Lake
from lake.tables import CATALOG_FILE


def catalog_path(lake: Lake) -> Path:
    """Path of the catalog file of a lake; it need not exist yet.

    `<lake>/catalog.duckdb` for a lake in a folder this user can write, since all users of the lake
    share it there. For an object store, and for a lake that is read-only to this user, a file
    in `$XDG_CACHE_HOME/headrace` (default `~/.cache/headrace`) named by a hash of the lake's URI.
    """
    folder = local_folder(lake.uri)
    if folder is not None and os.access(folder, os.W_OK):
        return folder / CATALOG_FILE
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(lake.uri.encode()).hexdigest()[:16]
    return cache / "headrace" / f"{name}.duckdb"


def local_folder(uri: str) -> Path | None:
    """Folder of a lake on a local path, None for an object store."""
    if uri.startswith("file://"):
        return Path(uri.removeprefix("file://"))
    return None if "://" in uri else Path(uri).absolute()

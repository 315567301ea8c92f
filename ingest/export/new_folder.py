"""A folder that appears whole or not at all."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ingest.export.errors import ExportError

_LOCK: Final = "lock"
_CONTENT: Final = "content"


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder to write into; what is in it becomes `path` at the end.

    It lies beside `path`, in `.<name>.partial`, and is renamed once all of it is on disk. A writer
    that was killed leaves that folder, which the next one for the same path removes.

    Raises:
        ExportError: `path` exists, its parent does not, or another process is writing it.
    """
    path = path.absolute()
    if path.exists() or path.is_symlink():
        raise ExportError(f"{path}: is there already; an export writes a new folder")
    if not path.parent.is_dir():
        raise ExportError(f"{path.parent}: no such folder; make it first")
    partial = path.parent / f".{path.name}.partial"
    partial.mkdir(exist_ok=True)
    with (partial / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ExportError(f"{path}: another process is writing it ({partial})") from error
        if path.exists() or not (partial / _LOCK).exists():
            raise ExportError(f"{path}: another process has just written it")
        content = partial / _CONTENT
        if content.exists():
            shutil.rmtree(content)
        content.mkdir()
        try:
            yield content
            _sync(content)
            if path.exists():  # a rename would replace an empty folder that came meanwhile
                raise ExportError(f"{path}: came to be while it was written")
            content.rename(path)
        finally:
            shutil.rmtree(partial)
    _sync_one(path.parent)


def _sync(folder: Path) -> None:
    """Bring all files of a folder to the disk, so that the rename cannot come before them."""
    for parent, _, names in os.walk(folder):
        for name in names:
            _sync_one(Path(parent, name))
        _sync_one(Path(parent))


def _sync_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

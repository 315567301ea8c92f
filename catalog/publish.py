"""Build a file aside and put it in place whole: what makes a refresh safe at any kill.

The file is built in a folder of its own beside the target and moved over it by `os.replace`. The
builder holds a lock (flock) on that folder, which the kernel drops however the builder dies. So a
folder whose lock is free is litter that anybody may remove; no clock and no process id is
trusted.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_PREFIX = ".catalog-refresh-"


class FileIdentity(NamedTuple):
    """Tells one published file from the next under the same path."""

    device: int
    inode: int
    mtime_ns: int
    size: int


def file_identity(path: Path) -> FileIdentity | None:
    """Identity of the file at `path` now, None where there is none."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return FileIdentity(stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A new private folder inside `folder`, removed on exit.

    Raises:
        OSError: `folder` cannot be created or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    work, lock = _locked_folder(folder)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(lock)


def remove_litter(folder: Path) -> None:
    """Remove the workspaces that builders left in `folder` when they were killed."""
    for work in folder.glob(f"{_PREFIX}*"):
        try:
            handle = os.open(work, os.O_RDONLY)
        except OSError:
            continue  # gone meanwhile, or another user's, who alone can look inside
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(work, ignore_errors=True)
        except OSError:
            continue  # its builder is alive, or the file system has no locks to tell
        finally:
            os.close(handle)


def publish(built: Path, target: Path, *, over: FileIdentity | None, force: bool = False) -> bool:
    """Move a finished file over `target`, durably: readers see the old file or the new one.

    Args:
        built: the file, on the same file system.
        target: its place.
        over: identity of the file that `built` was made from, None for none.
        force: publish whatever is there now.

    Returns:
        False, with nothing done, where `target` is no longer `over`: to publish would take back
        what another has published meanwhile.
    """
    _sync(built)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        # The lock is held for a look and a rename only; whoever holds it publishes just now.
        if not (_try_lock(folder) and file_identity(target) == over) and not force:
            return False
        built.replace(target)
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def _try_lock(handle: int) -> bool:
    """Take the lock of an open folder; False where another holds it.

    A file system without locks grants every lock.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _locked_folder(folder: Path) -> tuple[Path, int]:
    while True:
        work = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        # Another builder may take the folder for litter before it is locked.
        try:
            handle = os.open(work, os.O_RDONLY)
        except FileNotFoundError:
            continue
        if _try_lock(handle) and work.exists():
            return work, handle
        os.close(handle)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Checksums of a folder's files: a bit that flipped on disk is found before it is trained on."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import xxhash

from training.errors import CheckpointError

CHECKSUMS: Final = "checksums.json"
_PIECE_BYTES: Final = 1 << 20


def file_checksums(folder: Path) -> dict[str, str]:
    """File name -> XXH3-128 as hex, of every file in a folder."""
    return {path.name: _digest(path) for path in sorted(folder.iterdir())}


def require_checksums(folder: Path, names: Iterable[str] = ()) -> None:
    """Compare files with the checksums that were written beside them.

    Args:
        folder: a checkpoint.
        names: files to check; all that were written where none is named.

    Raises:
        CheckpointError: a file is missing or not what was written.
    """
    try:
        written = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
        damaged = [name for name in names or written if _digest(folder / name) != written[name]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder} is not a whole checkpoint: {error}") from error
    if damaged:
        raise CheckpointError(
            f"{', '.join(damaged)} in {folder} is not what was written (its checksum differs):"
            f" take an older checkpoint, for a run by writing its name into {folder.parent}/latest"
        )


def _digest(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()

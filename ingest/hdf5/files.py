"""Opening HDF5 files, and the text they carry in attributes."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ingest.errors import EpisodeError, MissingReaderError, SourceError

SUFFIXES = (".hdf5", ".h5")
_MAGIC = b"\x89HDF\r\n\x1a\n"


def is_hdf5_name(path: Path) -> bool:
    """True for a visible file with an HDF5 suffix."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def has_magic(path: Path) -> bool:
    """True where the file starts as an HDF5 file does (a user block is not looked for)."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def open_file(path: Path) -> Any:  # noqa: ANN401  h5py ships no types
    """Open a file for reading.

    Raises:
        MissingReaderError: h5py is not installed.
        SourceError: missing, empty, not HDF5, or cut short.
    """
    try:
        import h5py  # noqa: PLC0415  an extra
    except ModuleNotFoundError as error:
        raise MissingReaderError(
            f"{path}: reading HDF5 needs h5py: pip install 'headrace[hdf5]'"
        ) from error
    if not path.is_file():
        raise SourceError(f"{path}: no such file", reason="no-file")
    size = path.stat().st_size
    if size == 0:
        raise SourceError(f"{path}: the file is empty (0 bytes)", reason="empty-file")
    if not has_magic(path):
        raise SourceError(f"{path}: not an HDF5 file ({size} bytes)", reason="not-hdf5")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise SourceError(
            f"{path}: damaged or cut short ({size} bytes): {error}", reason="damaged-file"
        ) from error


def is_dataset(node: object) -> bool:
    """True for an HDF5 dataset, without importing h5py."""
    return hasattr(node, "dtype") and hasattr(node, "shape")


def child(group: Any, name: str) -> Any:  # noqa: ANN401  h5py ships no types
    """The child of a group, or None where it is missing or its link is broken."""
    try:
        return group.get(name)
    except (KeyError, OSError, RuntimeError):
        return None


def datasets_below(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Every dataset below a group as (path relative to it, dataset), names in stored order."""
    for name in group:
        node = child(group, name)
        if node is None:
            continue
        if is_dataset(node):
            yield f"{prefix}{name}", node
        elif hasattr(node, "keys"):
            yield from datasets_below(node, f"{prefix}{name}/")


def attribute_text(attributes: Mapping[str, Any], *names: str) -> str | None:
    """The first of the named attributes that holds text, else None."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str) and value.strip():
            return value.strip()
    return None


def attribute_json(attributes: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The attribute's JSON object, `{}` where it is missing or no object."""
    try:
        value = json.loads(attribute_text(attributes, name) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def attribute_number(attributes: Mapping[str, Any], *names: str) -> float | None:
    """The first of the named attributes that is one positive number, else None."""
    for name in names:
        value = attributes.get(name)
        if value is None or np.ndim(value) != 0:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        if np.isfinite(number) and number > 0:
            return number
    return None


def attribute_flag(attributes: Mapping[str, Any], *names: str) -> bool | None:
    """The first of the named attributes that is a truth value, else None."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, bool | np.bool_ | int | np.integer):
            return bool(value)
    return None


def read_rows(dataset: Any, start: int, stop: int, where: str) -> Any:  # noqa: ANN401
    """Rows [start, stop) of a dataset.

    Raises:
        EpisodeError: the bytes cannot be read back.
    """
    try:
        return dataset[start:stop]
    except (OSError, RuntimeError, ValueError) as error:
        raise EpisodeError(
            f"{where}: rows {start}..{stop} cannot be read: {error}",
            reason="damaged-stream",
            stream=where.rsplit("/", 1)[-1],
        ) from error

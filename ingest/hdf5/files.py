"""Opening HDF5 files, and the text they carry in attributes."""

import json
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from ingest.errors import EpisodeError, MissingReaderError, SourceError
from ingest.source import printable

SUFFIXES = (".hdf5", ".h5")
_MAGIC = b"\x89HDF\r\n\x1a\n"
# What h5py raises on damaged bytes, depending on where they lie.
_H5PY_ERRORS: Final = (KeyError, OSError, RuntimeError, TypeError, ValueError)


def is_hdf5_name(path: Path) -> bool:
    """True for a visible file with an HDF5 suffix."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def has_magic(path: Path) -> bool:
    """True where the file starts as an HDF5 file does (a user block is not looked for).

    Raises:
        SourceError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise SourceError(
            f"{path}: cannot be read ({error.strerror})", reason="unreadable-file"
        ) from error


def open_file(path: Path) -> Any:  # noqa: ANN401  h5py ships no types
    """Open a file for reading.

    Raises:
        MissingReaderError: h5py is not installed.
        SourceError: missing, unreadable, empty, not HDF5, or cut short.
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


def hdf5_damage(path: Path) -> str | None:
    """Why a file called like an HDF5 file is none that can be opened; None where it is no such."""
    if not is_hdf5_name(path):
        return None
    try:
        open_file(path).close()
    except SourceError as error:
        return str(error)
    return None


def is_group(node: object) -> bool:
    """True for an HDF5 group, without importing h5py."""
    return hasattr(node, "keys")


def is_dataset(node: object) -> bool:
    """True for an HDF5 dataset, without importing h5py."""
    # By its class: the `dtype` of a dataset of a type that NumPy lacks raises.
    return hasattr(type(node), "dtype") and hasattr(type(node), "shape")


def num_rows(node: object) -> int:
    """Length of a dataset's first axis; 0 for what is no dataset, or one without an axis."""
    shape = getattr(node, "shape", None) if is_dataset(node) else None
    return int(shape[0]) if shape else 0


def child(group: Any, name: str) -> Any:  # noqa: ANN401  h5py ships no types
    """The child of a group; None where it is missing, its link is broken, or `group` is none."""
    if not is_group(group):
        return None
    try:
        return group.get(name)
    except _H5PY_ERRORS:
        return None


def child_names(group: Any) -> list[str]:  # noqa: ANN401
    """Names in a group, in stored order.

    Raises:
        SourceError: the group is damaged.
    """
    try:
        return list(group)
    except _H5PY_ERRORS as error:
        raise SourceError(
            f"{group.file.filename}:{group.name}: cannot be listed: {error}", reason="damaged-file"
        ) from error


def datasets_below(group: Any, broken: list[str]) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Every dataset below a group as (path relative to it, dataset), names in stored order.

    A group that links lead to again is entered once, so loops of links end.

    Args:
        group: where to start.
        broken: gets the paths of links to nothing and of damaged objects.

    Raises:
        SourceError: a group is damaged.
    """
    seen = set()
    waiting = [("", group)]
    while waiting:
        path, node = waiting.pop()
        if is_dataset(node):
            yield printable(path), node
        elif is_group(node) and node not in seen:
            seen.add(node)
            below = [(f"{path}/{name}".lstrip("/"), name) for name in child_names(node)]
            waiting += [(inside, child(node, name)) for inside, name in reversed(below)]
        elif node is None:
            broken.append(printable(path))


def _attribute(attributes: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401
    """An attribute, None where it is missing or of a type that NumPy lacks."""
    try:
        return attributes.get(name)
    except _H5PY_ERRORS:
        return None


def attribute_text(attributes: Mapping[str, Any], *names: str) -> str | None:
    """The first of the named attributes that holds text, else None."""
    for name in names:
        value = _attribute(attributes, name)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str) and value.strip():
            return printable(value.strip())
    return None


def attribute_json(attributes: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The attribute's JSON object, `{}` where it is missing or no object."""
    try:
        value = json.loads(attribute_text(attributes, name) or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def attribute_number(attributes: Mapping[str, Any], *names: str) -> float | None:
    """The first of the named attributes that is one positive number, else None."""
    for name in names:
        value = _attribute(attributes, name)
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
        value = _attribute(attributes, name)
        if isinstance(value, bool | np.bool_ | int | np.integer):
            return bool(value)
    return None


def read_rows(dataset: Any, start: int, stop: int, where: str) -> Any:  # noqa: ANN401
    """Rows [start, stop) of a dataset.

    Raises:
        EpisodeError: some or all of the dataset was never written (a recorder that was stopped),
            or the bytes cannot be read back or do not fit into memory.
    """
    stream = where.rsplit("/", 1)[-1]
    try:
        # HDF5 would answer with zeros for space that was only reserved.
        if dataset.size and not dataset.is_virtual and not dataset.id.get_storage_size():
            raise EpisodeError(
                f"{where}: {dataset.shape[0]} rows are reserved, none was ever written",
                reason="never-written",
                stream=stream,
            )
        if missing := _missing_chunks(dataset):
            raise EpisodeError(
                f"{where}: {missing} of its chunks were never written, and would read as zeros: was"
                " the recorder stopped half-way?",
                reason="partly-written",
                stream=stream,
            )
        return dataset[start:stop]
    except (*_H5PY_ERRORS, MemoryError) as error:
        raise EpisodeError(
            f"{where}: rows {start}..{stop} cannot be read: {error}",
            reason="damaged-stream",
            stream=stream,
        ) from error


def _missing_chunks(dataset: Any) -> int:  # noqa: ANN401
    """Chunks of a chunked dataset that the file does not hold; 0 for any other layout."""
    if dataset.chunks is None or dataset.is_virtual:
        return 0
    needed: int = prod(
        -(-size // chunk) for size, chunk in zip(dataset.shape, dataset.chunks, strict=True)
    )
    return max(0, needed - int(dataset.id.get_num_chunks()))

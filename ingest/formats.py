"""The known recording formats, and finding out by content which one a path is.

To add a format: write a module with a `FORMAT` (see `ingest/source.py`) and name it in `FORMATS`,
or offer it from a package of your own (`ingest/plugins.py`).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ingest.dexdata.source import FORMAT as DEXDATA
from ingest.errors import UnknownFormatError
from ingest.hdf5.agibot import FORMAT as HDF5_AGIBOT
from ingest.hdf5.aloha import FORMAT as HDF5_ALOHA
from ingest.hdf5.droid import FORMAT as HDF5_DROID
from ingest.hdf5.files import hdf5_damage
from ingest.hdf5.robomimic import FORMAT as HDF5_ROBOMIMIC
from ingest.lerobot.source import FORMAT as LEROBOT
from ingest.messages.formats import MCAP, ROS1_BAG, ROS2_BAG
from ingest.natural_order import natural_key
from ingest.plugins import plugins
from ingest.rerun.source import FORMAT as RERUN
from ingest.rlds.source import FORMAT as RLDS
from ingest.source import Format
from ingest.zarr.replay_buffer import FORMAT as ZARR

FORMATS: tuple[Format, ...] = (
    LEROBOT,
    HDF5_ALOHA,
    HDF5_ROBOMIMIC,
    HDF5_DROID,
    HDF5_AGIBOT,
    ZARR,
    DEXDATA,
    RLDS,
    RERUN,
    ROS2_BAG,
    MCAP,
    ROS1_BAG,
)

# Papers that lie beside recordings; a folder's other files are reported where no reader takes them.
_PAPERS = re.compile(r"(readme|licen[cs]e|notice|citation|\.).*|.*\.(md|txt|pdf)", re.IGNORECASE)
_MAX_DEPTH = 6


@dataclass(frozen=True, kw_only=True)
class FoundSource:
    """A recording that was recognised."""

    path: Path
    format: Format


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """What lies under a path.

    Attributes:
        sources: recordings, in natural order of their paths (`demo_2` before `demo_10`).
        unrecognised: files inside a searched folder that belong to no recognised recording.
    """

    sources: tuple[FoundSource, ...]
    unrecognised: tuple[Path, ...] = ()


def known_formats() -> tuple[Format, ...]:
    """Headrace's own formats, then those of installed packages."""
    return (*FORMATS, *plugins().formats)


def detect(path: Path, formats: Sequence[Format] | None = None) -> Format | None:
    """The first format (by default of all known) whose content test accepts `path`, or None."""
    formats = known_formats() if formats is None else formats
    return next((known for known in formats if known.recognises(path)), None)


def discover(path: Path, formats: Sequence[Format] | None = None) -> Discovery:
    """Find the recordings at or below `path`.

    A path that is a recording itself is the only source; a folder of recordings expands into
    them, however mixed their formats.

    Raises:
        UnknownFormatError: nothing is there, or nothing in it is of a known format.
    """
    formats = known_formats() if formats is None else formats
    if not path.exists():
        remote = ": recordings are read from local disk, copy them first"
        hint = remote if re.match(r"[a-z0-9]+:/", str(path)) else ""
        raise UnknownFormatError(f"{path}: no such file or folder{hint}")
    known = detect(path, formats)
    if known is not None:
        return Discovery(sources=(FoundSource(path=path, format=known),))
    sources: list[FoundSource] = []
    unrecognised: list[Path] = []
    if path.is_dir():
        here = path.resolve()
        for found, format_ in _walk(path, formats, _MAX_DEPTH, {here, *here.parents}):
            if format_ is not None:
                sources.append(FoundSource(path=found, format=format_))
            elif not _PAPERS.fullmatch(found.name):
                unrecognised.append(found)
    if not sources:
        looked = "; ".join(f"{known.name}: {known.looks_for}" for known in formats)
        looked += "".join(f"; {fault}" for fault in plugins().faults)
        raise UnknownFormatError(
            f"{path}: {_describe(path)}, no known recording format. Looked for: {looked}"
        )
    return Discovery(sources=tuple(sources), unrecognised=tuple(unrecognised))


def _walk(
    folder: Path, formats: Sequence[Format], depth: int, met: set[Path]
) -> Iterator[tuple[Path, Format | None]]:
    """What lies below `folder`; a place in `met`, which links lead to again, is left out."""
    for child in _children(folder):
        place = _resolved(child)
        if place in met:
            continue
        met.add(place)
        known = detect(child, formats)
        if known is not None or not child.is_dir():
            yield child, known
        elif depth > 0:
            yield from _walk(child, formats, depth - 1, met)
        else:
            yield child, None


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), key=lambda path: natural_key(path.name))
    except OSError as error:
        raise UnknownFormatError(
            f"{folder}: cannot be listed ({error.strerror}), so recordings in it would be lost;"
            " change its permissions, or name the others one by one"
        ) from error


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a link that leads to itself
        return path.absolute()


def _describe(path: Path) -> str:
    """What is there instead of a recording."""
    if path.is_dir():
        children = _children(path)
        damaged = next((why for child in children if (why := hdf5_damage(child))), None)
        count = f"a folder with {len(children)} entries" if children else "an empty folder"
        return f"{count}; {damaged}" if damaged else count
    return hdf5_damage(path) or f"a file of {path.stat().st_size} bytes"

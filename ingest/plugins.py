"""Formats that other installed packages offer.

A package names a `Format` (see `ingest/source.py`) in its entry-point group `headrace.formats`:

    [project.entry-points."headrace.formats"]
    my-format = "my_package.my_module:FORMAT"
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from ingest.errors import IngestError
from ingest.source import Format

GROUP: Final = "headrace.formats"


@dataclass(frozen=True)
class Plugins:
    """What installed packages offer.

    Attributes:
        formats: those that could be loaded.
        faults: one sentence for each plugin that could not be, or whose `recognises` raised: it
            then counts as not recognising. The others go on.
    """

    formats: Sequence[Format]
    faults: list[str]


@cache
def plugins() -> Plugins:
    """The installed plugins, loaded once."""
    return load_plugins(list(entry_points(group=GROUP)))


def load_plugins(points: Sequence[EntryPoint]) -> Plugins:
    """Load formats; what a foreign package raises is caught and told of."""
    formats: list[Format] = []
    faults: list[str] = []
    for point in points:
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001  whatever a foreign package raises
            faults.append(f"{_called(point)} cannot be loaded ({type(error).__name__}: {error})")
            continue
        if not isinstance(loaded, Format):
            faults.append(f"{_called(point)} is a {type(loaded).__name__}, not a Format")
            continue
        formats.append(replace(loaded, recognises=_guarded(point, loaded.recognises, faults)))
    return Plugins(formats, faults)


def _called(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist else ""
    return f"the format plugin {point.name}{package} ({point.value})"


def _guarded(
    point: EntryPoint, recognises: Callable[[Path], bool], faults: list[str]
) -> Callable[[Path], bool]:
    def guarded(path: Path) -> bool:
        try:
            return recognises(path)
        except IngestError:
            raise  # a reader that is not installed, as of Headrace's own formats
        except Exception as error:  # noqa: BLE001  whatever a foreign package raises
            fault = f"{_called(point)} cannot look at a path ({type(error).__name__}: {error})"
            if fault not in faults:
                faults.append(fault)
            return False

    return guarded

"""The reader that provenance names."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def reader_name(reader: str) -> str:
    """`headrace-<reader> <version of headrace>`, with no version where it is not installed."""
    try:
        return f"headrace-{reader} {version('headrace')}"
    except PackageNotFoundError:
        return f"headrace-{reader}"

"""Errors that cross from the decode process: the same class, the same message."""

from collections.abc import Iterator, Mapping
from typing import Any

from lake.errors import HeadraceError
from loader.errors import LoaderError


def error_to_message(error: BaseException) -> dict[str, Any]:
    """A raised error as plain JSON."""
    kind = type(error)
    return {
        "error": {
            "module": kind.__module__,
            "name": kind.__qualname__,
            "message": str(error),
        }
    }


def error_from_message(message: Mapping[str, Any]) -> HeadraceError:
    """The error again; one that Headrace does not know becomes a LoaderError that names it."""
    told: dict[str, str] = message["error"]
    for kind in _kinds(HeadraceError):
        if (kind.__module__, kind.__qualname__) == (told["module"], told["name"]):
            # Subclasses may ask for more than a message; all of it is in the message.
            error = kind.__new__(kind)
            error.args = (told["message"],)
            return error
    return LoaderError(
        f"the decode process failed: {told['name']}: {told['message']}; its traceback is on stderr."
        " process='inline' runs the same code in this process for debugging"
    )


def _kinds(root: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)

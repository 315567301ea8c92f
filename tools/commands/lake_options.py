"""Options of every command that opens a lake."""

from typing import Annotated, TypeAlias

import typer

from lake.errors import HeadraceError

StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="Option of the lake's object store, as Lance takes them; may be repeated.",
    ),
]


class OptionError(HeadraceError):
    """An option cannot be understood."""


def storage_options(pairs: list[str] | None) -> dict[str, str]:
    """Parse `KEY=VALUE` pairs.

    Raises:
        OptionError: a pair without `=`.
    """
    options = {}
    for pair in pairs or []:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise OptionError(f"--storage-option {pair!r}: write KEY=VALUE")
        options[key] = value
    return options

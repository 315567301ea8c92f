"""Errors of the catalog."""

from lake.errors import HeadraceError


class CatalogError(HeadraceError):
    """The catalog cannot be refreshed or opened, or a query is wrong."""


class SelectionError(CatalogError):
    """A selection is empty, unknown, ambiguous, or its name is taken by another one."""


class LabelError(CatalogError):
    """A label does not exist, has the wrong type, or names an unknown episode."""


def first_line(error: BaseException) -> str:
    """What a library's error says, without the excerpts it draws below."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def one_line(error: BaseException) -> str:
    """A DuckDB message as one line: its hints are kept, the excerpt of the query left out."""
    text = str(error).split("\nLINE ", 1)[0]
    whole = " ".join(line.strip() for line in text.splitlines() if line.strip())
    return whole if whole.endswith((".", "?", "!")) else f"{whole}."


def require_unicode(sql: str) -> None:
    """Refuse a command line's bytes that are no text, on which DuckDB's binding trips.

    Raises:
        CatalogError: it holds lone surrogates.
    """
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise CatalogError(f"the SQL is not Unicode ({error.reason})") from error

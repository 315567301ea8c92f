"""Errors of ingest."""

from lake.errors import HeadraceError


class IngestError(HeadraceError):
    """A recording cannot be read, or an ingest cannot go on."""


class UnknownFormatError(IngestError):
    """No reader recognises the content of the given path."""


class MissingReaderError(IngestError):
    """A reader is there but its optional dependency is not installed; names the extra."""


class SourceError(IngestError):
    """A source as a whole is unreadable (missing, empty or lying metadata).

    Attributes:
        reason: short stable code that scripts can test (`empty-file`, `bad-json`, ...).
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class EpisodeError(IngestError):
    """One episode of a source is unreadable; the others are not affected.

    Attributes:
        reason: short stable code.
        stream: the stream at fault, or "" where the whole episode is.
    """

    def __init__(self, message: str, *, reason: str, stream: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.stream = stream

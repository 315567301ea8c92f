"""Errors of an export."""

from lake.errors import HeadraceError


class ExportError(HeadraceError):
    """Episodes cannot be written in the format asked for; nothing is left at the destination."""


class UnfitError(ExportError):
    """One episode has something that the format cannot express.

    Attributes:
        reason: short stable code (`invalid-steps`, `missing-camera`, ...).
        stream: the feature or camera at fault, by its name in the lake, or "".
    """

    def __init__(self, message: str, *, reason: str, stream: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.stream = stream

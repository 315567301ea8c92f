"""Errors of the loader."""

from lake.errors import HeadraceError


class LoaderError(HeadraceError):
    """A loader cannot start, cannot go on, or is asked for something it cannot promise."""


class LoaderStateError(LoaderError):
    """A saved position belongs to another plan, or was written in another layout."""


class BatchError(LoaderError):
    """A batch breaks its own contract (shape, dtype or count), or cannot be laid out as asked."""


class WorkerDiedError(LoaderError):
    """The decode process hung, or ended without a word (killed, out of memory, crashed in C)."""


class BadDataError(LoaderError):
    """More spans are damaged in the lake than `max_bad_share` allows to go on without."""


class StorageTimeoutError(LoaderError):
    """A store failed until the deadline; starting again goes on from the last saved position."""

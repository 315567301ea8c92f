"""Errors of the lake, and the root of every error Headrace raises on purpose."""


class HeadraceError(Exception):
    """Root of all errors that Headrace raises on purpose.

    The message says what happened, where (file, episode, stream, row) and what to do next; the
    command line prints it as one line, without a traceback, and exits with `exit_code`.
    """

    exit_code: int = 2


class LakeError(HeadraceError):
    """A lake could not be created, opened, read or written."""


class LakeNotFoundError(LakeError):
    """There is no lake at the given URI."""


class LakeVersionError(LakeError):
    """The lake (or a record inside it) was written in a layout this version does not know."""


class EpisodeNotFoundError(LakeError):
    """An episode id or row address is not visible in this lake (never written, or deleted)."""


class EditError(LakeError):
    """An edit of episodes cannot be made as asked."""


class CorruptDataError(LakeError):
    """Stored bytes do not match their checksum, or cannot be parsed."""


class VideoError(LakeError):
    """A video file or packet stream cannot be demuxed, cut or decoded."""


class SpecError(LakeError):
    """An episode and its spec disagree (shape, dtype, length, duplicate or illegal name)."""


class CommitConflictError(LakeError):
    """Another writer committed first, or the store cannot promise an atomic commit."""

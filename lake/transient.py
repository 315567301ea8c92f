"""Which failures of a store pass by themselves, as the messages of Lance tell them."""

import re
from typing import Final

from lake.errors import CorruptDataError, EpisodeNotFoundError, LakeError
from lake.object_store import is_object_store

_STATUS: Final = re.compile(r"status code: (\d{3})")
_PASSING_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_THROTTLED_STATUS: Final = frozenset({429, 503})
_FINAL_WORDS: Final = (
    *("not found", "nosuchkey", "nosuchbucket", "privileges", "accessdenied", "unauthenticated"),
    *("invalidaccesskeyid", "signaturedoesnotmatch", "invalid user input", "not supported"),
)
_PASSING_WORDS: Final = (
    *("lanceerror(io)", "error sending request", "timed out", "timeout", "connection"),
    *("broken pipe", "error decoding response body", "incomplete", "unexpected eof", "dns error"),
)
# Of network mounts: EIO, EAGAIN, ENOTCONN, ETIMEDOUT, EHOSTDOWN, EHOSTUNREACH, ESTALE, EREMOTEIO.
_PASSING_ERRNO: Final = re.compile(r"os error (5|11|107|110|112|113|116|121)\b")


def is_transient(uri: str, error: LakeError) -> bool:
    """Whether reading again may succeed: the store was slow, refused load or could not be reached.

    What is missing, forbidden or damaged stays so.
    """
    if isinstance(error, EpisodeNotFoundError | CorruptDataError):
        return False
    text = str(error).replace(uri, "")
    if not is_object_store(uri):
        return bool(_PASSING_ERRNO.search(text))
    status = _STATUS.search(text)
    if status:
        return int(status[1]) in _PASSING_STATUS
    text = text.lower()
    return any(word in text for word in _PASSING_WORDS) and not any(
        word in text for word in _FINAL_WORDS
    )


def is_throttled(error: LakeError) -> bool:
    """Whether the store asks for fewer requests."""
    status = _STATUS.search(str(error))
    return status is not None and int(status[1]) in _THROTTLED_STATUS


def is_refused(error: LakeError) -> bool:
    """Whether the store does not accept the credentials, such as those that have expired."""
    status = _STATUS.search(str(error))
    expired = "expiredtoken" in str(error).lower()
    return expired or (status is not None and int(status[1]) in {401, 403})

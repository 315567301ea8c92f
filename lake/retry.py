"""Trying again after another writer committed first."""

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from lake.errors import CommitConflictError, LakeError
from lake.store import Lake

_ATTEMPTS: Final = 12
_FIRST_WAIT_S: Final = 0.02
_LONGEST_WAIT_S: Final = 5.0
_LOST: Final = ("conflict", "already exists", "too many concurrent writers", "preempted")

Result = TypeVar("Result")


def until_won(lake: Lake, doing: str, attempt: Callable[[], Result]) -> Result:
    """Call `attempt`, which MUST be harmless to repeat, until no other writer beats it.

    Raises:
        CommitConflictError: others won every time.
        LakeError: it failed for any other reason.
    """
    for count in range(_ATTEMPTS):
        try:
            with lake.errors_named(doing):
                return attempt()
        except LakeError as error:
            # The lake's own path may hold such a word.
            said = str(error).replace(lake.uri.strip("/"), "").lower()
            if not any(word in said for word in _LOST):
                raise
            # Full jitter: writers that collided once must not march in step.
            longest = min(_FIRST_WAIT_S * 2**count, _LONGEST_WAIT_S)
            time.sleep(random.uniform(0, longest))  # noqa: S311 - not a secret
    raise CommitConflictError(
        f"{lake.uri}: {doing}: other writers were first {_ATTEMPTS} times; run again with fewer"
        " writers or larger batches"
    )

"""Credentials that expire: storage options that a function of the user's gives, asked for anew.

The chain of AWS (environment, profile, web identity, the machine's own) needs none of this: Lance's
client refreshes what it gives by itself. This is for those who are handed keys for an hour by
something else, such as a catalog or a security-token service.

The function is named in the storage options themselves, as `credentials_from="module:function"`, so
that it reaches every process that opens the lake. It takes no arguments and returns storage options
with `expires_at_millis` (of the Unix epoch) among them; Lance calls it again a minute before.
"""

import functools
import importlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import lance

from lake.errors import LakeError
from lake.object_store import redact

CREDENTIALS_FROM: Final = "credentials_from"
_EXPIRY: Final = "expires_at_millis"
_REFRESH_AHEAD_S: Final = 60.0


class VendedOptions:
    """What the function of one import path gives; shared by all lakes of the process.

    Args:
        path: `module:function`.

    Raises:
        LakeError: there is no such function.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._give = _imported(path)
        self._lock = threading.Lock()
        self._options: dict[str, str] = {}
        self._former: dict[str, str] = {}
        self._expires_s = 0.0
        self._renewals = itertools.count(1)
        self.generation = 0

    def current(self) -> dict[str, str]:
        """Storage options that are valid for a minute at least, if the function's are.

        Raises:
            LakeError: the function fails, or gives something else.
        """
        with self._lock:
            if time.time() > self._expires_s - _REFRESH_AHEAD_S:
                self._renew()
            return dict(self._options)

    def forget(self) -> None:
        """Ask the function at the next use, whatever the options' expiry says."""
        with self._lock:
            self._expires_s = 0.0
            self.generation = next(self._renewals)

    def redacted(self, text: str) -> str:
        """`text` without the credentials of now and of the time before."""
        return redact(redact(text, self._options), self._former)

    def open_dataset(
        self,
        uri: str,
        storage_options: Mapping[str, str],
        **arguments: Any,  # noqa: ANN401 - those of Lance
    ) -> lance.LanceDataset:
        """`lance.dataset` whose credentials are renewed for as long as it lives."""
        return lance.dataset(
            # Lance calls two of its methods; to import its base class takes its time.
            namespace_client=_Namespace(self, uri),  # type: ignore[arg-type]
            table_id=[uri],
            storage_options=dict(storage_options),
            **arguments,
        )

    def _renew(self) -> None:
        try:
            given = self._give()
        except Exception as error:  # noqa: BLE001 - the user's own function
            # Its message may hold what it was about to give.
            raise LakeError(
                f"{CREDENTIALS_FROM}={self._path}: it failed with {type(error).__name__}; call it"
                " by itself to see why"
            ) from None
        options = {str(name): str(value) for name, value in dict(given).items()}
        if not options.get(_EXPIRY, "").isdigit():
            raise LakeError(
                f"{CREDENTIALS_FROM}={self._path}: gives {', '.join(sorted(options)) or 'nothing'};"
                f" it must give storage options with {_EXPIRY}, in milliseconds of the Unix epoch"
            )
        self._former = self._options
        self._options, self._expires_s = options, int(options[_EXPIRY]) / 1000


class _Namespace:
    """The one table that Lance asks for where it is and how to read it."""

    def __init__(self, vended: VendedOptions, uri: str) -> None:
        self._vended = vended
        self._uri = uri

    def namespace_id(self) -> str:
        return f"headrace-{id(self._vended)}-{self._vended.generation}"

    def describe_table(self, _: object) -> object:
        from lance_namespace import DescribeTableResponse  # noqa: PLC0415 - takes its time

        return DescribeTableResponse(location=self._uri, storage_options=self._vended.current())


@functools.cache
def vended_options(path: str) -> VendedOptions:
    """The options of an import path.

    Raises:
        LakeError: there is no such function.
    """
    return VendedOptions(path)


def _imported(path: str) -> Callable[[], Mapping[str, object]]:
    module, _, name = path.partition(":")
    try:
        found: Callable[[], Mapping[str, object]] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise LakeError(
            f"{CREDENTIALS_FROM}={path}: cannot be imported ({error}); write module:function, and"
            " install the module or put its folder into PYTHONPATH: other processes import it too"
        ) from error
    return found

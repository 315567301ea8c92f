"""What an object store needs beyond a local path: a safe commit, and secrets kept secret."""

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lake.errors import CommitConflictError, LakeError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_SECRET_WORDS: Final = ("secret", "token", "password", "access_key", "account_key", "sas", "sse")
_SHORTEST_SECRET: Final = 4
_CLIENT_OPTIONS: Final = (
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only"),
    *("pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "timeout", "user_agent"),
)
_PROBED: set[tuple[str, frozenset[tuple[str, str]]]] = set()


def is_object_store(uri: str) -> bool:
    """True for `scheme://` URIs that are not files."""
    return "://" in uri and not uri.startswith("file://")


def redact(text: str, storage_options: Mapping[str, str]) -> str:
    """`text` without the values of options that hold credentials."""
    for name, value in storage_options.items():
        if len(value) >= _SHORTEST_SECRET and any(word in name.lower() for word in _SECRET_WORDS):
            text = text.replace(value, "***")
    return text


def require_conditional_put(uri: str, storage_options: Mapping[str, str]) -> None:
    """Prove that the store refuses to overwrite under `If-None-Match: *`.

    Lance commits by creating the next manifest only if it is not there. A store that accepts
    the header and overwrites all the same loses acknowledged commits without an error. Proved
    once per process, URI and options (the endpoint is one); local paths need no proof.

    Raises:
        CommitConflictError: the store overwrites.
        LakeError: the store cannot be reached or written.
    """
    place = (uri, frozenset(storage_options.items()))
    if not is_object_store(uri) or place in _PROBED:
        return
    try:
        from obstore.exceptions import AlreadyExistsError, BaseError  # noqa: PLC0415 - extra `s3`
    except ImportError as error:
        raise LakeError(
            f"{uri}: writing to an object store needs `pip install 'headrace[s3]'`"
        ) from error
    name = f"_probe/{uuid.uuid4().hex}"
    try:
        store = _open_store(uri, storage_options)
        store.put(name, b"1", mode="create")
        try:
            store.put(name, b"2", mode="create")
            overwritten = True
        except AlreadyExistsError:
            overwritten = False
        with suppress(BaseError):  # who may write need not be allowed to delete
            store.delete(name)
    except (BaseError, ValueError, OSError) as error:
        text = redact(str(error).splitlines()[0], storage_options)
        raise LakeError(
            f"{uri}: the object store cannot be written ({text}); check bucket, endpoint"
            " (AWS_ENDPOINT_URL, AWS_ALLOW_HTTP=true for plain HTTP) and credentials"
        ) from None  # the cause may print the credentials
    if overwritten:
        raise CommitConflictError(
            f"{uri}: the store ignores If-None-Match, so two writers would overwrite each"
            " other's commits; use a store with conditional writes"
        )
    _PROBED.add(place)


def list_folders(uri: str, storage_options: Mapping[str, str]) -> list[str]:
    """Names of the folders right below a path or URI; none where nothing is there.

    Raises:
        LakeError: it cannot be listed.
    """
    if not is_object_store(uri):
        folder = Path(uri)
        try:
            return sorted(e.name for e in folder.iterdir() if e.is_dir()) if folder.is_dir() else []
        except OSError as error:
            raise LakeError(f"{uri}: cannot be listed ({error.strerror})") from error
    with _object_store(uri, storage_options, "listing") as store:
        found = store.list_with_delimiter()["common_prefixes"]
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found)


def remove_folder(uri: str, storage_options: Mapping[str, str]) -> None:
    """Delete a path or URI with everything below it.

    Raises:
        LakeError: it cannot be deleted, wholly or in part; calling again goes on.
    """
    if not is_object_store(uri):
        try:
            shutil.rmtree(uri)
        except OSError as error:
            raise LakeError(f"{uri}: cannot be deleted ({error.strerror})") from error
        return
    with _object_store(uri, storage_options, "deleting") as store:
        for objects in store.list():
            if paths := [entry["path"] for entry in objects]:
                store.delete(paths)


@contextmanager
def _object_store(
    uri: str, storage_options: Mapping[str, str], doing: str
) -> "Iterator[ObjectStore]":
    """The store, for calls whose errors become a LakeError without secrets."""
    try:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - extra `s3`
    except ImportError as error:
        raise LakeError(
            f"{uri}: {doing} in an object store needs `pip install 'headrace[s3]'`"
        ) from error
    try:
        yield _open_store(uri, storage_options)
    except (BaseError, ValueError, OSError) as error:
        text = redact(str(error).splitlines()[0], storage_options)
        raise LakeError(f"{uri}: {doing} failed ({text})") from None


def _open_store(uri: str, storage_options: Mapping[str, str]) -> "ObjectStore":
    """The store as obstore sees it, from options meant for Lance."""
    from obstore.exceptions import UnknownConfigurationKeyError  # noqa: PLC0415 - extra `s3`
    from obstore.store import from_url  # noqa: PLC0415

    make: Callable[..., Any] = from_url  # typed per kind of store; this one is the user's choice
    options = {key.lower().removeprefix("aws_"): v for key, v in storage_options.items()}
    client = {key: value for key, value in options.items() if key in _CLIENT_OPTIONS}
    config = {key: value for key, value in options.items() if key not in _CLIENT_OPTIONS}
    while True:
        try:
            # Empty client options would hide those of the environment.
            store: ObjectStore = make(uri, config=config, client_options=client or None)
        except UnknownConfigurationKeyError as error:
            # An option that only Lance knows, such as its number of retries.
            unknown = [key for key in config if f"'{key}'" in str(error)]
            if not unknown:
                raise
            for key in unknown:
                del config[key]
        else:
            return store

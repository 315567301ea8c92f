"""Opening a lake, and the handle through which everything else reads it."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

import lance
import pyarrow as pa

from lake.errors import (
    CorruptDataError,
    LakeError,
    LakeNotFoundError,
    LakeVersionError,
    SpecError,
)
from lake.object_store import is_object_store, redact
from lake.spec import Spec
from lake.tables import LAYOUT_KEY, LAYOUT_VERSION, OPTIONAL_TABLES, TABLES, equals
from lake.vended import CREDENTIALS_FROM, vended_options

if TYPE_CHECKING:
    from lance.lance import _Session as Session  # its stub knows the class by this name only

# Lance's own defaults are 6 GiB and 1 GiB per session.
_INDEX_CACHE_BYTES: Final = 64 << 20
_METADATA_CACHE_BYTES: Final = 128 << 20
# Reads of one call that lie closer to each other than this are one request. Lance's own 64 KiB make
# reading the packets of shuffled windows take twice the bytes, for a tenth of the requests less.
OBJECT_STORE_BLOCK_BYTES: Final = 16 << 10
_OF_ANOTHER_LAKE: Final = (
    "what names it, such as a plan, was made of another lake (or of one that lay here before);"
    " make it anew from this one"
)
_PLACE_IN_LANCE: Final = re.compile(r", /\S+\.rs:\d+")


class Lake:
    """An open lake; made by `create_lake` or `open_lake`. Safe to share between threads.

    A handle sees each table as it was when first used, until `refresh`; a pinned handle sees the
    versions it was given for ever. It is never inherited through fork (Lance's threads do not
    survive it); pass `uri`, `storage_options` and `versions()` to a spawned process instead.

    Attributes:
        uri: path or object-store URI.
        pinned: table -> version, or None where the handle follows the newest versions.
    """

    def __init__(
        self,
        uri: str,
        storage_options: Mapping[str, str],
        pinned: Mapping[str, int] | None = None,
        session: "Session | None" = None,
    ) -> None:
        self.uri = uri
        self._options = dict(storage_options)
        vended = self._options.get(CREDENTIALS_FROM)
        self._vended = None if vended is None else vended_options(vended)
        self.pinned = None if pinned is None else MappingProxyType(dict(pinned))
        self._session = session or _new_session()
        self._lock = threading.RLock()
        self._datasets: dict[str, lance.LanceDataset] = {}
        self._seen: dict[str, int] = {}
        self._absent: set[str] = set()
        self._specs: dict[str, Spec] = {}

    def __repr__(self) -> str:
        return f"Lake({self.uri!r})" if self.pinned is None else f"Lake({self.uri!r}, pinned)"

    @property
    def storage_options(self) -> Mapping[str, str]:
        """Options for Lance's object store, for use now: credentials among them may expire.

        They are never printed.

        Raises:
            LakeError: what gives credentials fails (see `lake.vended`).
        """
        vended = {} if self._vended is None else self._vended.current()
        return MappingProxyType({**self._options, **vended})

    def table_uri(self, table: str) -> str:
        """Where a table's Lance dataset lies."""
        if table not in TABLES and table not in OPTIONAL_TABLES:
            raise LakeError(f"a lake has no table {table!r}; it has {', '.join(TABLES)}")
        return f"{self.uri}/{table}.lance"

    def dataset(self, table: str) -> lance.LanceDataset:
        """The Lance dataset of a table, at its pinned version or as this handle sees it.

        Raises:
            LakeError: the table cannot be opened, or its pinned version is gone.
        """
        with self._lock:
            if table not in self._datasets:
                if table != "commits" and self.pinned is None:
                    # The ledger is seen first, so that the other tables hold all that it names.
                    self.dataset("commits")
                    # Then the edits, so that the episodes they are about are in `trajectories`.
                    if table != "edits":
                        self.has_table("edits")
                version = (self._seen if self.pinned is None else self.pinned).get(table)
                if self.pinned is not None and version is None:
                    raise LakeError(f"{self.uri}: table {table} is not among the pinned versions")
                self._datasets[table] = self._open(table, version)
            return self._datasets[table]

    def has_table(self, table: str) -> bool:
        """Whether the lake has a table, as this handle sees it: the optional ones come with use.

        Raises:
            LakeError: the store cannot be reached, or no lake has such a table.
        """
        if table in TABLES:
            return True
        if self.pinned is not None:
            return table in self.pinned
        with self._lock:
            if table not in self._datasets and table not in self._absent:
                local = not is_object_store(self.uri)
                if local and not Path(self.table_uri(table)).is_dir():
                    self._absent.add(table)
                    return False
                try:
                    self.dataset(table)
                except LakeError as error:
                    if "was not found" not in str(error):
                        raise
                    self._absent.add(table)
            return table not in self._absent

    def _open(self, table: str, version: int | None) -> lance.LanceDataset:
        scattered = table == "trajectories" and is_object_store(self.uri)
        try:
            with self.errors_named(f"table {table}"):
                return self.open_dataset(
                    self.table_uri(table),
                    version=version,
                    session=self._session,
                    block_size=OBJECT_STORE_BLOCK_BYTES if scattered else None,
                )
        except LakeError as error:
            if self.pinned is None or "was not found" not in str(error):
                raise
            raise LakeError(
                f"{self.uri}: table {table} has no version {version}: it was purged or cleaned up,"
                f" or {_OF_ANOTHER_LAKE}"
            ) from error

    def open_dataset(self, uri: str, **arguments: Any) -> lance.LanceDataset:  # noqa: ANN401 - those of Lance
        """`lance.dataset` with this lake's storage options; credentials that expire are renewed.

        Raises:
            OSError, ValueError: as Lance; see `errors_named`.
        """
        if self._vended is None:
            return lance.dataset(uri, storage_options=dict(self._options), **arguments)
        return self._vended.open_dataset(uri, self._options, **arguments)

    def renew_credentials(self) -> bool:
        """Ask anew for credentials that a store refused; False where nothing gives any."""
        if self._vended is None:
            return False
        self._vended.forget()
        self.reopen()
        return True

    def reopen(self) -> None:
        """Read all anew from now on, at the versions seen so far: nothing is taken from caches.

        Lance keeps what a store has sent it of a table's metadata, damaged on its way or not.
        """
        with self._lock:
            self._seen.update({name: table.version for name, table in self._datasets.items()})
            self._datasets.clear()
            self._session = _new_session()

    def latest(self, table: str) -> lance.LanceDataset:
        """A fresh handle on a table's newest version, whatever this handle sees; for writers."""
        with self.errors_named(f"table {table}"):
            return self.open_dataset(self.table_uri(table), session=self._session)

    def versions(self) -> dict[str, int]:
        """Table -> version as this handle sees them.

        Whatever the ledger names at its version is in the others at theirs.
        """
        if self.pinned is not None:
            return dict(self.pinned)
        tables = [*TABLES, *(table for table in OPTIONAL_TABLES if self.has_table(table))]
        return {table: self.dataset(table).version for table in tables}

    def at(self, versions: Mapping[str, int]) -> Self:
        """The same lake pinned to versions (as from `versions()`); the caches are shared."""
        return type(self)(self.uri, self._options, versions, self._session)

    def newest(self) -> Self:
        """The lake pinned to what it holds now, whatever this handle sees; a pinned one stays."""
        handle = type(self)(self.uri, self._options, self.pinned, self._session)
        return handle.at(handle.versions())

    def with_default_options(self, defaults: Mapping[str, str]) -> Self:
        """The same lake with storage options for those that it does not have."""
        return type(self)(self.uri, {**defaults, **self._options}, self.pinned, self._session)

    def refresh(self) -> None:
        """See newer versions from now on; does nothing to a pinned lake."""
        if self.pinned is None:
            with self._lock:
                self._datasets.clear()
                self._seen.clear()
                self._absent.clear()

    def spec(self, spec_id: str) -> Spec:
        """The spec with this id.

        Raises:
            LakeError: the lake has none.
            CorruptDataError: its text does not match its id, which is a hash of it.
        """
        with self._lock:
            if spec_id not in self._specs:
                with self.errors_named("read specs"):
                    rows = self.dataset("specs").to_table(filter=equals("spec_id", spec_id))
                if not rows.num_rows:
                    raise LakeError(f"{self.uri}: there is no spec {spec_id!r}: {_OF_ANOTHER_LAKE}")
                self._specs[spec_id] = _parse_spec(spec_id, rows["spec_json"][0].as_py())
            return self._specs[spec_id]

    def redacted(self, text: str) -> str:
        """`text` without the credentials of this lake."""
        text = redact(text, self._options)
        return text if self._vended is None else self._vended.redacted(text)

    @contextmanager
    def errors_named(self, doing: str) -> Iterator[None]:
        """Turn what Lance raises inside into a LakeError that names this lake, secrets removed."""
        try:
            yield
        except BaseException as error:
            if not _from_lance(error):
                raise
            text = self.redacted(str(error))
            named = LakeError(f"{self.uri}: {doing}: {first_sentence(text)}")
            # A cause that prints a credential is cut off; any other helps whoever debugs.
            raise named from (error if text == str(error) else None)


def open_lake(
    uri: str | Path,
    *,
    storage_options: Mapping[str, str] | None = None,
    versions: Mapping[str, int] | None = None,
) -> Lake:
    """Open an existing lake.

    Args:
        uri: local path or object-store URI (`s3://bucket/robots.lake`).
        storage_options: options of the object store as Lance takes them; the usual environment
            variables (`AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`, ...) are honoured without, and what
            AWS's own chain gives (profile, web identity, the machine's role) is refreshed by
            Lance. Credentials that something else hands out for a while: see `lake.vended`.
        versions: table -> version to pin to.

    Raises:
        LakeNotFoundError: nothing there.
        LakeVersionError: written in a layout this Headrace does not know.
        LakeError: the store cannot be reached.
    """
    lake = Lake(normal_uri(uri), storage_options or {}, versions)
    found = layout_of(lake)
    if found is None:
        raise LakeNotFoundError(
            f"{lake.uri}: no lake here; `headrace ingest SOURCE {lake.uri}` or"
            " lake.create_lake(uri) makes one"
        )
    if found != str(LAYOUT_VERSION):
        raise LakeVersionError(
            f"{lake.uri}: layout version {found}, this Headrace reads {LAYOUT_VERSION}; use the"
            " Headrace that wrote it, or upgrade"
        )
    return lake


def layout_of(lake: Lake) -> str | None:
    """Layout version of what is at the lake's URI; None where there is no ledger."""
    if not is_object_store(lake.uri) and not Path(lake.table_uri("commits")).is_dir():
        return None
    try:
        ledger = lake.open_dataset(lake.table_uri("commits"))
    except ValueError as error:
        if "was not found" in str(error):
            return None
        raise LakeError(f"{lake.uri}: {first_sentence(lake.redacted(str(error)))}") from None
    except (OSError, RuntimeError) as error:
        text = first_sentence(lake.redacted(str(error)))
        raise LakeError(
            f"{lake.uri}: cannot be opened: {text}; check the path, endpoint and credentials"
        ) from None
    metadata: dict[bytes, bytes] = ledger.schema.metadata or {}
    return metadata.get(LAYOUT_KEY, b"none").decode()


def _new_session() -> "Session":
    session: Session = lance.Session(  # type: ignore[attr-defined] # its stub forgets to export it
        index_cache_size_bytes=_INDEX_CACHE_BYTES,
        metadata_cache_size_bytes=_METADATA_CACHE_BYTES,
    )
    return session


def _parse_spec(spec_id: str, text: str) -> Spec:
    try:
        spec = Spec.from_json(text)
    except (ValueError, KeyError, TypeError, AttributeError, SpecError) as error:
        raise CorruptDataError(f"spec {spec_id}: cannot be parsed ({error})") from error
    if spec.spec_id != spec_id:
        raise CorruptDataError(f"spec {spec_id}: its text does not match its id")
    return spec


def normal_uri(uri: str | Path) -> str:
    """An object-store URI without a slash at its end, or an absolute path.

    Raises:
        LakeError: it is empty.
    """
    text = str(uri).rstrip("/") or str(uri)[:1]
    if not text:
        # Path("") is the working directory, which nobody means by an unset shell variable.
        raise LakeError("the path of the lake is empty; name a folder or an object-store URI")
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    return text if is_object_store(text) else str(Path(text).expanduser().absolute())


def _from_lance(error: BaseException) -> bool:
    """True for what Lance and Arrow raise; a panic in Rust is not even an `Exception`."""
    known = (OSError, ValueError, RuntimeError, NotImplementedError, pa.ArrowException)
    return isinstance(error, known) or type(error).__name__ == "PanicException"


def first_sentence(text: str) -> str:
    """Lance's message without the places in its own source that it appends."""
    lines = _PLACE_IN_LANCE.split(text, maxsplit=1)[0].strip().splitlines()
    return lines[0] if lines else "unknown error"

"""A set of materialised packs in a lake: one Lance dataset beside the plan's tables.

`<lake>/plans/<plan hash>/packs-<name>.lance` has one row per pack, row i being row i of the plan:

    pack            int64         row of the plan
    data            large_binary  see `loader.materialized.pack`; not compressed again
    checksum        uint64        XXH3-64 of `data`
    data_bytes      int64         length of `data`
    video_bytes     int64         of it, packets
    spans, pictures int32         of the pack; `pictures` counts those in its picture table
    squared_error   int64         sum of squared differences to the pictures that were encoded
    pixel_values    int64         how many values were compared for it; 0 where packets were copied

The schema's metadata names plan, settings and layout. Rows are added only at the end, by a commit
that fails unless the dataset is as the writer last saw it. So of writers that race, however many,
one adds the next rows and the others see that they are there; and whatever is killed, the last
committed rows are there and whole.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments

from lake.errors import LakeError, LakeVersionError
from lake.object_store import list_folders, remove_folder
from lake.store import Lake
from lake.tables import STORAGE_VERSION
from loader.errors import LoaderError
from loader.materialized.settings import MaterializedSettings
from packing.plan_header import PlanHeader

if TYPE_CHECKING:
    from lance.lance import _Session as Session  # its stub knows the class by this name only

SCHEMA: Final = pa.schema(
    [
        pa.field("pack", pa.int64(), nullable=False),
        pa.field(
            "data",
            pa.large_binary(),
            nullable=False,
            metadata={"lance-encoding:compression": "none"},
        ),
        pa.field("checksum", pa.uint64(), nullable=False),
        *(
            pa.field(name, kind, nullable=False)
            for name, kind in (
                ("data_bytes", pa.int64()),
                ("video_bytes", pa.int64()),
                ("spans", pa.int32()),
                ("pictures", pa.int32()),
                ("squared_error", pa.int64()),
                ("pixel_values", pa.int64()),
            )
        ),
    ]
)
_METADATA_KEY: Final = b"headrace:materialized_packs"
_LAYOUT_VERSION: Final = 1
_PREFIX, _SUFFIX = "packs-", ".lance"
_CACHE_BYTES: Final = 64 << 20


@dataclass(frozen=True, kw_only=True)
class SetEntry:
    """A set of a plan, as a listing shows it: `packs` of `num_packs` are there."""

    name: str
    packs: int
    num_packs: int


class MaterializedSet:
    """An open set, as it was when opened or last reloaded; made by `open` or `create`.

    Attributes:
        lake: that holds it.
        plan_hash: of the plan whose packs it holds.
        num_packs: rows of the plan: packs of the complete set.
        settings: how its pictures are kept.
        uri: where it lies.
        packs: rows that are there.
    """

    def __init__(
        self,
        lake: Lake,
        header: PlanHeader,
        settings: MaterializedSettings,
        dataset: lance.LanceDataset,
        session: "Session",
    ) -> None:
        self.lake = lake
        self.plan_hash = header.plan_hash
        self.num_packs = header.num_steps * header.slots_per_step
        self.settings = settings
        self.uri = set_uri(lake, header.plan_hash, settings.name)
        self._dataset: lance.LanceDataset | None = dataset
        self.packs: int = dataset.count_rows()
        self._session = session

    @classmethod
    def open(cls, lake: Lake, header: PlanHeader, name: str) -> Self:
        """Open the set of this name.

        Raises:
            LoaderError: the plan has no such set; says what to run.
            LakeVersionError: of another layout.
            LakeError: it cannot be read, or is not a set of this plan.
        """
        settings, session = MaterializedSettings.from_name(name), _session()
        uri = set_uri(lake, header.plan_hash, name)
        dataset = _found(lake, uri, session)
        if dataset is None:
            raise LoaderError(_missing(lake, header.plan_hash, settings))
        _facts(uri, dataset.schema, header.plan_hash)
        return cls(lake, header, settings, dataset, session)

    @classmethod
    def create(cls, lake: Lake, header: PlanHeader, settings: MaterializedSettings) -> Self:
        """Open the set of these settings, made empty where it is not there.

        Any number of processes may do so at once.

        Raises:
            LakeError: it cannot be written.
        """
        uri = set_uri(lake, header.plan_hash, settings.name)
        if _found(lake, uri, _session()) is None:
            _create(lake, uri, header, settings)
        return cls.open(lake, header, settings.name)

    @property
    def dataset(self) -> lance.LanceDataset:
        """Its Lance dataset.

        Raises:
            LakeError: it cannot be opened.
        """
        dataset = self._dataset
        if dataset is None:
            dataset = self._dataset = _dataset(self.lake, self.uri, self._session)
        return dataset

    def reload(self) -> None:
        """See what others have added."""
        self._dataset = None
        self.packs = self.dataset.count_rows()

    def reopen(self) -> None:
        """Read all anew from now on: nothing is taken from what Lance keeps."""
        self._session = _session()
        self._dataset = None

    @property
    def complete(self) -> bool:
        """Whether all packs of the plan are there."""
        return self.packs == self.num_packs

    def require_complete(self) -> Self:
        """This set.

        Raises:
            LoaderError: packs are missing; says what to run.
        """
        if not self.complete:
            raise LoaderError(
                f"{self.uri}: holds {self.packs} of the plan's {self.num_packs} packs;"
                f" `{self.command}` completes it"
            )
        return self

    @property
    def command(self) -> str:
        """The command that makes or completes this set."""
        return _command(self.lake, self.plan_hash, self.settings)

    def write_rows(self, rows: Sequence[pa.RecordBatch]) -> list[FragmentMetadata]:
        """Write rows into a data file that nobody sees before `commit`."""
        with self.lake.errors_named("write materialised packs"):
            fragments: list[FragmentMetadata] = write_fragments(
                pa.Table.from_batches(rows, SCHEMA),
                self.uri,
                schema=SCHEMA,
                mode="append",
                data_storage_version=STORAGE_VERSION,
                storage_options=dict(self.lake.storage_options),
            )
        return fragments

    def commit(self, fragments: Sequence[FragmentMetadata]) -> bool:
        """Add written rows behind those that this handle sees; False where others were first.

        After False the handle sees what is there now, and nothing of `fragments` is.

        Raises:
            LakeError: the store failed.
        """
        there = [fragment.metadata for fragment in self.dataset.get_fragments()]
        # Lance lets racing appends all win. An overwrite that may not be retried commits only if
        # it makes the very next version; its data files are those of before and the new ones.
        operation = lance.LanceOperation.Overwrite(self.dataset.schema, [*there, *fragments])
        try:
            with self.lake.errors_named("commit materialised packs"):
                lance.LanceDataset.commit(
                    self.uri,
                    operation,
                    read_version=self.dataset.version,
                    max_retries=0,
                    storage_options=dict(self.lake.storage_options),
                )
        except LakeError:
            before = self.dataset.version
            self.reload()
            if self.dataset.version == before:
                raise
            # Also where our own commit came through and only its reply got lost.
            return False
        self.reload()
        return True

    @property
    def has_former_versions(self) -> bool:
        """Whether there is something to clean up."""
        with self.lake.errors_named("look at materialised packs"):
            return len(self.dataset.versions()) > 1

    def clean_up(self) -> None:
        """Delete former versions and files of writers that died; only of a complete set.

        Whoever still writes cannot commit any more, for nothing is missing.
        """
        with self.lake.errors_named("clean up materialised packs"):
            self.dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    def take(self, packs: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Rows of some packs, in their order.

        Raises:
            LakeError: they cannot be read.
        """
        with self.lake.errors_named("read materialised packs"):
            return self.dataset.take(list(packs), columns=list(columns))

    def file_of(self, pack: int) -> str:
        """URI of the data file that holds a pack."""
        for fragment in self.dataset.get_fragments():
            if pack < fragment.physical_rows:
                return f"{self.uri}/data/{fragment.metadata.files[0].path}"
            pack -= fragment.physical_rows
        return self.uri


def set_uri(lake: Lake, plan_hash: str, name: str) -> str:
    """Where a set lies."""
    return f"{_folder(lake, plan_hash)}/{_PREFIX}{name}{_SUFFIX}"


def list_sets(lake: Lake, plan_hash: str) -> list[SetEntry]:
    """The sets of a plan, by name.

    Raises:
        LakeVersionError: one is of another layout.
        LakeError: the lake cannot be listed, or a set cannot be read.
    """
    found = []
    for name in _set_names(lake, plan_hash):
        uri = set_uri(lake, plan_hash, name)
        if (dataset := _found(lake, uri, _session())) is None:
            continue  # of a creation that was killed, or a store that keeps empty folders
        num_packs: int = _facts(uri, dataset.schema, plan_hash)["num_packs"]
        found.append(SetEntry(name=name, packs=dataset.count_rows(), num_packs=num_packs))
    return found


def remove_set(lake: Lake, plan_hash: str, settings: MaterializedSettings) -> None:
    """Delete a set and all its files; loaders that read it end with an error.

    Raises:
        LoaderError: there is no such set.
        LakeError: it cannot be deleted.
    """
    if settings.name not in _set_names(lake, plan_hash):
        raise LoaderError(_missing(lake, plan_hash, settings))
    remove_folder(set_uri(lake, plan_hash, settings.name), lake.storage_options)


def _set_names(lake: Lake, plan_hash: str) -> list[str]:
    folders = list_folders(_folder(lake, plan_hash), lake.storage_options)
    return sorted(
        folder.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        for folder in folders
        if folder.startswith(_PREFIX) and folder.endswith(_SUFFIX)
    )


def _folder(lake: Lake, plan_hash: str) -> str:
    return f"{lake.uri}/plans/{plan_hash}"


def _command(lake: Lake, plan_hash: str, settings: MaterializedSettings) -> str:
    options = settings.command_options
    return f"headrace plan materialize {lake.uri} {plan_hash[:16]}{options}"


def _missing(lake: Lake, plan_hash: str, settings: MaterializedSettings) -> str:
    """Says that there is no such set, which there are, and what to run."""
    try:
        others = ", ".join(entry.name for entry in list_sets(lake, plan_hash))
    except LakeError:
        others = ""  # they cannot be listed; the message is right without
    there = f"; it has {others}" if others else ""
    return (
        f"{lake.uri}: plan {plan_hash[:16]} has no materialised packs {settings.name!r}{there};"
        f" `{_command(lake, plan_hash, settings)}` makes them"
    )


def _session() -> "Session":
    session: Session = lance.Session(  # type: ignore[attr-defined] # its stub forgets to export it
        index_cache_size_bytes=_CACHE_BYTES, metadata_cache_size_bytes=_CACHE_BYTES
    )
    return session


def _dataset(lake: Lake, uri: str, session: "Session") -> lance.LanceDataset:
    with lake.errors_named("materialised packs"):
        return lake.open_dataset(uri, session=session)


def _found(lake: Lake, uri: str, session: "Session") -> lance.LanceDataset | None:
    """The dataset of a set, None where there is none."""
    try:
        return _dataset(lake, uri, session)
    except LakeError as error:
        if "was not found" not in str(error):
            raise
        return None


def _create(lake: Lake, uri: str, header: PlanHeader, settings: MaterializedSettings) -> None:
    facts = {
        "layout_version": _LAYOUT_VERSION,
        "plan_hash": header.plan_hash,
        "num_packs": header.num_steps * header.slots_per_step,
        "settings": settings.to_dict(),
    }
    schema = SCHEMA.with_metadata({_METADATA_KEY: json.dumps(facts, sort_keys=True).encode()})
    options = dict(lake.storage_options)
    try:
        with lake.errors_named("create materialised packs"):
            creation = write_fragments(
                schema.empty_table(),
                uri,
                mode="create",
                return_transaction=True,
                data_storage_version=STORAGE_VERSION,
                storage_options=options,
            )
            lance.LanceDataset.commit(uri, creation, storage_options=options, max_retries=0)
    except LakeError:
        # Another process may have been first: what counts is that it is there.
        if _found(lake, uri, _session()) is None:
            raise


def _facts(uri: str, schema: pa.Schema, plan_hash: str) -> dict[str, Any]:
    """What the metadata of a stored set says.

    Raises:
        LakeVersionError: of another layout.
        LakeError: no set, or one of another plan.
    """
    try:
        facts: dict[str, Any] = json.loads((schema.metadata or {})[_METADATA_KEY])
        version, owner = facts["layout_version"], facts["plan_hash"]
    except (KeyError, ValueError, TypeError) as error:
        raise LakeError(f"{uri}: holds no materialised packs ({error!r})") from error
    if version != _LAYOUT_VERSION:
        raise LakeVersionError(
            f"{uri}: layout version {version}, this Headrace reads {_LAYOUT_VERSION}; remove it and"
            " materialise again, or use the Headrace that wrote it"
        )
    if owner != plan_hash:
        raise LakeError(f"{uri}: holds packs of plan {owner}, not of {plan_hash}")
    return facts

"""Creating a lake, and the tables that a lake gets when they are first used."""

from collections.abc import Mapping
from pathlib import Path

import lance
import pyarrow as pa
from lance.fragment import write_fragments

from lake.errors import LakeError
from lake.object_store import is_object_store, require_conditional_put
from lake.store import Lake, first_sentence, layout_of, normal_uri, open_lake
from lake.tables import OPTIONAL_TABLES, STORAGE_VERSION, TABLES, schema_of


def create_lake(uri: str | Path, *, storage_options: Mapping[str, str] | None = None) -> Lake:
    """Create an empty lake, or open the one that is there.

    Any number of processes may do so at once. The ledger is created last: a creation that was
    cut short is not a lake yet, and the next call completes it.

    Raises:
        CommitConflictError: the object store cannot promise an atomic commit.
        LakeVersionError: a lake of another layout is there.
        LakeError: the place cannot be written, or holds something else.
    """
    lake = Lake(normal_uri(uri), storage_options or {})
    if layout_of(lake) is None:
        if not is_object_store(lake.uri):
            with lake.errors_named("look at the place for the lake"):
                _require_free(Path(lake.uri))
        require_conditional_put(lake.uri, lake.storage_options)
        for table in TABLES:
            create_table(lake, table)
    return open_lake(lake.uri, storage_options=storage_options)


def _require_free(folder: Path) -> None:
    """Refuse a place that holds anything but tables of a lake whose creation was cut short.

    Who forgets to name the lake in `headrace ingest A B` must not get one inside recording B.

    Raises:
        LakeError: a file, or a folder with other things in it.
    """
    if folder.is_file():
        raise LakeError(f"{folder}: is a file; a lake is a folder, choose another path")
    if not folder.is_dir():
        return
    ours = {f"{table}.lance" for table in (*TABLES, *OPTIONAL_TABLES)}
    others = sorted(p.name for p in folder.iterdir() if p.name not in ours and p.name[0] != ".")
    if others:
        raise LakeError(
            f"{folder}: is no lake and not empty (it holds {', '.join(others[:3])}); name a new or"
            " empty folder for the lake"
        )


def create_table(lake: Lake, table: str) -> None:
    """Create a table of the lake, empty; does nothing where it is there.

    Raises:
        LakeError: the place cannot be written.
    """
    schema = schema_of(table)
    columns = [
        lance.blob_array([]) if field.name == "video" else pa.array([], field.type)
        for field in schema
    ]
    options = dict(lake.storage_options)
    try:
        creation = write_fragments(
            pa.Table.from_arrays(columns, schema=schema),
            lake.table_uri(table),
            mode="create",
            return_transaction=True,
            data_storage_version=STORAGE_VERSION,
            storage_options=options,
        )
        # Lance creates by an overwrite. Were it retried after another process had created the
        # table, it would empty it: so the first version or none.
        lance.LanceDataset.commit(
            lake.table_uri(table), creation, storage_options=options, max_retries=0
        )
    except (OSError, ValueError, RuntimeError) as error:
        # Another process may have been first, at any moment: what counts is that it is there.
        try:
            lake.latest(table)
        except LakeError:
            text = first_sentence(lake.redacted(str(error)))
            raise LakeError(f"{lake.uri}: table {table} cannot be created: {text}") from None


def ensure_table(lake: Lake, table: str) -> None:
    """Create a table that comes with use, where the lake does not have it yet.

    Raises:
        LakeError: the place cannot be written.
    """
    try:
        lake.latest(table)
    except LakeError as error:
        if "was not found" not in str(error):
            raise
        create_table(lake, table)

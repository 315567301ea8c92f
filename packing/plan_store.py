"""Plans in a lake: saved whole or not at all, and checked against their hash when loaded.

A plan's tables are Lance datasets `packs`, `episodes`, `texts` and `runs` in
`<lake>/plans/<hash>/`, and beside them `digests`, by which a part of them can be checked (see
`packing.stored_plan`). The row in the lake's table `plans`, with the header, is written last: a
plan without it does not exist, and saving it again completes it. Before that row, every table
version that the plan was read from is tagged `plan-<hash>`, so that clean-up keeps what the plan's
row addresses mean.
"""

import json
import re
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import lance
import pyarrow as pa

from lake.errors import LakeError
from lake.insert import insert_new
from lake.store import Lake
from lake.tables import STORAGE_VERSION, TABLES
from packing.errors import PlanError
from packing.plan import TABLE_SCHEMAS, Plan
from packing.plan_digests import digests_of
from packing.plan_header import PlanHeader
from packing.reading import Reading, read_once

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MIN_PREFIX: Final = 8


@dataclass(frozen=True, kw_only=True)
class PlanEntry:
    """A saved plan as the registry knows it; `time_ns` is when it was saved."""

    plan_hash: str
    name: str
    location: str
    time_ns: int


def save_plan(lake: Lake, plan: Plan, name: str | None = None) -> PlanEntry:
    """Save a plan and the selection it was made from; saving it again changes nothing.

    Args:
        lake: the lake it was made from, not pinned.
        plan: sealed (with its hash), as `make_plan` returns it.
        name: to find it by; by default the first 12 digits of its hash.

    Raises:
        PlanError: the name belongs to another plan, or this plan has another name.
        LakeError: the lake cannot be written.
    """
    name = plan.plan_hash[:12] if name is None else name
    if not _NAME.fullmatch(name):
        raise PlanError(f"plan name {name!r}: use letters, digits, '.', '_' and '-'")
    if plan.content_hash() != plan.plan_hash:
        raise PlanError(f"plan {plan.plan_hash or '(unsealed)'} is not what its hash says")
    if (known := _claimed(lake, plan.plan_hash, name)) is not None:
        return known
    location = plan_location(plan.plan_hash)
    tables = {table: getattr(plan, table) for table in TABLE_SCHEMAS}
    for table, rows in {**tables, "digests": digests_of(plan)}.items():
        with lake.errors_named(f"save plan {name}"):
            _write(lake, rows, f"{lake.uri}/{location}/{table}.lance")
    _tag(lake, plan.header)
    if plan.selection is not None:
        # Imported where it is used: who loads plans needs no DuckDB.
        from catalog.selection import store_selection  # noqa: PLC0415

        store_selection(lake, plan.selection, named=False)
    row = {
        "plan_hash": plan.plan_hash,
        "name": name,
        "selection_hash": plan.header.selection_hash,
        "location": location,
        "header_json": plan.header.to_json(),
        "versions_json": json.dumps(dict(plan.header.versions), sort_keys=True),
        "time_ns": time.time_ns(),
    }
    insert_new(lake, "plans", pa.Table.from_pylist([row], schema=TABLES["plans"]))
    return find_plan(lake, plan.plan_hash)


def list_plans(lake: Lake) -> list[PlanEntry]:
    """All saved plans, oldest first."""
    with lake.errors_named("read the plans"):
        columns = ["plan_hash", "name", "location", "time_ns"]
        rows = lake.latest("plans").to_table(columns=columns).to_pylist()
    return sorted((PlanEntry(**row) for row in rows), key=lambda entry: entry.time_ns)


def load_plan_header(lake: Lake, name_or_hash: str) -> PlanHeader:
    """The header alone, without reading or verifying the tables.

    Raises:
        PlanError: unknown or ambiguous, or of another layout version.
    """
    return PlanHeader.from_json(read_header_json(lake, find_plan(lake, name_or_hash)))


def load_plan(lake: Lake, name_or_hash: str, reading: Reading = read_once) -> Plan:
    """A plan by its name, or by its hash or at least 8 first digits of it; verified.

    Args:
        lake: that holds it.
        name_or_hash: see `find_plan`.
        reading: how its tables are read.

    Raises:
        PlanError: unknown or ambiguous, of another layout version, unreadable, or not what its
            hash says.
    """
    entry = find_plan(lake, name_or_hash)
    header = PlanHeader.from_json(read_header_json(lake, entry))
    tables: dict[str, pa.Table] = {}
    for table in TABLE_SCHEMAS:
        try:
            tables[table] = reading(
                partial("the plan's table {}".format, table),
                partial(_read_table, lake, entry, table),
            )
        except LakeError as error:
            raise PlanError(
                f"plan {entry.name}: its table {table} is unreadable: {error}"
            ) from error
    plan = Plan(header=header, **tables)
    if header.plan_hash != entry.plan_hash or (found := plan.content_hash()) != entry.plan_hash:
        raise PlanError(
            f"plan {entry.name}: its content has hash {found[:16]}, the lake says"
            f" {entry.plan_hash[:16]}: it was damaged or changed; make the plan again"
        )
    return plan


def _read_table(lake: Lake, entry: PlanEntry, table: str) -> pa.Table:
    with lake.errors_named(f"read plan {entry.name}"):
        stored = lake.open_dataset(f"{lake.uri}/{entry.location}/{table}.lance")
        return stored.to_table().cast(TABLE_SCHEMAS[table]).combine_chunks()


def plan_location(plan_hash: str) -> str:
    """The folder of a plan's tables, below the lake."""
    return f"plans/{plan_hash}"


def read_header_json(lake: Lake, entry: PlanEntry) -> str:
    """The header of a saved plan as it was written."""
    with lake.errors_named(f"read plan {entry.name}"):
        rows = lake.latest("plans").to_table(
            columns=["header_json"], filter=f"plan_hash = '{entry.plan_hash}'"
        )
    text: str = rows["header_json"][0].as_py()
    return text


def find_plan(lake: Lake, name_or_hash: str) -> PlanEntry:
    """The registry's entry of a plan, by name, hash or at least 8 first digits of the hash.

    Raises:
        PlanError: unknown or ambiguous.
    """
    entries = list_plans(lake)
    found = [entry for entry in entries if entry.name == name_or_hash]
    if not found and len(name_or_hash) >= _MIN_PREFIX:
        found = [entry for entry in entries if entry.plan_hash.startswith(name_or_hash)]
    if not found:
        known = ", ".join(entry.name for entry in entries) or "none"
        raise PlanError(
            f"{lake.uri}: no plan {name_or_hash!r}; there are: {known}. `headrace pack` makes one"
        )
    if len(found) > 1:
        hashes = ", ".join(entry.plan_hash[:16] for entry in found)
        raise PlanError(
            f"{lake.uri}: {name_or_hash!r} means {len(found)} plans; use a hash: {hashes}"
        )
    return found[0]


def _claimed(lake: Lake, plan_hash: str, name: str) -> PlanEntry | None:
    """This plan where it is saved already; raises where hash or name mean something else."""
    for entry in list_plans(lake):
        if entry.plan_hash == plan_hash:
            if entry.name != name and name != plan_hash[:12]:
                raise PlanError(f"the same plan is saved as {entry.name!r} already; use that name")
            return entry
        if entry.name == name:
            raise PlanError(
                f"plan {name!r} is taken by another plan, hash {entry.plan_hash[:16]} (this one has"
                f" {plan_hash[:16]}); choose another name"
            )
    return None


def _write(lake: Lake, table: pa.Table, uri: str) -> None:
    options = dict(lake.storage_options)
    try:
        lance.write_dataset(
            table, uri, data_storage_version=STORAGE_VERSION, storage_options=options
        )
    except OSError as error:
        if "already exists" not in str(error):
            raise
        # Left behind by a save that was killed: the same content, by the hash in its path.
        lance.write_dataset(
            table,
            uri,
            mode="overwrite",
            data_storage_version=STORAGE_VERSION,
            storage_options=options,
        )


def _tag(lake: Lake, header: PlanHeader) -> None:
    """Tag the versions that the plan pins."""
    tag = f"plan-{header.plan_hash}"
    for table, version in header.versions.items():
        with lake.errors_named(f"tag table {table}"):
            dataset = lake.latest(table)
            tags: dict[str, Any] = dataset.tags.list()
            if tag not in tags:
                dataset.tags.create(tag, version)
            elif tags[tag]["version"] != version:
                # Of a save that was killed, made from other versions of the same content.
                dataset.tags.update(tag, version)

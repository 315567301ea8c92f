"""A selection: SQL frozen to a sorted list of episode ids, with versions and a hash."""

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from catalog.errors import SelectionError, require_unicode
from catalog.reader import Catalog
from lake.insert import insert_new
from lake.store import Lake
from lake.tables import TABLES

# What a question about episodes is answered from; a later plan or run does not change the answer.
_PINNED: Final = ("commits", "trajectories", "episodes", "specs", "stats", "edits")
SELECTION_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NULLABLE: Final = ("success", "task", "instruction", "quality", "split", "fps")
_MIN_PREFIX: Final = 8


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A frozen choice of episodes.

    Attributes:
        name: unique in its lake.
        sql: the query it came from.
        episode_ids: sorted, distinct, not empty.
        versions: lake table -> version it was answered from.
        hash: SHA-256 (hex) over ids and versions.
    """

    name: str
    sql: str
    episode_ids: tuple[str, ...]
    versions: Mapping[str, int]
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        if not self.episode_ids or list(self.episode_ids) != sorted(set(self.episode_ids)):
            raise SelectionError(f"selection {self.name}: ids must be sorted, distinct, not none")
        text = json.dumps([self.episode_ids, dict(sorted(self.versions.items()))])
        object.__setattr__(self, "hash", hashlib.sha256(text.encode()).hexdigest())


def answer_selection(catalog: Catalog, sql_or_predicate: str, *, name: str = "") -> Selection:
    """Answer a query now, without keeping the answer in the lake.

    Args:
        catalog: the catalog, as it is.
        sql_or_predicate: a query with an `episode_id` column (others are ignored, repeats count
            once), or a condition over `episodes` such as `success and num_steps > 30`.
        name: by default the first 12 digits of the hash.

    Raises:
        SelectionError: nothing matches, there is no `episode_id`, or it names unknown episodes.
        CatalogError: the SQL is wrong.
    """
    sql = as_query(sql_or_predicate)
    selection = Selection(
        name=name,
        sql=sql,
        episode_ids=_episode_ids(catalog, sql),
        versions={t: catalog.versions[t] for t in _PINNED if t in catalog.versions},
    )
    return selection if name else replace(selection, name=selection.hash[:12])


def freeze_selection(lake: Lake, sql_or_predicate: str, *, name: str | None = None) -> Selection:
    """Answer a query over the lake as it is now, and keep the answer in its table `selections`.

    Args:
        lake: an unpinned lake; its catalog is refreshed first.
        sql_or_predicate: see `answer_selection`.
        name: name to find it by; by default the first 12 digits of its hash.

    Returns:
        The selection. Freezing the same answer again returns the one that is there.

    Raises:
        SelectionError: see `answer_selection`; or the name belongs to another selection.
        CatalogError: the SQL is wrong.
    """
    if name is not None and not SELECTION_NAME.fullmatch(name):
        raise SelectionError(f"selection name {name!r}: use letters, digits, '.', '_' and '-'")
    with Catalog(lake) as catalog:
        selection = answer_selection(catalog, sql_or_predicate, name=name or "")
    return store_selection(lake, selection, named=name is not None)


def load_selection(lake: Lake, name_or_hash: str) -> Selection:
    """A selection of the lake by its name, or by its hash or at least 8 first digits of it.

    Raises:
        SelectionError: unknown, ambiguous, or its row does not match its hash.
    """
    rows = _rows(lake)
    found = [row for row in rows if row["name"] == name_or_hash]
    if not found and len(name_or_hash) >= _MIN_PREFIX:
        found = [row for row in rows if row["selection_hash"].startswith(name_or_hash)]
    if not found:
        known = ", ".join(sorted(row["name"] for row in rows)) or "none"
        raise SelectionError(
            f"{lake.uri}: no selection {name_or_hash!r}; there are: {known}. `headrace select`"
            " makes one"
        )
    if len(found) > 1:
        hashes = ", ".join(row["selection_hash"][:16] for row in found)
        raise SelectionError(
            f"{lake.uri}: {name_or_hash!r} names {len(found)} selections; use a hash: {hashes}"
        )
    return _load(lake, found[0]["selection_hash"])


def as_query(sql_or_predicate: str, table: str = "episodes") -> str:
    """A statement as it is, a condition as the query of the episodes in `table` that meet it."""
    text = sql_or_predicate.strip().rstrip(";").strip()
    if not text:
        raise SelectionError("an empty condition; `true` selects every episode")
    require_unicode(text)
    try:
        duckdb.extract_statements(text)
    except duckdb.Error:
        end = "\n" if "--" in text else ""  # ends a comment that the condition may end with
        return f"SELECT episode_id FROM {table} WHERE ({text}{end})"  # noqa: S608 - sandboxed
    return text


def _episode_ids(catalog: Catalog, sql: str) -> tuple[str, ...]:
    answer = catalog.query(sql)
    if "episode_id" not in answer.column_names:
        raise SelectionError(
            "a selection needs a column episode_id; the query gives: "
            + ", ".join(answer.column_names)
        )
    ids = pc.unique(answer["episode_id"].cast(pa.string()))
    if not len(ids):
        raise SelectionError(_why_empty(catalog, sql))
    if ids.null_count:
        raise SelectionError("the query gives episode_id NULL; add `WHERE episode_id IS NOT NULL`")
    known = catalog.query("SELECT episode_id FROM episodes")["episode_id"]
    unknown = ids.filter(pc.invert(pc.is_in(ids, value_set=known)))
    if len(unknown):
        raise SelectionError(
            f"{len(unknown)} of {len(ids)} ids are not episodes of the lake, first {unknown[0]}"
        )
    return tuple(sorted(ids.to_pylist()))


def _why_empty(catalog: Catalog, sql: str) -> str:
    counts = ", ".join(f"count({name})" for name in _NULLABLE)
    counted = catalog.query(f"SELECT count(*), {counts} FROM episodes")  # noqa: S608
    total, *known = counted.to_pylist()[0].values()
    if total == 0:
        return f"{catalog.lake.uri}: nothing to select from: the lake has no episodes"
    blank = [
        name
        for name, count in zip(_NULLABLE, known, strict=True)
        if not count and re.search(rf"\b{name}\b", sql, re.IGNORECASE)
    ]
    reason = f"none of {total} episodes matches: {' '.join(sql.split())}"
    if blank:
        reason += f"; {' and '.join(blank)} is NULL in every episode (`headrace label` sets labels)"
    return reason


def store_selection(lake: Lake, selection: Selection, *, named: bool) -> Selection:
    """Keep an answer in the table `selections`; one that is there already is returned.

    Args:
        lake: an unpinned lake.
        selection: as `answer_selection` gives it.
        named: the name was chosen, and matters where the answer is there under another one.

    Raises:
        SelectionError: the name belongs to another selection, or this one has another name.
    """
    for row in _rows(lake):
        if row["selection_hash"] == selection.hash:
            if named and row["name"] != selection.name:
                raise SelectionError(
                    f"these episodes are frozen as {row['name']!r} already; use that name"
                )
            return _load(lake, selection.hash)
        if row["name"] == selection.name:
            raise SelectionError(
                f"selection {selection.name!r} is taken: it has {row['num_episodes']} episodes,"
                f" hash {row['selection_hash'][:12]}, and this one {len(selection.episode_ids)},"
                f" hash {selection.hash[:12]} (the query differs, or labels or episodes changed);"
                " choose another name, or load the old one"
            )
    _insert(lake, selection)
    return _load(lake, selection.hash)


def _insert(lake: Lake, selection: Selection) -> None:
    row = {
        "selection_hash": selection.hash,
        "name": selection.name,
        "sql": selection.sql,
        "episode_ids": list(selection.episode_ids),
        "num_episodes": len(selection.episode_ids),
        "versions_json": json.dumps(dict(selection.versions), sort_keys=True),
        "time_ns": time.time_ns(),
    }
    rows = pa.Table.from_pylist([row], schema=TABLES["selections"])
    insert_new(lake, "selections", rows)


def _rows(lake: Lake) -> list[dict[str, Any]]:
    with lake.errors_named("read the selections"):
        columns = ["selection_hash", "name", "num_episodes"]
        rows: list[dict[str, Any]] = lake.latest("selections").to_table(columns=columns).to_pylist()
    return rows


def _load(lake: Lake, selection_hash: str) -> Selection:
    with lake.errors_named("read a selection"):
        table = lake.latest("selections").to_table(filter=f"selection_hash = '{selection_hash}'")
    row = table.to_pylist()[0]
    selection = Selection(
        name=row["name"],
        sql=row["sql"],
        episode_ids=tuple(row["episode_ids"]),
        versions=json.loads(row["versions_json"]),
    )
    if selection.hash != selection_hash:
        raise SelectionError(
            f"{lake.uri}: selection {selection.name!r} does not match its hash: its row is damaged;"
            " freeze it again under another name"
        )
    return selection

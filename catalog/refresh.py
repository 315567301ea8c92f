"""Bring the catalog of a lake up to date: diff, copy, one transaction, publish."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from catalog.attach import attached
from catalog.errors import CatalogError, first_line
from catalog.location import catalog_path
from catalog.mirror import (
    MirrorChange,
    MirrorState,
    apply,
    create_mirror,
    lake_state,
    stored_state,
)
from catalog.publish import file_identity, publish, remove_litter, workspace
from lake.store import Lake

_ATTEMPTS: Final = 8


@dataclass(frozen=True, kw_only=True)
class CatalogRefresh:
    """What a refresh did.

    Attributes:
        path: the catalog file.
        changed: False where the catalog was up to date and the file was left alone.
        rebuilt: why the catalog was built from nothing, "" where it was not.
        fragments_loaded, fragments_dropped: Lance fragments read, and found gone or changed.
        rows_loaded: rows copied from the lake, over all tables.
        versions: lake table -> version the catalog now shows.
    """

    path: Path
    changed: bool
    rebuilt: str
    fragments_loaded: int
    fragments_dropped: int
    rows_loaded: int
    versions: Mapping[str, int]


def refresh_catalog(lake: Lake, path: Path | None = None) -> CatalogRefresh:
    """Make the catalog show the newest state of the lake.

    The published file is never written: the changes go, in one transaction, into a copy that then
    replaces it, so a crash at any point leaves the last published catalog and queries of other
    processes go on undisturbed. When another refresh published meanwhile, the difference is
    taken again from what it published; the last to publish wins and is complete.

    Args:
        lake: the lake; a pinned one shows its pinned versions and needs a `path` of its own.
        path: the catalog file; `catalog_path(lake)` by default.

    Raises:
        CatalogError: the file cannot be written, or the lake is pinned and no path was given.
        LakeError: the lake cannot be read.
    """
    if lake.pinned is not None and path is None:
        raise CatalogError(
            f"{lake.uri}: the lake is pinned to old versions and the shared catalog shows the"
            " newest; give a path for a catalog of its own"
        )
    target = path or catalog_path(lake)
    try:
        remove_litter(target.parent)
        for attempt in range(_ATTEMPTS):
            # The lake is looked at after the file, so no published catalog is newer than the look.
            base = file_identity(target)
            seen = lake.newest()
            new = lake_state(seen)
            old, rebuilt = _published_state(target)
            if old == new:
                return _report(target, rebuilt, new, None)
            with workspace(target.parent) as work:
                built = work / target.name
                try:
                    change = _build(built, seen, new, base=None if rebuilt else target)
                except duckdb.Error as error:
                    if rebuilt:
                        raise
                    rebuilt = f"the file could not be changed ({first_line(error)})"
                    built = work / f"again-{target.name}"
                    change = _build(built, seen, new, base=None)
                if publish(built, target, over=base, force=attempt == _ATTEMPTS - 1):
                    return _report(target, rebuilt, new, change)
    except (OSError, duckdb.Error) as error:
        raise CatalogError(
            f"{target}: the catalog cannot be refreshed: {first_line(error)}; check free space and"
            " permissions"
        ) from error
    raise AssertionError("unreachable: the last attempt publishes")


def _report(
    target: Path, rebuilt: str, new: MirrorState, change: MirrorChange | None
) -> CatalogRefresh:
    done = change or MirrorChange(0, 0, 0)
    return CatalogRefresh(
        path=target,
        changed=change is not None,
        rebuilt=rebuilt,
        fragments_loaded=done.fragments_loaded,
        fragments_dropped=done.fragments_dropped,
        rows_loaded=done.rows_loaded,
        versions=new.versions,
    )


def _published_state(target: Path) -> tuple[MirrorState | None, str]:
    """State of the published file, and why it must be rebuilt ("" where it need not be).

    The lake holds all the truth, so a file that cannot be read is replaced, not reported.
    """
    if not target.exists():
        return None, "there was none"
    try:
        with attached(target) as connection:
            return stored_state(connection), ""
    except duckdb.Error as error:
        return None, f"the file could not be read ({first_line(error)})"


def _build(built: Path, lake: Lake, new: MirrorState, *, base: Path | None) -> MirrorChange:
    """Write the catalog of `new`, the state of the pinned `lake`, to `built`.

    Args:
        built: a path in a private folder.
        lake: where to load from.
        new: what the catalog shall show.
        base: published file to start from, None to start from nothing. What it holds is read from
            the copy: the file may be replaced at any moment.

    Raises:
        duckdb.Error: the base is damaged, or there is no room.
    """
    if base is not None:
        shutil.copyfile(base, built)
    with duckdb.connect(str(built)) as connection:
        connection.execute("BEGIN")
        if base is None:
            create_mirror(connection)
        change = apply(connection, lake, stored_state(connection), new)
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT")
    return change

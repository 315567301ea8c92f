"""True erasure: no version of any table has the bytes of the purged episodes any more.

A purge is begun by an edit that says what is purged, and ended by one that says so. What comes
between may be repeated, so a purge that was killed is gone on with by the next.

1. The rows are deleted from every table, those of the ledger last: without it a row is one that a
   writer would adopt.
2. Each fragment that held some is rewritten without them (see `lake.rewrite`).
3. Plans that pin versions with the rows are given up, where that was asked for: their tags, tables
   and materialised packs go.
4. All versions but the newest and those that are tagged go, with the files that they alone need,
   and the catalog's file where it lies in the lake.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lake.edit.apply import Author, apply, edit_of, require
from lake.edit.forget_views import forget_views
from lake.edit.log import Edit, EditState, append_edit, edit_state, unfinished_purges
from lake.errors import EditError, LakeError
from lake.files import delete_files, files_under, unnamed_files
from lake.retry import until_won
from lake.rewrite import rewrite_fragments
from lake.store import Lake
from lake.tables import CATALOG_FILE, among, equals
from lake.visible import stored_episodes

_ERASED: Final = ("trajectories", "raw", "episodes", "stats", "commits")
_PIN: Final = "plan-"
_IDS: Final = 500


@dataclass(frozen=True, kw_only=True)
class Purged:
    """What a purge did, or would do.

    Attributes:
        episode_ids: what it erased, episodes made of the purged ones included.
        rows: table -> rows erased; of a purge that goes on, those that were left.
        plans: tags of the plans that were given up.
        unnamed_files: files that no version names are still there: of a writer at work or killed.
    """

    episode_ids: tuple[str, ...]
    rows: dict[str, int]
    plans: tuple[str, ...]
    unnamed_files: int = 0


def purge(
    lake: Lake,
    episode_ids: Sequence[str],
    by: Author,
    *,
    force: bool = False,
    sweep: bool = False,
    dry_run: bool = False,
) -> Purged:
    """Erase deleted episodes, and what an earlier purge did not come to.

    Their ids and ingest keys stay in the table `edits`, so that the next ingest of the same source
    does not bring them back; `undo_edit` of the purge lets it.

    Args:
        lake: an unpinned lake.
        episode_ids: episodes that are hidden; none to go on with what was begun.
        by: who and why.
        force: give up the plans that pin the episodes; without it they forbid the purge.
        sweep: erase what killed writers left too: files that no version names, and recordings
            without an episode. Nothing else may be writing to the lake.
        dry_run: check, and change nothing.

    Raises:
        EditError: an episode that is not hidden, steps of it are in one that is seen, or a plan
            pins it; nothing is changed then.
        CommitConflictError: a writer was in the way; run again.
        LakeError: the lake cannot be read or written.
    """
    if lake.pinned is not None:
        raise LakeError(f"{lake.uri}: a lake pinned to versions cannot be purged")
    if episode_ids:
        edit = apply(
            lake, lambda state: _begin(lake, state, episode_ids, by, force=force), dry_run=dry_run
        )
        if dry_run:
            victims = edit.episode_ids
            return Purged(
                episode_ids=victims, rows=_count(lake, victims), plans=tuple(edit.detail["pins"])
            )
    lake.refresh()
    begun = unfinished_purges(edit_state(lake))
    victims = tuple(e for edit in begun for e in edit.hidden)
    late = _pins(lake, victims) if force else []
    pins = dict.fromkeys([*(pin for edit in begun for pin in edit.detail["pins"]), *late])
    erased = Purged(episode_ids=victims, rows=_count(lake, victims), plans=tuple(pins))
    if dry_run or not (begun or sweep):
        return erased
    remade = {pin for edit in begun for pin in edit.detail["remade"]}
    remade |= {pin for pin in late if not _is_of(lake, pin, victims)}
    _erase_rows(lake, victims)
    if sweep:
        _sweep_raw(lake)
    for pin in erased.plans:
        _give_up(lake, pin, forget=pin in remade)
    tables = [table for table in lake.versions() if table in (*_ERASED, "edits")]
    for table in tables:
        with lake.errors_named(f"remove old versions of {table}"):
            lake.latest(table).cleanup_old_versions(
                timedelta(0), error_if_tagged_old_versions=False
            )
    lake.refresh()
    # It has a copy of facts and labels, and what was deleted in free pages of its file.
    delete_files(lake, [CATALOG_FILE])
    if left := _pins(lake, victims):
        raise EditError(
            f"{lake.uri}: {', '.join(left)} came to pin the purged episodes meanwhile; purge again"
            " with --force, or remove the plan"
        )
    unnamed = [path for table in tables for path in unnamed_files(lake, table)]
    if sweep:
        delete_files(lake, unnamed)
        unnamed = []
    if not begun:
        return replace(erased, unnamed_files=len(unnamed))
    done = [edit.number for edit in begun]
    append_edit(lake, lambda _: replace(edit_of("purged", by, ()), detail={"purges": done}))
    return replace(erased, unnamed_files=len(unnamed))


def _begin(
    lake: Lake, state: EditState, episode_ids: Sequence[str], by: Author, *, force: bool
) -> Edit:
    hidden = {e for e, edit in state.hidden.items() if edit.kind != "purge"}
    require(lake, episode_ids, hidden, "not deleted (`headrace lake delete` comes first)")
    chosen = set(episode_ids)
    for view in state.views.values():
        sources = {part.episode_id for part in view.parts}
        if view.episode_id in chosen and not sources <= chosen:
            raise EditError(
                f"episode {view.episode_id} consists of steps of {min(sources - chosen)}, where its"
                " bytes are: purge that one with it"
            )
        if sources & chosen and view.episode_id not in state.hidden:
            raise EditError(
                f"episode {view.episode_id} consists of steps of {min(sources & chosen)} and is"
                " seen: delete it first"
            )
    made = [
        view.episode_id
        for view in state.views.values()
        if view.episode_id not in chosen and chosen.intersection(p.episode_id for p in view.parts)
    ]
    victims = [*episode_ids, *made]
    pins = _pins(lake, victims)
    if pins and not force:
        raise EditError(
            f"{lake.uri}: {len(pins)} plans pin versions that hold these episodes:"
            f" {', '.join(pins[:5])}; --force gives them up, with their materialised packs"
        )
    rows = stored_episodes(lake, ["episode_id", "ingest_key"])
    keys = rows.filter(pc.is_in(rows["episode_id"], value_set=pa.array(victims, pa.string())))
    detail = {
        "pins": pins,
        "remade": [pin for pin in pins if not _is_of(lake, pin, victims)],
        "ingest_keys": keys["ingest_key"].to_pylist(),
    }
    return replace(edit_of("purge", by, victims, victims), detail=detail)


def _filters(episode_ids: Sequence[str]) -> Iterator[str]:
    """Lance filters for the rows of episodes, some hundred episodes each."""
    for start in range(0, len(episode_ids), _IDS):
        yield among("episode_id", episode_ids[start : start + _IDS])


def _count(lake: Lake, episode_ids: Sequence[str]) -> dict[str, int]:
    """Table -> rows of the episodes in its newest version."""
    found = {}
    for table in filter(lake.has_table, _ERASED):
        with lake.errors_named(f"count rows of {table}"):
            newest = lake.latest(table)
            found[table] = sum(newest.count_rows(which) for which in _filters(episode_ids))
    return found


def _pins(lake: Lake, episode_ids: Sequence[str]) -> list[str]:
    """Tags of versions that hold rows of the episodes."""
    found: dict[str, None] = {}
    for table in filter(lake.has_table, _ERASED):
        with lake.errors_named(f"look for plans that pin {table}"):
            tags: dict[str, Any] = lake.latest(table).tags.list()
            holds: dict[int, bool] = {}
            for tag, entry in tags.items():
                version = entry["version"]
                if version not in holds:
                    pinned = lake.open_dataset(lake.table_uri(table), version=version)
                    holds[version] = any(map(pinned.count_rows, _filters(episode_ids)))
                if holds[version]:
                    found[tag] = None
    return list(found)


def _erase_rows(lake: Lake, episode_ids: Sequence[str]) -> None:
    """Delete the rows, then rewrite the fragments that held them."""
    for table in filter(lake.has_table, _ERASED):
        for which in _filters(episode_ids):

            def delete(table: str = table, which: str = which) -> None:
                newest = lake.latest(table)
                if newest.count_rows(which):
                    newest.delete(which)

            until_won(lake, f"erase rows of {table}", delete)
        _rewrite_deleted(lake, table)
    forget_views(lake, set(episode_ids))


def _sweep_raw(lake: Lake) -> None:
    """Erase recordings whose commit died before its episodes were written."""
    if not lake.has_table("raw"):
        return
    with lake.errors_named("look for recordings without an episode"):
        recorded, written = (
            pc.unique(lake.latest(table).to_table(columns=["commit_id"])["commit_id"])
            for table in ("raw", "trajectories")
        )
    left = recorded.filter(pc.invert(pc.is_in(recorded, value_set=written))).to_pylist()
    if left:
        until_won(
            lake,
            "erase recordings without an episode",
            lambda: lake.latest("raw").delete(among("commit_id", left)),
        )
        _rewrite_deleted(lake, "raw")


def _rewrite_deleted(lake: Lake, table: str) -> None:
    """Rewrite each fragment that has deleted rows without them."""
    for fragment in lake.latest(table).get_fragments():
        if fragment.num_deletions:
            rewrite_fragments(lake, table, [fragment.fragment_id])


def _is_of(lake: Lake, pin: str, episode_ids: Sequence[str]) -> bool:
    """Whether a plan is made of some of the episodes, or that cannot be told."""
    try:
        with lake.errors_named(f"look into {pin}"):
            episodes = lake.open_dataset(f"{lake.uri}/{_folder(pin)}/episodes.lance")
            return any(map(episodes.count_rows, _filters(episode_ids)))
    except LakeError:
        return True


def _give_up(lake: Lake, pin: str, *, forget: bool) -> None:
    """Remove a plan's tables and materialised packs, then its tags, by which it would be found.

    What the lake says of a plan of purged episodes stays, for the runs that were trained by it. One
    that only pinned the version is forgotten, so that it can be made and saved again.
    """
    if pin.startswith(_PIN):
        delete_files(lake, files_under(lake, _folder(pin)))
        if forget:
            which = equals("plan_hash", pin.removeprefix(_PIN))
            until_won(lake, f"forget {pin}", lambda: lake.latest("plans").delete(which))
    for table in lake.versions():
        with lake.errors_named(f"remove the tag {pin} of {table}"):
            newest = lake.latest(table)
            if pin in newest.tags.list():
                newest.tags.delete(pin)


def _folder(pin: str) -> str:
    return f"plans/{pin.removeprefix(_PIN)}"

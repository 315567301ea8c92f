"""Episodes cut and joined: split and merge.

The edit, one row in the table `edits`, comes last; labels and statistics of the new episodes before
it. Nothing that was recorded is touched or copied.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.edit.apply import Author, apply, edit_of, require
from lake.edit.log import Edit, EditState
from lake.edit.make_view import ingest_key_of, make_view
from lake.edit.view import Part, cut_parts, is_view
from lake.episode import Episode
from lake.episode_row import EpisodeRows
from lake.errors import EditError
from lake.insert import insert_new
from lake.read import read_episode_at
from lake.store import Lake
from lake.tables import TABLES, among
from lake.visible import ADDRESS, stored_episodes, visible_episodes


def split_episode(
    lake: Lake, episode_id: str, at: Sequence[int], by: Author, *, dry_run: bool = False
) -> Edit:
    """Replace an episode by its parts; their labels are those of the episode.

    Args:
        lake: an unpinned lake.
        episode_id: a visible episode.
        at: the steps at which a new part begins, ascending, each inside the episode.
        by: who and why.
        dry_run: check, and change nothing.

    Returns:
        The edit, whose `views` are the parts.

    Raises:
        EditError: no such episode, or a step that is not inside it.
    """

    def make(state: EditState) -> tuple[Edit, list[EpisodeRows]]:
        parts = _parts(lake, state, [episode_id])[episode_id]
        steps = sum(part.stop - part.start for part in parts)
        bounds = [0, *at, steps]
        if len(bounds) < 3 or bounds != sorted(set(bounds)):
            raise EditError(
                f"episode {episode_id}: its {steps} steps cannot be split at"
                f" {', '.join(map(str, at)) or 'no step'}; give ascending steps between 1 and"
                f" {steps - 1}"
            )
        stored = _stored(lake, parts)
        made = []
        for start, stop in pairwise(bounds):
            mine = cut_parts(parts, start, stop)
            episodes = [stored[part.stored] for part in mine]
            name = f"{episode_id}/steps_{start:06d}_{stop:06d}"
            where = f"{episodes[0].provenance.locator}, steps {start} to {stop - 1}"
            view, rows = make_view(mine, episodes, name, where)
            made.append((view, _with_labels(lake, rows, [episode_id])))
        edit = edit_of("split", by, [episode_id], [episode_id], [view for view, _ in made])
        return replace(edit, detail={"at": list(at)}), [rows for _, rows in made]

    return _apply_views(lake, make, dry_run=dry_run)


def merge_episodes(
    lake: Lake,
    episode_ids: Sequence[str],
    by: Author,
    *,
    gap_ns: int | None = None,
    merged_id: str | None = None,
    dry_run: bool = False,
) -> Edit:
    """Replace episodes by one that has their steps one after the other.

    A label that differs among them is unknown in the merged one; tags are united. A camera that one
    of them lacks has no picture at its steps.

    Args:
        lake: an unpinned lake.
        episode_ids: two or more visible episodes of one spec, dataset, embodiment and rate.
        by: who and why.
        gap_ns: time from the last step of one to the first of the next, by which stamps are moved.
            None leaves them as recorded, which needs each to begin after the one before.
        merged_id: id of the merged episode; by default that of the first and how many follow.
        dry_run: check, and change nothing.

    Returns:
        The edit, whose one view is the merged episode.

    Raises:
        EditError: no such episodes, or they cannot be one: recorded differently, overlapping in
            time, or with videos that do not decode as one.
    """

    def make(state: EditState) -> tuple[Edit, list[EpisodeRows]]:
        if len(episode_ids) < 2:
            raise EditError("a merge needs two episodes or more")
        of = _parts(lake, state, episode_ids)
        stored = _stored(lake, [part for parts in of.values() for part in parts])
        parts = _in_time(of, stored, gap_ns)
        name = merged_id or f"{episode_ids[0]}+{len(episode_ids) - 1}"
        _require_free(lake, state, name, ingest_key_of(parts))
        episodes = [stored[part.stored] for part in parts]
        where = " + ".join(dict.fromkeys(e.provenance.locator for e in episodes))
        view, rows = make_view(parts, episodes, name, where)
        edit = edit_of("merge", by, episode_ids, episode_ids, [view])
        rows = _with_labels(lake, rows, episode_ids)
        return replace(edit, detail={"gap_ns": gap_ns}), [rows]

    return _apply_views(lake, make, dry_run=dry_run)


def _apply_views(
    lake: Lake,
    make: Callable[[EditState], tuple[Edit, list[EpisodeRows]]],
    *,
    dry_run: bool,
) -> Edit:
    """As `_apply`; labels and statistics of the new episodes come first, the edit last."""

    def insert_and_make(state: EditState) -> Edit:
        edit, made = make(state)
        labels = [rows.label for rows in made]
        insert_new(lake, "episodes", pa.Table.from_pylist(labels, TABLES["episodes"]))
        stats = [row for rows in made for row in rows.stats]
        insert_new(lake, "stats", pa.Table.from_pylist(stats, TABLES["stats"]))
        return edit

    return apply(
        lake, (lambda state: make(state)[0]) if dry_run else insert_and_make, dry_run=dry_run
    )


def _parts(lake: Lake, state: EditState, episode_ids: Sequence[str]) -> dict[str, tuple[Part, ...]]:
    """What each of some visible episodes consists of."""
    columns = ["episode_id", "ingest_key", "commit_id", "num_steps"]
    rows = visible_episodes(lake, columns)
    found = rows.filter(pc.is_in(rows["episode_id"], value_set=pa.array(episode_ids, pa.string())))
    parts = {
        row["episode_id"]: state.views[row["episode_id"]].parts
        if is_view(row[ADDRESS])
        else (
            Part(
                episode_id=row["episode_id"],
                ingest_key=row["ingest_key"],
                commit_id=row["commit_id"],
                start=0,
                stop=row["num_steps"],
            ),
        )
        for row in found.to_pylist()
    }
    require(lake, episode_ids, parts.keys(), "not visible in the lake")
    return {episode_id: parts[episode_id] for episode_id in episode_ids}


def _require_free(lake: Lake, state: EditState, episode_id: str, ingest_key: str) -> None:
    """Refuse an id that has another meaning; what was undone may be merged again."""
    view = state.views.get(episode_id)
    again = view is not None and view.facts["ingest_key"] == ingest_key
    if again and episode_id in state.hidden:
        return
    if view is not None or episode_id in stored_episodes(lake)["episode_id"].to_pylist():
        raise EditError(
            f"there is or was an episode {episode_id!r}; give the merged one another id"
        )


def _stored(lake: Lake, parts: Iterable[Part]) -> dict[tuple[str, str], Episode]:
    """The stored episodes that parts are of, by what names them."""
    wanted = dict.fromkeys(part.stored for part in parts)
    rows = stored_episodes(lake, ["ingest_key", "commit_id"]).to_pylist()
    there = {(row["ingest_key"], row["commit_id"]): row[ADDRESS] for row in rows}
    return {stored: read_episode_at(lake, there[stored]) for stored in wanted}


def _in_time(
    parts: Mapping[str, tuple[Part, ...]],
    stored: Mapping[tuple[str, str], Episode],
    gap_ns: int | None,
) -> list[Part]:
    """The parts of episodes one after the other, stamps moved where a gap is given."""
    if gap_ns is not None and gap_ns <= 0:
        raise EditError(f"a gap of {gap_ns} ns: the next episode must begin after the one before")
    found: list[Part] = []
    last: int | None = None
    for episode_id, mine in parts.items():
        stamps = [stored[p.stored].timestamps_ns[p.start : p.stop] + p.shift_ns for p in mine]
        shift = 0 if last is None or gap_ns is None else last + gap_ns - int(stamps[0][0])
        if last is not None and int(stamps[0][0]) + shift <= last:
            raise EditError(
                f"episode {episode_id} begins {(last - int(stamps[0][0])) / 1e9:.3f} s before the"
                " end of the one before it; say by a gap how far apart they shall be"
            )
        found += [replace(part, shift_ns=part.shift_ns + shift) for part in mine]
        last = int(stamps[-1][-1]) + shift
    return found


def _with_labels(lake: Lake, rows: EpisodeRows, episode_ids: Sequence[str]) -> EpisodeRows:
    """The rows with the labels that the edited episodes have now; those that differ are null."""
    with lake.errors_named("read labels"):
        labels = (
            lake.dataset("episodes").to_table(filter=among("episode_id", episode_ids)).to_pylist()
        )
    shared: dict[str, Any] = {}
    for name in ("task", "instruction", "success", "quality", "split"):
        values = {label[name] for label in labels}
        shared[name] = values.pop() if len(values) == 1 else None
    order = {episode_id: number for number, episode_id in enumerate(episode_ids)}
    labels.sort(key=lambda label: order[label["episode_id"]])
    shared["tags"] = list(dict.fromkeys(tag for label in labels for tag in label["tags"] or ()))
    return replace(rows, label={**rows.label, **shared})

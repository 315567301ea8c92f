"""`headrace lake edits|delete|undelete|split|merge|undo`."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tools.commands.lake_options import OptionError, StorageOptions, storage_options

if TYPE_CHECKING:
    from lake.edit.apply import Author
    from lake.edit.log import Edit
    from lake.store import Lake

LakeArgument = Annotated[str, typer.Argument(help="Path or URI of the lake.")]
Why = Annotated[str, typer.Option(help="The reason, kept in the lake.")]
Who = Annotated[
    str | None, typer.Option(help="Who does it, kept in the lake; by default you@this machine.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and say what would be done.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]
_EPISODE = Annotated[str, typer.Argument(help="Id of the episode.")]


def edits(lake: LakeArgument, store: StorageOptions = None, as_json: AsJson = False) -> None:
    """List what was edited in a lake, by whom, when and why; the oldest first."""
    from rich.console import Console
    from rich.table import Table

    from lake import open_lake
    from lake.edit.log import read_edits

    found = read_edits(open_lake(lake, storage_options=storage_options(store)))
    if as_json:
        typer.echo(json.dumps([_document(edit) for edit in found], ensure_ascii=False))
        return
    if not found:
        typer.echo("no edits")
        return
    grid = Table("edit", "kind", "episodes", "who", "when (UTC)", "why")
    for edit in found:
        when = datetime.fromtimestamp(edit.time_ns / 1e9, UTC)
        first = edit.episode_ids[0] if edit.episode_ids else ""
        more = f" and {len(edit.episode_ids) - 1} more" if len(edit.episode_ids) > 1 else ""
        row = (str(edit.number), edit.kind, first + more, edit.who)
        grid.add_row(*row, f"{when:%Y-%m-%d %H:%M:%S}", edit.why)
    Console(highlight=False).print(grid)


def delete(
    lake: LakeArgument,
    where: Annotated[
        str, typer.Option(help="A condition over episodes, or SQL with a column episode_id.")
    ],
    why: Why = "",
    who: Who = None,
    dry_run: DryRun = False,
    store: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Hide episodes; `undelete` shows them again, `purge` erases them.

    Example: headrace lake delete robots.lake --where "num_steps < 10" --why "false starts"
    """
    from catalog import Catalog, answer_selection
    from lake.edit.hide import delete_episodes

    opened = _opened(lake, store)
    with Catalog(opened) as catalog:
        ids = answer_selection(catalog, where).episode_ids
    _report(delete_episodes(opened, ids, author(who, why), dry_run=dry_run), as_json=as_json)


def undelete(
    lake: LakeArgument,
    where: Annotated[
        str,
        typer.Option(help="A condition over hidden_episodes, or SQL with a column episode_id."),
    ],
    why: Why = "",
    who: Who = None,
    dry_run: DryRun = False,
    store: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show deleted episodes again.

    Example: headrace lake undelete robots.lake --where "edit = 3"
    """
    from lake.edit.hide import undelete_episodes

    opened = _opened(lake, store)
    ids = hidden_ids(opened, where)
    _report(undelete_episodes(opened, ids, author(who, why), dry_run=dry_run), as_json=as_json)


def split(
    lake: LakeArgument,
    episode: _EPISODE,
    at: Annotated[list[int], typer.Option(help="Step at which a new part begins; repeatable.")],
    why: Why = "",
    who: Who = None,
    dry_run: DryRun = False,
    store: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Replace an episode by its parts; no byte of it is copied.

    Example: headrace lake split robots.lake lab/episode_7 --at 120 --at 310
    """
    from lake.edit.rearrange import split_episode

    opened = _opened(lake, store)
    edit = split_episode(opened, episode, at, author(who, why), dry_run=dry_run)
    _report(edit, as_json=as_json)


def merge(
    lake: LakeArgument,
    episodes: Annotated[list[str], typer.Argument(help="Ids of the episodes, in their order.")],
    gap_ms: Annotated[
        float | None,
        typer.Option(
            help="Milliseconds between the end of one and the start of the next, by which stamps"
            " are moved; by default they stay as recorded and must not overlap."
        ),
    ] = None,
    merged_id: Annotated[
        str | None, typer.Option("--id", help="Id of the merged episode; by default FIRST+COUNT.")
    ] = None,
    why: Why = "",
    who: Who = None,
    dry_run: DryRun = False,
    store: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Replace episodes by one that has all their steps; no byte of them is copied.

    Example: headrace lake merge robots.lake lab/bag_0 lab/bag_1 --why "one take, two bags"
    """
    from lake.edit.rearrange import merge_episodes

    edit = merge_episodes(
        _opened(lake, store),
        episodes,
        author(who, why),
        gap_ns=None if gap_ms is None else round(gap_ms * 1e6),
        merged_id=merged_id,
        dry_run=dry_run,
    )
    _report(edit, as_json=as_json)


def undo(
    lake: LakeArgument,
    edit: Annotated[int, typer.Argument(help="Number of the edit; `headrace lake edits` lists.")],
    why: Why = "",
    who: Who = None,
    dry_run: DryRun = False,
    store: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Take an edit back: show what it hid, hide what it made.

    Of a purge nothing comes back by it, but the next ingest may bring the episodes again.
    """
    from lake.edit.hide import undo_edit

    done = undo_edit(_opened(lake, store), edit, author(who, why), dry_run=dry_run)
    _report(done, as_json=as_json)


def author(who: str | None, why: str) -> "Author":
    """Who gives the command, and why."""
    from lake.edit.apply import Author, this_user

    return this_user(why) if who is None else Author(who=who, why=why)


def hidden_ids(lake: "Lake", where: str) -> list[str]:
    """Ids of the hidden episodes that a condition, or a query, gives.

    Raises:
        OptionError: there are none, or the query has no column episode_id.
        CatalogError: the SQL is wrong.
    """
    from catalog import Catalog
    from catalog.selection import as_query

    with Catalog(lake) as catalog:
        answer = catalog.query(as_query(where, "hidden_episodes"))
    if "episode_id" not in answer.column_names:
        raise OptionError(f"--where {where!r}: the query gives no column episode_id")
    ids: list[str] = sorted(set(answer["episode_id"].to_pylist()))
    if not ids:
        raise OptionError(f"--where {where!r}: no hidden episode matches")
    return ids


def _opened(lake: str, store: list[str] | None) -> "Lake":
    from lake import open_lake

    return open_lake(lake, storage_options=storage_options(store))


def _document(edit: "Edit") -> dict[str, object]:
    names = ("number", "kind", "who", "why", "time_ns", "episode_ids", "hidden", "shown")
    document: dict[str, object] = {name: getattr(edit, name) for name in names}
    steps = {view.episode_id: view.facts["num_steps"] for view in edit.views}
    return {**document, "new": steps, "detail": dict(edit.detail)}


def _report(edit: "Edit", *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_document(edit), ensure_ascii=False))
        return
    made = f"edit {edit.number}" if edit.number else "dry run, nothing was changed"
    typer.echo(f"{edit.kind} ({made}): {len(edit.hidden)} hidden, {len(edit.shown)} shown")
    for view in edit.views:
        typer.echo(f"  {view.episode_id}: {view.facts['num_steps']} steps")

"""What all edits share: who makes them, what they check, and that a dry run changes nothing."""

import getpass
import os
import socket
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from lake.edit.log import Edit, EditState, append_edit, edit_state
from lake.edit.view import View
from lake.errors import EditError
from lake.store import Lake
from lake.visible import visible_episodes


@dataclass(frozen=True, kw_only=True)
class Author:
    """Who makes an edit, and why."""

    who: str
    why: str = ""


def this_user(why: str = "") -> Author:
    """Who runs this process, as `user@machine`."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = f"user {os.getuid()}"
    return Author(who=f"{user}@{socket.gethostname()}", why=why)


def apply(lake: Lake, make: Callable[[EditState], Edit], *, dry_run: bool) -> Edit:
    """Append the edit that `make` makes of the state, or only make it; see `append_edit`."""
    if not dry_run:
        return append_edit(lake, make)
    lake.refresh()
    return make(edit_state(lake))


def edit_of(
    kind: str,
    by: Author,
    episode_ids: Sequence[str],
    hidden: Sequence[str] = (),
    views: Sequence[View] = (),
) -> Edit:
    """An edit that is not made yet; the episodes of `views` are shown."""
    return Edit(
        kind=kind,
        who=by.who,
        why=by.why,
        episode_ids=tuple(episode_ids),
        hidden=tuple(hidden),
        shown=tuple(view.episode_id for view in views),
        views=tuple(views),
    )


def visible_ids(lake: Lake) -> set[str]:
    """Ids of all visible episodes."""
    return set(visible_episodes(lake)["episode_id"].to_pylist())


def require(lake: Lake, ids: Sequence[str], known: AbstractSet[str], otherwise: str) -> None:
    """Refuse ids that are given twice or are not `known`, and no ids at all.

    Raises:
        EditError: says how many, and names the first.
    """
    if len(set(ids)) != len(ids):
        raise EditError(f"{len(ids) - len(set(ids))} episode ids are given twice")
    if not ids:
        raise EditError("no episodes are given")
    missing = [episode_id for episode_id in ids if episode_id not in known]
    if missing:
        raise EditError(
            f"{lake.uri}: {len(missing)} of {len(ids)} episodes are {otherwise}, first"
            f" {missing[0]!r}; nothing was changed"
        )

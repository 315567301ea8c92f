"""Episodes that are not seen any more, and seen again: delete, undelete, undo.

Each is one row in the table `edits` (see `lake.edit.log`). Nothing that was recorded is touched, so
whoever reads an older version of the lake, such as a plan, reads on as before.
"""

from collections.abc import Sequence
from dataclasses import replace

from lake.edit.apply import Author, apply, edit_of, require, visible_ids
from lake.edit.log import Edit, EditState, unfinished_purges
from lake.errors import EditError
from lake.store import Lake


def delete_episodes(
    lake: Lake, episode_ids: Sequence[str], by: Author, *, dry_run: bool = False
) -> Edit:
    """Hide episodes. Their bytes stay until they are purged.

    Args:
        lake: an unpinned lake.
        episode_ids: distinct ids of visible episodes.
        by: who and why.
        dry_run: check, and change nothing.

    Returns:
        The edit; with number 0 where it was not made.

    Raises:
        EditError: an id that is given twice or is not visible; nothing is changed then.
        LakeError: the lake cannot be written.
    """

    def make(state: EditState) -> Edit:
        del state
        require(lake, episode_ids, visible_ids(lake), "not visible in the lake")
        return edit_of("delete", by, episode_ids, hidden=episode_ids)

    return apply(lake, make, dry_run=dry_run)


def undelete_episodes(
    lake: Lake, episode_ids: Sequence[str], by: Author, *, dry_run: bool = False
) -> Edit:
    """Show episodes again that `delete_episodes` hid.

    Args, Returns and Raises are those of `delete_episodes`.
    """

    def make(state: EditState) -> Edit:
        deleted = {e for e, edit in state.hidden.items() if edit.kind == "delete"}
        require(lake, episode_ids, deleted, "not deleted")
        return replace(edit_of("undelete", by, episode_ids), shown=tuple(episode_ids))

    return apply(lake, make, dry_run=dry_run)


def undo_edit(lake: Lake, number: int, by: Author, *, dry_run: bool = False) -> Edit:
    """Take an edit back: show what it hid, and hide what it showed or made.

    Args:
        lake: an unpinned lake.
        number: of a delete, undelete, split, merge or undo; or of a purge, of which nothing comes
            back by it, but the next ingest may bring the episodes again.
        by: who and why.
        dry_run: check, and change nothing.

    Raises:
        EditError: no such edit, or later ones changed the same episodes: take those back first.
    """

    def make(state: EditState) -> Edit:
        edit = next((edit for edit in state.edits if edit.number == number), None)
        if edit is None or not (edit.hidden or edit.shown):
            raise EditError(
                f"{lake.uri}: no edit {number} hid or made episodes; `headrace lake edits` lists"
                " them"
            )
        if edit in unfinished_purges(state):
            raise EditError(
                f"{lake.uri}: edit {number} is a purge that was not finished; `headrace lake purge"
                f" {lake.uri}` finishes it"
            )
        still = {e for e, hid in state.hidden.items() if hid.number == number}
        if edit.hidden:
            require(lake, edit.hidden, still, f"not hidden by edit {number} any more")
        if edit.shown:
            require(lake, edit.shown, visible_ids(lake), "not visible any more")
        undone = edit_of("undo", by, (*edit.hidden, *edit.shown), edit.shown)
        return replace(undone, shown=edit.hidden, detail={"undoes": number})

    return apply(lake, make, dry_run=dry_run)

"""Where an episode lies."""

from typing import NoReturn

from lake.edit.log import Edit, edit_state
from lake.errors import EpisodeNotFoundError
from lake.store import Lake
from lake.tables import equals


def find_episode(lake: Lake, episode_id: str) -> int:
    """Row address of an episode.

    Raises:
        EpisodeNotFoundError: the lake has no such episode, or an edit hid it.
    """
    state = edit_state(lake)
    if (edit := state.hidden.get(episode_id)) is not None:
        _raise_hidden(lake, episode_id, edit)
    if (view := state.views.get(episode_id)) is not None:
        return view.address
    return find_stored(lake, episode_id)[0]


def find_recorded(lake: Lake, episode_id: str) -> tuple[int, str]:
    """Row address of an episode as it was written, and the commit that holds it.

    It may have been split or merged since, but not deleted.

    Raises:
        EpisodeNotFoundError: it was deleted, or the lake has no such episode.
    """
    state = edit_state(lake)
    edit = state.hidden.get(episode_id)
    if edit is not None and edit.kind not in ("split", "merge"):
        _raise_hidden(lake, episode_id, edit)
    if (view := state.views.get(episode_id)) is not None:
        parts = ", ".join(dict.fromkeys(part.episode_id for part in view.parts))
        raise EpisodeNotFoundError(
            f"{lake.uri}: episode {episode_id} was not recorded as such: it consists of steps of"
            f" {parts}"
        )
    return find_stored(lake, episode_id)


def find_stored(lake: Lake, episode_id: str) -> tuple[int, str]:
    """Row address of an episode that was written, hidden or not, and the commit that holds it.

    Raises:
        EpisodeNotFoundError: the lake has no such episode.
    """
    with lake.errors_named("look up an episode"):
        named = lake.dataset("commits").to_table(filter=equals("episode_id", episode_id))
        rows = lake.dataset("trajectories").scanner(
            columns=["commit_id"],
            filter=equals("episode_id", episode_id),
            with_row_address=True,
        )
        found = [
            (int(row["_rowaddr"]), str(row["commit_id"]))
            for row in rows.to_table().to_pylist()
            if row["commit_id"] in named["commit_id"].to_pylist()
        ]
    if not found:
        raise EpisodeNotFoundError(
            f"{lake.uri}: no episode {episode_id!r}; list those it has with"
            f" `headrace sql {lake.uri}` and the table `episodes`"
        )
    return min(found)


def _raise_hidden(lake: Lake, episode_id: str, edit: Edit) -> NoReturn:
    raise EpisodeNotFoundError(
        f"{lake.uri}: episode {episode_id} is not there any more since edit {edit.number}"
        f" ({edit.kind} by {edit.who}: {edit.why or 'no reason given'}); `headrace lake undo"
        f" {lake.uri} {edit.number}` takes that back"
    )

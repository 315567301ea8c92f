"""Which episodes a plan is made of, and the versions of the lake at which they are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from catalog.errors import CatalogError
from catalog.reader import Catalog
from catalog.selection import SELECTION_NAME, Selection, answer_selection, load_selection
from lake.store import Lake
from lake.visible import visible_episodes
from packing.errors import PlanError

READ_TABLES: Final = ("commits", "trajectories", "episodes", "specs", "stats", "edits")
"""Tables that a plan is made from, and whose versions it pins, where the lake has them."""


@dataclass(frozen=True, kw_only=True)
class ChosenEpisodes:
    """Ids, the table versions at which they are read, and the selection they come from, if any."""

    episode_ids: Sequence[str]
    versions: Mapping[str, int]
    selection: Selection | None


def choose_episodes(lake: Lake, episodes: Selection | Sequence[str] | str | None) -> ChosenEpisodes:
    """A selection, episode ids, the name or hash of a selection, a condition, or None for all.

    Raises:
        PlanError: a text that is neither a selection nor a condition.
        CatalogError: the condition is not one.
    """
    if isinstance(episodes, str):
        episodes = _selection(lake, episodes)
    if isinstance(episodes, Selection):
        return ChosenEpisodes(
            episode_ids=episodes.episode_ids, versions=episodes.versions, selection=episodes
        )
    versions = {
        table: version for table, version in lake.versions().items() if table in READ_TABLES
    }
    ids = (
        visible_episodes(lake.at(versions))["episode_id"].to_pylist()
        if episodes is None
        else episodes
    )
    return ChosenEpisodes(episode_ids=list(ids), versions=versions, selection=None)


def _selection(lake: Lake, text: str) -> Selection:
    """The selection of this name or hash, else the answer to the text as a condition."""
    if not SELECTION_NAME.fullmatch(text):
        return _answer(lake, text)
    try:
        return load_selection(lake, text)
    except CatalogError as no_selection:
        try:
            return _answer(lake, text)
        except CatalogError as no_condition:
            raise PlanError(
                f"{text!r} names no selection ({no_selection}) and is no condition over episodes"
                f" ({no_condition})"
            ) from no_condition


def _answer(lake: Lake, condition: str) -> Selection:
    with Catalog(lake) as catalog:
        return answer_selection(catalog, condition)

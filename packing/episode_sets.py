"""A set of episodes by what people call it: a plan, a selection, or a condition over episodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from catalog.errors import CatalogError
from catalog.reader import Catalog
from catalog.selection import SELECTION_NAME, Selection, answer_selection, load_selection
from lake.store import Lake
from packing.errors import PlanError
from packing.plan import Plan
from packing.plan_store import list_plans, load_plan

_PLAN, _SELECTION = "plan:", "selection:"
_MIN_PREFIX: Final = 8


@dataclass(frozen=True, kw_only=True)
class EpisodeSet:
    """Some episodes of a lake, and where they come from.

    Attributes:
        kind: what named them.
        name: the plan's or selection's name, or the condition.
        versions: lake table -> version at which they are to be read.
        episode_ids: sorted, distinct.
    """

    kind: Literal["plan", "selection", "condition"]
    name: str
    versions: Mapping[str, int]
    episode_ids: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.episode_ids)

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({len(self)} episodes)"


def episode_set(lake: Lake, what: Plan | Selection | str) -> EpisodeSet:
    """Find out which episodes are meant.

    Args:
        lake: not pinned.
        what: a plan, a selection, or a text: the name or hash of a saved plan or of a selection,
            or a condition over `episodes`, answered now. `plan:NAME` and `selection:NAME` say
            which, where both have the name.

    Raises:
        PlanError: there is no such thing, or both a plan and a selection have the name.
        CatalogError: the condition is wrong, or selects nothing.
    """
    if isinstance(what, Plan):
        return _of_plan(what, what.plan_hash[:12])
    if isinstance(what, Selection):
        return _of_selection(what)
    if what.startswith(_PLAN):
        name = what.removeprefix(_PLAN)
        return _of_plan(load_plan(lake, name), name)
    if what.startswith(_SELECTION):
        return _of_selection(load_selection(lake, what.removeprefix(_SELECTION)))
    if not SELECTION_NAME.fullmatch(what):
        return _of_condition(lake, what)
    is_plan = any(
        what == plan.name or (len(what) >= _MIN_PREFIX and plan.plan_hash.startswith(what))
        for plan in list_plans(lake)
    )
    try:
        selection = load_selection(lake, what)
    except CatalogError as no_selection:
        if is_plan:
            return _of_plan(load_plan(lake, what), what)
        try:
            return _of_condition(lake, what)
        except CatalogError as no_condition:
            raise PlanError(
                f"{what!r} names no plan and no selection ({no_selection}), and is no condition"
                f" over episodes ({no_condition})"
            ) from no_condition
    if is_plan:
        raise PlanError(
            f"{what!r} names a plan and a selection; say {_PLAN}{what} or {_SELECTION}{what}"
        )
    return _of_selection(selection)


def _of_plan(plan: Plan, name: str) -> EpisodeSet:
    ids = tuple(sorted(plan.episodes["episode_id"].to_pylist()))
    return EpisodeSet(kind="plan", name=name, versions=plan.header.versions, episode_ids=ids)


def _of_selection(selection: Selection) -> EpisodeSet:
    return EpisodeSet(
        kind="selection",
        name=selection.name,
        versions=selection.versions,
        episode_ids=selection.episode_ids,
    )


def _of_condition(lake: Lake, text: str) -> EpisodeSet:
    with Catalog(lake) as catalog:
        answer = answer_selection(catalog, text)
    return EpisodeSet(
        kind="condition", name=text, versions=answer.versions, episode_ids=answer.episode_ids
    )

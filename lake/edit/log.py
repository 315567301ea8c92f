"""The log of edits: who changed what, when and why. It decides which episodes are seen.

An edit is one row, inserted as one commit, so it holds whole or not at all. Its number is its key:
of two writers that edit at once, one gets the number, and the other looks again at what is there
before it takes the next.
"""

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from lake.create import ensure_table
from lake.edit.view import View
from lake.errors import CommitConflictError, LakeError
from lake.insert import insert_new
from lake.store import Lake
from lake.tables import OPTIONAL_TABLES, equals

_ATTEMPTS: Final = 12
_DIGITS: Final = 12


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One edit.

    Attributes:
        number: 1, 2, ... in the order of their making; 0 where it is not made yet.
        kind: `delete`, `undelete`, `split`, `merge`, `relabel`, `undo`, `purge`.
        who: who made it.
        why: the reason given.
        time_ns: when, in ns since 1970.
        episode_ids: what the edit was asked to change.
        hidden: ids of episodes that are not seen from now on.
        shown: ids of episodes that are seen from now on.
        views: the episodes that are new.
        detail: what else there is to say.
    """

    kind: str
    who: str
    why: str
    episode_ids: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    views: tuple[View, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    time_ns: int = 0


@dataclass(frozen=True)
class EditState:
    """What all edits together say.

    Attributes:
        last: number of the last edit, 0 for none.
        edits: in order, without `episode_ids`, and without those that hid and showed nothing.
        hidden: id of each episode that is not seen -> the edit that hid it.
        views: id -> view, of those that are seen and those that are not.
        by_address: the same by address.
        purged_keys: ingest keys of episodes that were erased and are not to come back.
    """

    last: int
    edits: tuple[Edit, ...]
    hidden: Mapping[str, Edit]
    views: Mapping[str, View]
    by_address: Mapping[int, View]
    purged_keys: frozenset[str]


_NOTHING: Final = EditState(0, (), {}, {}, {}, frozenset())
_states: "WeakKeyDictionary[Lake, tuple[int, EditState]]" = WeakKeyDictionary()


def edit_state(lake: Lake) -> EditState:
    """What the edits say, as the lake is seen.

    Raises:
        LakeError: the table cannot be read.
        CorruptDataError: it holds what no edit is.
    """
    if not lake.has_table("edits"):
        return _NOTHING
    table = lake.dataset("edits")
    version, state = _states.get(lake, (-1, _NOTHING))
    if version != table.version:
        # Relabelling hides nothing, and may name very many episodes.
        with lake.errors_named("read the edits"):
            last = pc.max(table.to_table(columns=["edit"])["edit"]).as_py()
            rows = table.to_table(columns=_OF_STATE, filter="kind != 'relabel'").to_pylist()
        state = _state_of(int(last or 0), _in_order(rows))
        _states[lake] = (table.version, state)
    return state


def unfinished_purges(state: EditState) -> list[Edit]:
    """Purges that were begun and not ended, in order."""
    done = {n for edit in state.edits if edit.kind == "purged" for n in edit.detail["purges"]}
    return [edit for edit in state.edits if edit.kind == "purge" and edit.number not in done]


def read_edits(lake: Lake) -> list[Edit]:
    """All edits, in order.

    Raises:
        LakeError: the table cannot be read.
        CorruptDataError: it holds what no edit is.
    """
    if not lake.has_table("edits"):
        return []
    with lake.errors_named("read the edits"):
        return _in_order(lake.dataset("edits").to_table().to_pylist())


def append_edit(lake: Lake, make: Callable[[EditState], Edit]) -> Edit:
    """Make an edit of what is there now, and append it.

    Args:
        lake: an unpinned lake; what it sees afterwards is newer.
        make: from the state to the edit; called again where another edit came first.

    Raises:
        LakeError: the lake is pinned, or cannot be written.
        CommitConflictError: others were first every time.
    """
    if lake.pinned is not None:
        raise LakeError(f"{lake.uri}: a lake pinned to versions cannot be edited")
    ensure_table(lake, "edits")
    token = uuid.uuid4().hex
    for _ in range(_ATTEMPTS):
        lake.refresh()
        state = edit_state(lake)
        number = state.last + 1
        edit = replace(make(state), number=number, time_ns=time.time_ns())
        insert_new(lake, "edits", pa.Table.from_pylist([_row(edit, token)], _SCHEMA))
        lake.refresh()
        with lake.errors_named("read the edits"):
            written = lake.dataset("edits").to_table(
                columns=["detail_json"], filter=equals("edit", _key(number))
            )
        # Asked rather than told: the reply to the insert may have got lost.
        if json.loads(written["detail_json"][0].as_py()).get("token") == token:
            return edit
    raise CommitConflictError(
        f"{lake.uri}: other edits were first {_ATTEMPTS} times; run the same command again"
    )


_SCHEMA: Final = OPTIONAL_TABLES["edits"]
_OF_STATE: Final = [name for name in _SCHEMA.names if name != "episode_ids"]


def _key(number: int) -> str:
    return f"{number:0{_DIGITS}d}"


def _row(edit: Edit, token: str) -> dict[str, object]:
    return {
        "edit": _key(edit.number),
        "kind": edit.kind,
        "who": edit.who,
        "why": edit.why,
        "time_ns": edit.time_ns,
        "episode_ids": list(edit.episode_ids),
        "hidden": list(edit.hidden),
        "shown": list(edit.shown),
        "views": [view.to_json() for view in edit.views],
        "detail_json": json.dumps({**edit.detail, "token": token}, sort_keys=True),
    }


def _in_order(rows: Sequence[Mapping[str, Any]]) -> list[Edit]:
    return [_edit(row) for row in sorted(rows, key=lambda row: str(row["edit"]))]


def _edit(row: Mapping[str, Any]) -> Edit:
    detail = json.loads(row["detail_json"])
    del detail["token"]
    return Edit(
        number=int(row["edit"]),
        kind=row["kind"],
        who=row["who"],
        why=row["why"],
        time_ns=row["time_ns"],
        episode_ids=tuple(row.get("episode_ids", ())),
        hidden=tuple(row["hidden"]),
        shown=tuple(row["shown"]),
        views=tuple(View.from_json(text) for text in row["views"]),
        detail=detail,
    )


def _state_of(last: int, edits: Sequence[Edit]) -> EditState:
    hidden: dict[str, Edit] = {}
    views: dict[str, View] = {}
    for edit in edits:
        hidden.update(dict.fromkeys(edit.hidden, edit))
        for episode_id in edit.shown:
            hidden.pop(episode_id, None)
        views.update({view.episode_id: view for view in edit.views})
    # Addresses of views that were made anew under the same id stay right.
    by_address = {view.address: view for edit in edits for view in edit.views}
    undone = {edit.detail["undoes"] for edit in edits if edit.kind == "undo"}
    keys = frozenset(
        key
        for edit in edits
        if edit.kind == "purge" and edit.number not in undone
        for key in edit.detail["ingest_keys"]
    )
    return EditState(last, tuple(edits), hidden, views, by_address, keys)

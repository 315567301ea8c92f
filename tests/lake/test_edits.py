"""Edits of episodes: what they hide and show, who made them, and what a death or a race leaves."""

import threading
from typing import Any

import pytest

from lake import Episode, EpisodeWriter, Lake, open_lake, read_episode, visible_episodes
from lake.edit.apply import Author, this_user
from lake.edit.hide import delete_episodes, undelete_episodes, undo_edit
from lake.edit.log import read_edits
from lake.edit.rearrange import split_episode
from lake.errors import CommitConflictError, EditError, EpisodeNotFoundError, LakeError
from tests.deaths import Died, dies_at, resolve
from tests.episodes import make_episode

BY = Author(who="ada@lab", why="false start")


def ids_of(lake: Lake) -> list[str]:
    lake.refresh()
    found: list[str] = visible_episodes(lake)["episode_id"].to_pylist()
    return found


def test_deleted_episodes_are_not_seen(lake: Lake, episodes: list[Episode]) -> None:
    first, second, *others = [episode.episode_id for episode in episodes]
    before = lake.versions()
    edit = delete_episodes(lake, [second, first], BY)
    assert (edit.number, edit.kind, edit.hidden) == (1, "delete", (second, first))
    assert ids_of(lake) == ids_of(open_lake(lake.uri)) == others
    with pytest.raises(
        EpisodeNotFoundError, match=r"since edit 1 \(delete by ada@lab: false start\); `headrace"
    ):
        read_episode(lake, first)
    # Who reads an older version, such as a plan, reads on as before.
    assert ids_of(lake.at(before)) == [first, second, *others]
    assert read_episode(lake.at(before), first).content_sha256() == episodes[0].content_sha256()
    undelete_episodes(lake, [first], Author(who="bob"))
    assert ids_of(lake) == [first, *others]
    assert read_episode(lake, first).content_sha256() == episodes[0].content_sha256()


def test_trajectories_are_never_touched(lake: Lake, episodes: list[Episode]) -> None:
    before = lake.versions()["trajectories"]
    delete_episodes(lake, [episodes[0].episode_id], BY)
    split_episode(lake, episodes[1].episode_id, [3], BY)
    undo_edit(lake, 2, BY)
    assert lake.versions()["trajectories"] == before


def test_every_edit_says_who_when_and_why(lake: Lake, episodes: list[Episode]) -> None:
    assert read_edits(lake) == []
    target = episodes[4].episode_id
    delete_episodes(lake, [target], BY)
    undelete_episodes(lake, [target], this_user("it was fine"))
    edits = read_edits(open_lake(lake.uri))
    assert [(e.number, e.kind, e.why) for e in edits] == [
        (1, "delete", "false start"),
        (2, "undelete", "it was fine"),
    ]
    assert edits[0].who == "ada@lab"
    assert "@" in edits[1].who
    assert edits[0].episode_ids == (target,)
    assert 0 < edits[0].time_ns <= edits[1].time_ns


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "no episodes are given"),
        (["nobody"], "1 of 1 episodes are not visible in the lake, first 'nobody'; nothing was"),
        (["it's", "synthetic/x"], "2 of 2 episodes are not visible"),
    ],
)
def test_what_is_not_there_is_not_deleted(
    lake: Lake, episodes: list[Episode], ids: list[str], message: str
) -> None:
    with pytest.raises(EditError, match=message):
        delete_episodes(lake, ids, BY)
    assert len(ids_of(lake)) == len(episodes)
    assert read_edits(lake) == []


def test_twice_is_an_error(lake: Lake, episodes: list[Episode]) -> None:
    target = episodes[0].episode_id
    with pytest.raises(EditError, match="1 episode ids are given twice"):
        delete_episodes(lake, [target, target], BY)
    delete_episodes(lake, [target], BY)
    with pytest.raises(EditError, match="not visible"):
        delete_episodes(lake, [target], BY)
    undelete_episodes(lake, [target], BY)
    with pytest.raises(EditError, match="1 of 1 episodes are not deleted"):
        undelete_episodes(lake, [target], BY)


def test_a_dry_run_changes_nothing(lake: Lake, episodes: list[Episode]) -> None:
    before = lake.versions()
    target = episodes[0].episode_id
    assert delete_episodes(lake, [target], BY, dry_run=True).number == 0
    parts = split_episode(lake, target, [2], BY, dry_run=True)
    assert [view.facts["num_steps"] for view in parts.views] == [2, 3]
    lake.refresh()
    assert lake.versions() == before
    assert not lake.has_table("edits")
    with pytest.raises(EditError, match="not visible"):
        delete_episodes(lake, ["nobody"], BY, dry_run=True)


def test_a_pinned_lake_is_not_edited(lake: Lake, episodes: list[Episode]) -> None:
    pinned = lake.at(lake.versions())
    with pytest.raises(LakeError, match="pinned to versions cannot be edited"):
        delete_episodes(pinned, [episodes[0].episode_id], BY)


def test_an_ingest_does_not_bring_deleted_episodes_back(
    lake: Lake, episodes: list[Episode]
) -> None:
    delete_episodes(lake, [episodes[0].episode_id], BY)
    split_episode(lake, episodes[1].episode_id, [1], BY)
    before = ids_of(lake)
    with EpisodeWriter(lake) as writer:
        for episode in episodes:
            writer.add(episode)
    assert (writer.report.present, writer.report.written) == (len(episodes), 0)
    assert ids_of(lake) == before


def test_edits_are_undone_in_turn(lake: Lake, episodes: list[Episode]) -> None:
    target, other = (episode.episode_id for episode in episodes[:2])
    whole = ids_of(lake)
    parts = split_episode(lake, target, [2], BY).shown
    delete_episodes(lake, [parts[0]], BY)
    with pytest.raises(EditError, match="1 of 2 episodes are not visible any more, first"):
        undo_edit(lake, 1, BY)
    undo_edit(lake, 2, BY)
    undone = undo_edit(lake, 1, BY)
    assert (undone.kind, undone.detail) == ("undo", {"undoes": 1})
    assert ids_of(lake) == whole
    with pytest.raises(EditError, match="not hidden by edit 1 any more"):
        undo_edit(lake, 1, BY)
    # What was undone can be done again, and undone again.
    assert split_episode(lake, target, [2], BY).shown == parts
    assert set(parts) < set(ids_of(lake))
    delete_episodes(lake, [other], BY)
    undo_edit(lake, 5, BY)
    assert sorted(ids_of(lake)) == sorted(set(whole) - {other})
    with pytest.raises(EditError, match="no edit 99 hid or made episodes"):
        undo_edit(lake, 99, BY)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("target", "call"),
    [
        ("lake.edit.log.ensure_table", 1),
        ("lake.edit.rearrange.insert_new", 1),
        ("lake.edit.rearrange.insert_new", 2),
        ("lake.edit.log.insert_new", 1),
    ],
)
def test_a_death_leaves_the_edit_whole_or_none_of_it(
    lake: Lake,
    episodes: list[Episode],
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    call: int,
    when: str,
) -> None:
    whole = ids_of(lake)
    split = episodes[2].episode_id
    with monkeypatch.context() as patch:
        dies_at(patch, target, call, after=when == "after")
        with pytest.raises(Died):
            split_episode(lake, split, [2], BY)
    left = ids_of(open_lake(lake.uri))
    if len(left) == len(whole):
        assert left == whole
        split_episode(lake, split, [2], BY)
    parts = [f"{split}/steps_000000_000002", f"{split}/steps_000002_000007"]
    assert sorted(ids_of(lake)) == sorted({*whole, *parts} - {split})
    for part in parts:
        read_episode(lake, part)
    assert [edit.number for edit in read_edits(lake)] == [1]


def test_an_edit_whose_reply_got_lost_is_made_once(
    lake: Lake, episodes: list[Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Any = resolve("lake.edit.log.insert_new")

    def reply_lost(*args: Any) -> int:
        real(*args)
        return 0

    monkeypatch.setattr("lake.edit.log.insert_new", reply_lost)
    assert delete_episodes(lake, [episodes[0].episode_id], BY).number == 1
    assert len(read_edits(lake)) == 1


def test_who_never_gets_a_number_gives_up(
    lake: Lake, episodes: list[Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_episodes(lake, [episodes[0].episode_id], BY)
    real: Any = resolve("lake.edit.log.insert_new")

    def overtaken(where: Lake, table: str, rows: Any) -> int:
        other = rows.to_pylist()[0] | {"detail_json": '{"token": "other"}', "hidden": []}
        return int(real(where, table, type(rows).from_pylist([other], rows.schema)))

    monkeypatch.setattr("lake.edit.log.insert_new", overtaken)
    with pytest.raises(CommitConflictError, match="other edits were first 12 times"):
        delete_episodes(lake, [episodes[1].episode_id], BY)
    assert episodes[1].episode_id in ids_of(lake)


def test_racing_edits_each_get_a_number_or_an_error(lake: Lake, episodes: list[Episode]) -> None:
    barrier = threading.Barrier(8)
    made: list[int] = []
    refused: list[str] = []

    def run(number: int) -> None:
        mine = open_lake(lake.uri)
        barrier.wait()
        try:
            target = episodes[number % 5].episode_id
            made.append(delete_episodes(mine, [target], BY).number)
        except EditError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [1, 2, 3, 4, 5]
    assert len(refused) == 3
    assert all("not visible" in text for text in refused)
    assert ids_of(lake) == []


def test_a_handle_sees_edits_when_it_is_refreshed(lake: Lake, episodes: list[Episode]) -> None:
    reader = open_lake(lake.uri)
    assert visible_episodes(reader).num_rows == 5
    delete_episodes(lake, [episodes[0].episode_id], BY)
    assert visible_episodes(reader).num_rows == 5
    reader.refresh()
    assert visible_episodes(reader).num_rows == 4
    again = make_episode(9)
    with EpisodeWriter(lake) as writer:
        writer.add(again)
    split_episode(lake, again.episode_id, [4], BY)
    assert visible_episodes(reader).num_rows == 4
    reader.refresh()
    assert visible_episodes(reader).num_rows == 6

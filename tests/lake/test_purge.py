"""True erasure: not one byte of a purged episode is left on disk, and of the others every one."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog, freeze_selection, set_labels
from ingest.lake_doctor import check_lake
from lake import (
    Episode,
    EpisodeWriter,
    Lake,
    chunk_messages,
    open_lake,
    read_episode,
    read_raw_messages,
    visible_episodes,
)
from lake.edit.apply import Author
from lake.edit.hide import delete_episodes, undo_edit
from lake.edit.log import read_edits
from lake.edit.rearrange import split_episode
from lake.errors import EditError, LakeError, SpecError
from lake.purge import purge
from lake.raw import RawMessage, RawStream
from lake.reshard import reshard
from packing.errors import PlanError
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan_store import load_plan, save_plan
from packing.trajectory_spans import TrajectorySpans
from tests.deaths import Died, dies_at
from tests.episodes import make_episode

BY = Author(who="test", why="consent withdrawn")
EPISODES = 5
VICTIM = 2


def one(number: int) -> Episode:
    return make_episode(
        number,
        camera_names=("top", "wrist"),
        packet_bytes=3000,
        instruction=f"<instruction of episode {number}>",
        tags=(f"<tag of episode {number}>",),
    )


def recording(number: int) -> list[RawMessage]:
    payload = f"<raw message of episode {number}>".encode() * 9
    return [RawMessage(stream=RawStream(name="/x"), clocks={"log": 1}, payload=payload)]


_TEXTS = ("instruction", "tag", "raw message")


def traces(number: int) -> list[bytes]:
    """Bytes that are on disk while the episode is."""
    episode = one(number)
    payload = bytes(episode.cameras["top"].payload)
    return [
        *(payload[at : at + 64] for at in range(0, len(payload) - 64, 4000)),
        *(episode.features[name].tobytes() for name in ("state", "action")),
        *(f"<{what} of episode {number}>".encode() for what in _TEXTS),
        episode.content_sha256(),
    ]


def found_on_disk(lake: Lake, needles: Sequence[bytes]) -> set[bytes]:
    files = [path.read_bytes() for path in Path(lake.uri).rglob("*") if path.is_file()]
    return {needle for needle in needles if any(needle in data for data in files)}


@pytest.fixture
def robots(lake: Lake) -> Lake:
    """Five episodes with recordings, in three commits, some labelled since."""
    with EpisodeWriter(lake, batch_episodes=2) as writer:
        for number in range(EPISODES):
            writer.add(one(number), chunk_messages(recording(number)))
    ids = [one(number).episode_id for number in range(EPISODES)]
    set_labels(lake, ids[1:4], split="test")
    lake.refresh()
    assert found_on_disk(lake, traces(VICTIM)) == set(traces(VICTIM))
    return lake


def ids_of(lake: Lake) -> list[str]:
    lake.refresh()
    found: list[str] = visible_episodes(lake)["episode_id"].to_pylist()
    return sorted(found)


def assert_others_are_whole(lake: Lake) -> None:
    others = [number for number in range(EPISODES) if number != VICTIM]
    assert ids_of(lake) == sorted(one(number).episode_id for number in others)
    for number in others:
        episode = read_episode(lake, one(number).episode_id)
        assert episode.content_sha256() == one(number).content_sha256()
        (message,) = read_raw_messages(lake, episode.episode_id)
        assert bytes(message.payload) == bytes(recording(number)[0].payload)
    assert check_lake(lake) == []


def test_no_byte_is_left(robots: Lake) -> None:
    target = one(VICTIM).episode_id
    reshard(robots)
    delete_episodes(robots, [target], BY)
    assert found_on_disk(robots, traces(VICTIM)) == set(traces(VICTIM))
    done = purge(robots, [target], BY)
    assert (done.episode_ids, done.plans, done.unnamed_files) == ((target,), (), 0)
    assert done.rows == {"trajectories": 1, "raw": 1, "episodes": 1, "stats": 3, "commits": 1}
    assert found_on_disk(robots, traces(VICTIM)) == set()
    assert_others_are_whole(open_lake(robots.uri))
    kinds = [(edit.kind, edit.who, edit.why) for edit in read_edits(robots)]
    assert kinds[-2:] == [("purge", BY.who, BY.why), ("purged", BY.who, BY.why)]
    assert purge(robots, [], BY).episode_ids == ()
    with Catalog(robots) as catalog:
        assert catalog.query("SELECT count(*) AS n FROM episodes")["n"].to_pylist() == [4]
        assert catalog.query("FROM hidden_episodes").num_rows == 0


def test_what_is_seen_is_not_purged(robots: Lake) -> None:
    before = robots.versions()
    for target in (one(1).episode_id, "nobody"):
        with pytest.raises(EditError, match="are not deleted"):
            purge(robots, [target], BY)
    with pytest.raises(LakeError, match="pinned to versions cannot be purged"):
        purge(robots.at(before), [], BY)
    robots.refresh()
    assert {t: v for t, v in robots.versions().items() if t != "edits"} == {
        t: v for t, v in before.items() if t != "edits"
    }


def test_a_dry_run_changes_nothing(robots: Lake) -> None:
    delete_episodes(robots, [one(VICTIM).episode_id], BY)
    before = robots.versions()
    told = purge(robots, [one(VICTIM).episode_id], BY, dry_run=True)
    robots.refresh()
    assert robots.versions() == before
    assert told == purge(robots, [one(VICTIM).episode_id], BY)


def test_the_next_ingest_does_not_bring_it_back(robots: Lake) -> None:
    target = one(VICTIM).episode_id
    delete_episodes(robots, [target], BY)
    purge(robots, [target], BY)
    with EpisodeWriter(robots) as writer:
        for number in range(EPISODES):
            writer.add(one(number), chunk_messages(recording(number)))
        with pytest.raises(SpecError, match="holds another episode of this id"):
            writer.add(make_episode(7, episode_id=target))
    assert (writer.report.present, writer.report.written) == (EPISODES, 0)
    assert found_on_disk(robots, traces(VICTIM)) == set()
    # Unless it is asked for.
    (number,) = [edit.number for edit in read_edits(robots) if edit.kind == "purge"]
    undo_edit(robots, number, BY)
    assert target not in ids_of(robots)
    with EpisodeWriter(robots) as writer:
        writer.add(one(VICTIM))
    assert writer.report.written == 1
    assert read_episode(robots, target).content_sha256() == one(VICTIM).content_sha256()


def test_orphans_of_a_purged_episode_are_not_adopted(
    robots: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A racing writer had written the episode again; its row never counted, and goes too."""
    racer = EpisodeWriter(robots)
    racer._visible.clear()
    racer._ids.clear()
    with monkeypatch.context() as patch:
        dies_at(patch, "lake.writer.record", 2, after=False)
        with pytest.raises(Died), racer:
            racer.add(one(VICTIM), chunk_messages(recording(VICTIM)))
    assert robots.latest("trajectories").count_rows() == EPISODES + 1
    delete_episodes(robots, [one(VICTIM).episode_id], BY)
    assert purge(robots, [one(VICTIM).episode_id], BY).rows["trajectories"] == 2
    assert found_on_disk(robots, traces(VICTIM)) == set()
    assert_others_are_whole(robots)


def test_parts_go_with_what_they_are_of(robots: Lake) -> None:
    target = one(VICTIM).episode_id
    parts = split_episode(robots, target, [5], BY).shown
    with pytest.raises(EditError, match="and is seen: delete it first"):
        purge(robots, [target], BY)
    delete_episodes(robots, [parts[0]], BY)
    with pytest.raises(EditError, match="where its bytes are: purge that one with it"):
        purge(robots, [parts[0]], BY)
    delete_episodes(robots, [parts[1]], BY)
    hashes = [view.facts["content_sha256"].hex().encode() for view in read_edits(robots)[1].views]
    assert found_on_disk(robots, hashes) == set(hashes)
    done = purge(robots, [target], BY)
    assert set(done.episode_ids) == {target, *parts}
    assert done.rows["stats"] == 9
    assert found_on_disk(robots, [*traces(VICTIM), *hashes]) == set()
    assert_others_are_whole(robots)


def plan_of(lake: Lake, name: str) -> None:
    plan = make_plan(
        lake,
        freeze_selection(lake, "num_steps > 0", name=f"all-{name}"),
        spans=TrajectorySpans(max_steps=64),
        layout=TokenLayout(image_tokens=1),
        budget_tokens=4096,
        slots_per_step=1,
    )
    save_plan(lake, plan, name)


def test_a_plan_that_pins_it_forbids_it_unless_forced(robots: Lake) -> None:
    target = one(VICTIM).episode_id
    plan_of(robots, "before")
    delete_episodes(robots, [target], BY)
    plan_of(robots, "after")
    before, after = (load_plan(robots, name).plan_hash for name in ("before", "after"))
    with pytest.raises(EditError, match=f"2 plans pin versions .*plan-{before}") as refused:
        purge(robots, [target], BY)
    assert f"plan-{after}" in str(refused.value)
    assert found_on_disk(robots, traces(VICTIM)) == set(traces(VICTIM))
    load_plan(robots, "before")
    done = purge(robots, [target], BY, force=True)
    assert sorted(done.plans) == sorted([f"plan-{before}", f"plan-{after}"])
    assert found_on_disk(robots, traces(VICTIM)) == set()
    assert not list(Path(robots.uri, "plans").rglob("*.lance/data/*"))
    assert_others_are_whole(robots)
    # What was trained by a plan of it stays known; the plan that only stood beside is made again.
    with pytest.raises(PlanError, match="its table packs is unreadable"):
        load_plan(robots, "before")
    with pytest.raises(PlanError, match="no plan 'after'; there are: before"):
        load_plan(robots, "after")
    plan_of(robots, "again")
    again = load_plan(robots, "again")
    assert (again.plan_hash, again.episodes.num_rows) == (after, EPISODES - 1)
    # A plan of what is there does not stand in the way of the next purge of nothing of its own.
    assert purge(robots, [], BY).plans == ()


def test_a_plan_saved_meanwhile_is_named_and_the_purge_goes_on(
    robots: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = one(VICTIM).episode_id
    delete_episodes(robots, [target], BY)
    import lake.purge as module

    real: Any = module._erase_rows

    def meanwhile(lake: Lake, ids: Sequence[str]) -> None:
        if not lake.latest("trajectories").tags.list():
            lake.latest("trajectories").tags.create(
                "plan-late", lake.latest("trajectories").version
            )
        real(lake, ids)

    monkeypatch.setattr(module, "_erase_rows", meanwhile)
    with pytest.raises(EditError, match="plan-late came to pin the purged episodes meanwhile"):
        purge(robots, [target], BY)
    assert found_on_disk(robots, traces(VICTIM)) != set()
    monkeypatch.undo()
    begun = read_edits(robots)[-1]
    with pytest.raises(EditError, match="is a purge that was not finished"):
        undo_edit(robots, begun.number, BY)
    with pytest.raises(EditError, match="plan-late came to pin"):
        purge(robots, [], BY)
    done = purge(robots, [], BY, force=True)
    assert (done.episode_ids, done.plans) == ((target,), ("plan-late",))
    assert found_on_disk(robots, traces(VICTIM)) == set()


def test_files_of_killed_writers_are_counted_and_swept(
    robots: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = one(VICTIM).episode_id
    racer = EpisodeWriter(robots)
    racer._visible.clear()
    racer._ids.clear()
    with monkeypatch.context() as patch:
        dies_at(patch, "lake.append.lance.LanceDataset.commit_batch", 1, after=False)
        with pytest.raises(Died), racer:
            racer.add(one(VICTIM), chunk_messages(recording(VICTIM)))
    delete_episodes(robots, [target], BY)
    assert purge(robots, [target], BY).unnamed_files == 1
    left = found_on_disk(robots, traces(VICTIM))
    assert left == {trace for trace in traces(VICTIM) if b"raw message" in trace}
    delete_episodes(robots, [one(1).episode_id], BY)
    assert purge(robots, [one(1).episode_id], BY, sweep=True).unnamed_files == 0
    assert found_on_disk(robots, [*traces(VICTIM), *traces(1)]) == set()
    for number in (0, 3, 4):
        read_episode(robots, one(number).episode_id)


def test_recordings_of_a_commit_that_died_are_swept(
    robots: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        dies_at(patch, "lake.writer.append_trajectories", 1, after=False)
        with pytest.raises(Died), EpisodeWriter(robots) as writer:
            writer.add(one(9), chunk_messages(recording(9)))
    needle = b"<raw message of episode 9>"
    assert found_on_disk(robots, [needle]) == {needle}
    assert purge(robots, [], BY).unnamed_files == 0
    assert found_on_disk(robots, [needle]) == {needle}
    purge(robots, [], BY, sweep=True)
    assert found_on_disk(robots, [needle]) == set()
    assert "purged" not in {edit.kind for edit in read_edits(robots)}
    for number in range(EPISODES):
        assert len(list(read_raw_messages(robots, one(number).episode_id))) == 1


STEPS = [
    ("lake.purge.apply", 1),
    ("lake.purge.until_won", 1),
    ("lake.purge.until_won", 2),
    ("lake.purge.until_won", 5),
    ("lake.purge.rewrite_fragments", 1),
    ("lake.purge.rewrite_fragments", 3),
    ("lake.rewrite.write_fragments", 1),
    ("lake.rewrite.lance.LanceDataset.commit", 1),
    ("lake.rewrite.lance.LanceDataset.commit", 2),
    ("lake.purge.forget_views", 1),
    ("lake.purge._give_up", 1),
    ("lake.purge._pins", 2),
    ("lake.purge.unnamed_files", 1),
    ("lake.purge.append_edit", 1),
]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("target", "call"), STEPS)
def test_a_death_at_any_step_is_gone_on_with(
    robots: Lake, monkeypatch: pytest.MonkeyPatch, target: str, call: int, when: str
) -> None:
    victim = one(VICTIM).episode_id
    for table in ("trajectories", "episodes"):
        robots.latest(table).tags.create("plan-x", robots.latest(table).version)
    delete_episodes(robots, [victim], BY)
    with monkeypatch.context() as patch:
        died = dies_at(patch, target, call, after=when == "after")
        with pytest.raises(Died):
            purge(robots, [victim], BY, force=True)
        assert died()
    opened = open_lake(robots.uri)
    assert victim not in ids_of(opened)
    for number in (0, 1, 3, 4):
        read_episode(opened, one(number).episode_id)
    begun = any(edit.kind == "purge" for edit in read_edits(opened))
    purge(opened, [] if begun else [victim], BY, force=True, sweep=True)
    assert found_on_disk(opened, traces(VICTIM)) == set()
    assert_others_are_whole(opened)


def test_a_lake_without_edits_has_nothing_to_purge(lake: Lake) -> None:
    with EpisodeWriter(lake) as writer:
        writer.add(one(1))
    assert purge(lake, [], BY).episode_ids == ()
    assert purge(lake, [], BY, dry_run=True).rows["trajectories"] == 0
    lake.latest("trajectories").cleanup_old_versions(timedelta(0))
    read_episode(lake, one(1).episode_id)

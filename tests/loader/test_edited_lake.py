"""Plans and loaders of a lake that was edited: as if the episodes had been recorded that way."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lake import EpisodeWriter, Lake, create_lake, read_episode, visible_episodes
from lake.edit.apply import Author
from lake.edit.hide import delete_episodes
from lake.edit.rearrange import merge_episodes, split_episode
from loader import LoaderError, PackLoader, Window
from loader.storage.settings import StorageSettings
from packing.extend_plan import extend_plan
from packing.plan_store import load_plan, save_plan
from packing.verify import verify_plan
from tests.loader import scenes
from tests.loader.scenes import digest, scene_episode, scene_plan
from tests.loader.windows.window_truth import require_same

BY = Author(who="test", why="a test")
_INLINE: dict[str, Any] = {"process": "inline", "framework": "numpy"}


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The scene: one episode deleted, one split twice, a part of it joined to another episode."""
    lake = scenes.scene_lake(tmp_path_factory.mktemp("edited"))
    ids = [scene_episode(number).episode_id for number in range(scenes.EPISODES)]
    delete_episodes(lake, [ids[0]], BY)
    parts = split_episode(lake, ids[5], [3, 20], BY).shown
    split_episode(lake, ids[3], [10], BY)
    merge_episodes(lake, [ids[1], parts[1]], BY, gap_ns=100_000_000)
    return lake


@pytest.fixture(scope="module")
def recorded(edited: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Another lake, where what the edited one shows was written as episodes."""
    lake = create_lake(tmp_path_factory.mktemp("recorded") / "x.lake")
    with EpisodeWriter(lake) as writer:
        for episode_id in visible_episodes(edited)["episode_id"].to_pylist():
            writer.add(read_episode(edited, episode_id))
    lake.refresh()
    return lake


def test_the_plan_is_that_of_recorded_episodes(edited: Lake, recorded: Lake) -> None:
    ours, theirs = scene_plan(edited), scene_plan(recorded)
    assert ours.plan_hash == theirs.plan_hash
    assert ours.packs.equals(theirs.packs)
    assert ours.header.versions["edits"] == edited.versions()["edits"]
    verify_plan(ours)


def test_batches_are_those_of_recorded_episodes(
    edited: Lake, recorded: Lake, tmp_path: Path
) -> None:
    plan = scene_plan(edited)
    with PackLoader(recorded, scene_plan(recorded), **_INLINE) as loader:
        expected = [digest(batch) for batch in loader]
    for _ in range(2):  # filling the node's cache, then from it
        storage = StorageSettings(cache_dir=str(tmp_path / "cache"))
        with PackLoader(edited, plan, **_INLINE, storage=storage) as loader:
            assert [digest(batch) for batch in loader] == expected


def test_samples_are_those_of_recorded_episodes(edited: Lake, recorded: Lake) -> None:
    deltas = {"action": [0, 1], "top": [-1, 0]}
    options: dict[str, Any] = {"delta_steps": deltas, "missing": "pad", "names": "canonical"}
    with closing(Window(edited, **options)) as ours, closing(Window(recorded, **options)) as theirs:
        assert len(ours) == len(theirs)
        for number in range(0, len(ours), 3):
            require_same(ours[number], theirs[number])


def test_invalid_steps_of_parts_are_found_before_the_first_sample(edited: Lake) -> None:
    base = scene_episode(3).episode_id
    first, second = f"{base}/steps_000000_000010", f"{base}/steps_000010_000021"
    with pytest.raises(LoaderError, match=f"1 of 1 episodes .* of action, first {first}"):
        Window(edited, episodes=[first])
    with closing(Window(edited, episodes=[second])) as samples:
        assert len(samples) == 11


def test_a_plan_from_before_reads_on_after_edits(tmp_path: Path) -> None:
    lake = scenes.scene_lake(tmp_path)
    plan = scene_plan(lake, epochs=1)
    save_plan(lake, plan, "before")
    with PackLoader(lake, plan, **_INLINE) as loader:
        expected = [digest(batch) for batch in loader]
    split_episode(lake, scene_episode(5).episode_id, [3], BY)
    delete_episodes(lake, [scene_episode(1).episode_id], BY)
    with PackLoader(lake, "before", **_INLINE) as loader:
        assert [digest(batch) for batch in loader] == expected
    after = scene_plan(lake, epochs=1)
    assert after.plan_hash != plan.plan_hash
    save_plan(lake, after, "after")
    with PackLoader(lake, "after", **_INLINE) as loader:
        edited = [digest(batch) for batch in loader]
    assert edited != expected
    # And a later edit does not change what the second plan sees either.
    delete_episodes(lake, [f"{scene_episode(5).episode_id}/steps_000000_000003"], BY)
    with PackLoader(lake, "after", **_INLINE) as loader:
        assert [digest(batch) for batch in loader] == edited
    assert load_plan(lake, "after").header.versions["edits"] < lake.versions()["edits"]


def test_a_plan_grows_by_a_part(tmp_path: Path) -> None:
    lake = scenes.scene_lake(tmp_path)
    others = [scene_episode(number).episode_id for number in (1, 2, 6)]
    plan = scene_plan(lake, epochs=1, episodes=others)
    save_plan(lake, plan, "small")
    part = split_episode(lake, scene_episode(5).episode_id, [9], BY).shown[1]
    grown = extend_plan(lake, plan, [part])
    assert grown.episodes["episode_id"].to_pylist() == [*others, part]
    verify_plan(grown)

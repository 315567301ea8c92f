"""Labels change whole or not at all, and only labels change."""

import threading
from typing import Any

import pytest

from catalog import Catalog, LabelError, freeze_selection, set_labels
from catalog.labels import LABELS
from lake import Lake, read_episode, visible_episodes


def labels(lake: Lake) -> dict[str, dict[str, Any]]:
    rows = lake.latest("episodes").to_table().to_pylist()
    return {row["episode_id"]: row for row in rows}


def ids(lake: Lake) -> list[str]:
    result: list[str] = visible_episodes(lake)["episode_id"].to_pylist()
    return result


def test_given_labels_change_and_nothing_else(small_lake: Lake) -> None:
    before = labels(small_lake)
    chosen = ids(small_lake)[1:3]
    content = [read_episode(small_lake, episode_id).content_sha256() for episode_id in chosen]
    count = set_labels(small_lake, chosen, success=None, quality=1, tags=("a", "b"), task="stack")
    assert count == 2
    after = labels(small_lake)
    changes = {
        "success": None,
        "quality": 1.0,
        "tags": ["a", "b"],
        "task": "stack",
        "label_version": 1,
    }
    expected = {
        episode_id: {**row, **changes} if episode_id in chosen else row
        for episode_id, row in before.items()
    }
    assert after == expected
    small_lake.refresh()
    episodes = [read_episode(small_lake, episode_id) for episode_id in chosen]
    assert [episode.content_sha256() for episode in episodes] == content
    assert [episode.task for episode in episodes] == ["stack", "stack"]


def test_a_selection_can_be_labelled(small_lake: Lake) -> None:
    selection = freeze_selection(small_lake, "success")
    assert set_labels(small_lake, selection, split="val") == 3
    with Catalog(small_lake) as catalog:
        rows = catalog.query("SELECT episode_id FROM episodes WHERE split = 'val' ORDER BY 1")
    assert tuple(rows["episode_id"].to_pylist()) == selection.episode_ids


@pytest.mark.parametrize("name", LABELS)
def test_every_label_can_be_cleared(small_lake: Lake, name: str) -> None:
    cleared: Any = {name: None}
    set_labels(small_lake, ids(small_lake), **cleared)
    assert {row[name] for row in labels(small_lake).values()} == {None}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"colour": "red"},
        {"num_steps": 3},
        {"label_version": 9},
        {"success": "yes"},
        {"success": 1},
        {"quality": "high"},
        {"quality": True},
        {"tags": "a,b"},
        {"tags": [1]},
        {"task": 3},
        {"task": ["a"]},
    ],
)
def test_wrong_labels_change_nothing(still_lake: Lake, wrong: dict[str, Any]) -> None:
    before = still_lake.latest("episodes").version
    with pytest.raises(LabelError, match="label"):
        set_labels(still_lake, ids(still_lake), **wrong)
    assert still_lake.latest("episodes").version == before


def test_wrong_episodes_change_nothing(still_lake: Lake) -> None:
    known = ids(still_lake)
    before = still_lake.latest("episodes").version
    with pytest.raises(LabelError, match="1 of 2 ids are not episodes of the lake, first 'ghost'"):
        set_labels(still_lake, [known[0], "ghost"], task="x")
    with pytest.raises(LabelError, match="given twice"):
        set_labels(still_lake, [known[0], known[0]], task="x")
    with pytest.raises(LabelError, match="no episodes"):
        set_labels(still_lake, [], task="x")
    with pytest.raises(LabelError, match="pinned"):
        set_labels(still_lake.at(still_lake.versions()), known, task="x")
    assert still_lake.latest("episodes").version == before


def test_labels_set_at_once_are_all_kept(small_lake: Lake) -> None:
    everyone = ids(small_lake)
    failed: list[str] = []

    def work(**given: Any) -> None:
        try:
            set_labels(Lake(small_lake.uri, {}), everyone, **given)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            failed.append(repr(error))

    given: list[dict[str, Any]] = [
        {"quality": 0.5},
        {"split": "val"},
        {"task": "pour"},
        {"tags": ["t"]},
    ]
    threads = [threading.Thread(target=work, kwargs=kwargs) for kwargs in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    for row in labels(small_lake).values():
        assert (row["quality"], row["split"], row["task"], row["tags"]) == (
            0.5,
            "val",
            "pour",
            ["t"],
        )


@pytest.mark.parametrize(
    "change",
    [{"quality": float("nan")}, {"quality": float("inf")}, {"task": "\udcff"}],
)
def test_what_no_label_can_mean_is_refused(small_lake: Lake, change: dict[str, Any]) -> None:
    before = labels(small_lake)
    with pytest.raises(LabelError, match=f"label {next(iter(change))}: "):
        set_labels(small_lake, ids(small_lake), **change)
    assert labels(small_lake) == before

"""An incremental refresh and a rebuild show the same, whatever happened to the lake between."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catalog import Catalog, refresh_catalog, set_labels
from lake import Episode, Lake, create_lake, read_episode, visible_episodes
from lake.edit.apply import Author
from lake.edit.hide import delete_episodes, undo_edit
from lake.edit.log import read_edits
from lake.edit.rearrange import split_episode
from lake.episode_row import episode_rows
from lake.errors import EditError
from lake.insert import insert_new
from lake.quarantine import QuarantineEntry, quarantine_rows
from lake.rewrite import rewrite_fragments
from lake.writer import append_trajectories
from tests.catalog.views import contents, rebuilt_contents, write

MakeEpisode = Callable[..., Episode]


def restore(lake: Lake, table: str, version: int) -> None:
    """Make an old version of a table its newest."""
    old: Any = lake.at({table: version}).dataset(table)
    old.restore()


class RandomLife:
    """Random changes to a lake, each by the call a user or Lance itself would make."""

    def __init__(self, lake: Lake, make_episode: MakeEpisode, seed: int) -> None:
        self.lake = lake
        self.make_episode = make_episode
        self.rng = np.random.default_rng(seed)
        self.number = 0

    def step(self) -> str:
        change = self.rng.choice(
            [
                *("append", "append", "label", "label", "delete", "restore", "orphan"),
                *("double", "quarantine", "compact_labels", "forget", "new_feature"),
                *("hide", "split", "undo", "reshard"),
            ]
        )
        getattr(self, change)()
        return str(change)

    def _episode(self, **changes: object) -> Episode:
        self.number += 1
        cameras = ("top", "wrist")[: self.rng.integers(3)]
        return self.make_episode(
            self.number,
            steps=int(self.rng.integers(2, 9)),
            camera_names=cameras,
            **changes,
        )

    def _ids(self) -> list[str]:
        self.lake.refresh()
        ids: list[str] = visible_episodes(self.lake)["episode_id"].to_pylist()
        return ids

    def append(self) -> None:
        write(self.lake, [self._episode() for _ in range(self.rng.integers(1, 5))])

    def new_feature(self) -> None:
        write(self.lake, [self._episode(dtype="float64")])

    def label(self) -> None:
        if ids := self._labelled():
            chosen = self.rng.choice(ids, int(self.rng.integers(1, len(ids) + 1)), replace=False)
            set_labels(
                self.lake,
                chosen.tolist(),
                quality=float(self.rng.random()),
                split=None,
                tags=("x",),
            )

    def delete(self) -> None:
        if ids := self._ids():
            table = str(self.rng.choice(["trajectories", "episodes", "stats"]))
            self.lake.latest(table).delete(f"episode_id = '{self.rng.choice(ids)}'")

    def forget(self) -> None:
        if ids := self._ids():
            self.lake.latest("commits").delete(f"episode_id = '{self.rng.choice(ids)}'")

    def restore(self) -> None:
        table = str(self.rng.choice(["trajectories", "episodes", "commits"]))
        newest = self.lake.latest(table).version
        restore(self.lake, table, int(self.rng.integers(1, newest + 1)))

    def orphan(self) -> None:
        rows = episode_rows(self._episode(), "commit-of-a-dead-writer")
        append_trajectories(self.lake, [rows.trajectory], "commit-of-a-dead-writer")

    def double(self) -> None:
        """The store applied an append twice."""
        episode = self._episode()
        write(self.lake, [episode])
        where = f"ingest_key = '{episode.ingest_key}'"
        ledger = self.lake.latest("commits").to_table(filter=where)
        commit_id = ledger["commit_id"][0].as_py()
        rows = episode_rows(episode, commit_id)
        append_trajectories(self.lake, [rows.trajectory], commit_id)

    def quarantine(self) -> None:
        entry = QuarantineEntry(
            source="s", episode=f"e{self.number}", stream="", reason="cut", detail="cut short"
        )
        insert_new(self.lake, "quarantine", quarantine_rows([entry]))

    def _labelled(self) -> list[str]:
        rows = self.lake.latest("episodes").to_table(columns=["episode_id"])
        return sorted(set(self._ids()) & set(rows["episode_id"].to_pylist()))

    def hide(self) -> None:
        if ids := self._ids():
            delete_episodes(self.lake, [str(self.rng.choice(ids))], Author(who="test"))

    def split(self) -> None:
        if ids := self._labelled():
            chosen = str(self.rng.choice(ids))
            if read_episode(self.lake, chosen).num_steps > 1:
                split_episode(self.lake, chosen, [1], Author(who="test"))

    def undo(self) -> None:
        edits = [e.number for e in read_edits(self.lake) if e.kind in ("delete", "split")]
        if edits:
            with suppress(EditError):
                undo_edit(self.lake, int(self.rng.choice(edits)), Author(who="test"))

    def reshard(self) -> None:
        table = str(self.rng.choice(["trajectories", "episodes", "commits"]))
        if fragments := self.lake.latest(table).get_fragments():
            rewrite_fragments(self.lake, table, [f.fragment_id for f in fragments])

    def compact_labels(self) -> None:
        self.lake.latest("episodes").optimize.compact_files()


@pytest.mark.parametrize("seed", range(4))
def test_refresh_equals_rebuild_after_any_change(
    lake: Lake, make_episode: MakeEpisode, tmp_path: Path, seed: int
) -> None:
    life = RandomLife(lake, make_episode, seed)
    life.append()
    with Catalog(lake) as catalog:
        for burst in (1, 2, 3, 2, 4):
            change = [life.step() for _ in range(burst)]
            assert not catalog.refresh().rebuilt
            shown = contents(catalog)
            assert shown == rebuilt_contents(lake, tmp_path / "again.duckdb"), change
            ids = [row["episode_id"] for row in shown["episodes"]]
            assert sorted(ids) == sorted(life._ids()), change


def test_only_changed_fragments_are_read(lake: Lake, make_episode: MakeEpisode) -> None:
    for number in range(4):
        write(lake, [make_episode(number)])
    refresh_catalog(lake)
    write(lake, [make_episode(4)])
    refresh = refresh_catalog(lake)
    # One new fragment of trajectories, episodes, stats, commits; the spec is known.
    assert (refresh.fragments_loaded, refresh.fragments_dropped) == (4, 0)
    assert refresh.rows_loaded == 3 + len(make_episode().features)

    ids = visible_episodes(lake)["episode_id"].to_pylist()
    set_labels(lake, ids[2:3], task="pour")
    refresh = refresh_catalog(lake)
    # The labels of one fragment, and the edit that says who set them.
    assert (refresh.fragments_loaded, refresh.fragments_dropped, refresh.rows_loaded) == (2, 1, 2)


def test_a_lake_replaced_under_the_same_path_is_seen(
    lake: Lake, make_episode: MakeEpisode, tmp_path: Path
) -> None:
    # Same tables, same versions and fragment ids as before, other rows.
    other = create_lake(tmp_path / "other.lake")
    write(lake, [make_episode(1)])
    write(other, [make_episode(2)])
    catalog_file = tmp_path / "one.duckdb"
    refresh_catalog(lake, catalog_file)
    refresh = refresh_catalog(other, catalog_file)
    assert not refresh.rebuilt
    with Catalog(other, catalog_file, refresh=False) as catalog:
        shown = catalog.query("SELECT episode_id FROM episodes")["episode_id"]
    assert shown.to_pylist() == [make_episode(2).episode_id]


def test_deletes_labels_and_restores_show(small_lake: Lake) -> None:
    with Catalog(small_lake) as catalog:
        ids = catalog.query("SELECT episode_id FROM episodes ORDER BY num_steps")
        first, second, *_ = ids["episode_id"].to_pylist()
        before = small_lake.latest("trajectories").version

        small_lake.latest("trajectories").delete(f"episode_id = '{first}'")
        set_labels(small_lake, [second], instruction="stack the cups", success=None)
        catalog.refresh()
        shown = catalog.query(
            "SELECT episode_id, instruction, success FROM episodes ORDER BY num_steps LIMIT 1"
        )
        assert shown.to_pylist() == [
            {"episode_id": second, "instruction": "stack the cups", "success": None}
        ]

        restore(small_lake, "trajectories", before)
        catalog.refresh()
        assert pa.table(ids).equals(
            catalog.query("SELECT episode_id FROM episodes ORDER BY num_steps")
        )

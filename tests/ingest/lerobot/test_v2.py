import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ingest.errors import EpisodeError, SourceError
from ingest.source import SourceOptions
from tests.ingest.lerobot_data import (
    FPS,
    edit_info,
    edit_rows,
    open_source,
    read_all,
    reasons,
    replace_column,
    same_frames,
    v2_data,
    v2_video,
    write_lines,
    write_v2,
)

TOP = "observation.images.top"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_v2(tmp_path / "toy")


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_a_sound_dataset(tmp_path: Path, version: str) -> None:
    root = write_v2(tmp_path / "toy", version=version)
    source = open_source(root)
    assert source.format == f"lerobot-v{version}"
    assert source.findings() == []
    first, second = read_all(root)
    assert first.findings == second.findings == ()
    episode = second.episode
    assert (episode.dataset, episode.embodiment, episode.fps) == ("toy", "toy_arm", FPS)
    assert episode.instruction == episode.task == "open the drawer"
    assert episode.split == "train"
    assert episode.episode_id == f"toy/episode_000001-{episode.ingest_key[:12]}"
    assert episode.features["state"].dtype == np.float32
    assert episode.features["state"][6].tolist() == pytest.approx([106, 106.1, 106.2])
    assert episode.spec.feature("action").names == ("x", "y", "z")
    assert (episode.spec.cameras[0].height, episode.spec.cameras[0].width) == (48, 64)
    assert episode.provenance.files == (v2_data(1), v2_video(TOP, 1))
    same_frames(root, episode, v2_video(TOP, 1), range(7))


def test_counts_that_lie(root: Path) -> None:
    def lie(info: dict[str, Any]) -> None:
        info.update(total_episodes=50, total_frames=14983, total_tasks=9, total_videos=100)
        info.update(splits={"train": "0:50"})

    edit_info(root, lie)
    source = open_source(root)
    assert [f.reason for f in source.findings()] == ["wrong-count"] * 4 + ["wrong-split"]
    assert [r.episode.num_steps for r in read_all(root)] == [5, 7]
    assert read_all(root)[0].episode.split == "train"


def test_a_length_that_lies(root: Path) -> None:
    rows = [{"episode_index": 0, "tasks": ["pick the cube"], "length": 99}]
    write_lines(root / "meta/episodes.jsonl", rows)
    reading = read_all(root)[0]
    assert reading.episode.num_steps == 5
    assert reasons(reading.findings) == {"wrong-count"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f: f.update(shape=[4]), "wrong-shape"),
        (lambda f: f.update(dtype="float64"), "wrong-dtype"),
        (lambda f: f.update(names=["a", "b"]), "wrong-names"),
    ],
)
def test_declared_form_that_lies(
    root: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    edit_info(root, lambda info: change(info["features"]["observation.state"]))
    source = open_source(root)
    episode = source.read(source.entries()[0]).episode
    assert (episode.spec.feature("state").dtype, episode.spec.feature("state").shape) == (
        "float32",
        (3,),
    )
    assert reason in reasons(source.findings())


def test_undeclared_columns_are_kept_and_told(root: Path) -> None:
    def add(table: pa.Table) -> pa.Table:
        table = replace_column(table, "extra.force", np.arange(5, dtype=np.int16))
        return replace_column(table, "note", list("abcde"))

    edit_rows(root / v2_data(0), add)
    source = open_source(root)
    episode = source.read(source.entries()[0]).episode
    assert episode.features["extra_force"].tolist() == [0, 1, 2, 3, 4]
    assert episode.features["extra_force"].dtype == np.int16
    assert episode.features["note"].tolist() == list("abcde")
    assert [f.stream for f in source.findings() if f.reason == "undeclared-feature"] == [
        "extra_force",
        "note",
    ]


def test_a_declared_feature_without_column_is_told(root: Path) -> None:
    edit_rows(root / v2_data(0), lambda t: t.drop_columns(["action"]))
    reading = read_all(root)[0]
    assert "action" not in reading.episode.features
    assert [(f.reason, f.stream) for f in reading.findings] == [
        ("feature-without-column", "action")
    ]


def test_a_ragged_column_is_left_out_as_an_error(root: Path) -> None:
    ragged = [[1.0], [1.0, 2.0], [1.0], [1.0], [1.0]]
    edit_rows(root / v2_data(0), lambda t: replace_column(t, "action", ragged))
    reading = read_all(root)[0]
    assert "action" not in reading.episode.features
    assert [(f.severity, f.reason, f.stream) for f in reading.findings] == [
        ("error", "ragged-feature", "action")
    ]


def test_names_that_collide_stay_apart(root: Path) -> None:
    edit_rows(root / v2_data(0), lambda t: replace_column(t, "state", np.arange(5)))
    edit_rows(root / v2_data(0), lambda t: replace_column(t, "Observation_State", np.arange(5)))
    episode = read_all(root)[0].episode
    by_source = {f.source_name: f.name for f in episode.spec.features}
    assert by_source["observation.state"] == "state"
    assert len(set(by_source.values())) == len(by_source)
    assert episode.features[by_source["state"]].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.unlink(), "missing-data-file"),
        (lambda path: path.write_bytes(b""), "empty-file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "unfinished-parquet"),
        (lambda path: path.write_bytes(b"PAR1" + b"\0" * 50 + b"PAR1"), "unreadable-file"),
    ],
)
def test_a_bad_data_file_costs_its_episode_only(
    root: Path, damage: Callable[[Path], object], reason: str
) -> None:
    damage(root / v2_data(0))
    source = open_source(root)
    first, second = source.entries()
    with pytest.raises(EpisodeError) as raised:
        source.read(first)
    assert raised.value.reason == reason
    assert "episode_000000.parquet" in str(raised.value)
    assert source.read(second).episode.num_steps == 7


def test_no_rows_at_all(root: Path) -> None:
    edit_rows(root / v2_data(0), lambda t: t.slice(0, 0))
    source = open_source(root)
    with pytest.raises(EpisodeError) as raised:
        source.read(source.entries()[0])
    assert raised.value.reason == "missing-rows"


def test_without_times_the_rate_makes_the_grid(root: Path) -> None:
    edit_rows(root / v2_data(0), lambda t: t.drop_columns(["timestamp"]))
    reading = read_all(root)[0]
    assert reading.episode.timestamps_ns.tolist() == [0, 10**8, 2 * 10**8, 3 * 10**8, 4 * 10**8]
    assert {"no-timestamps", "feature-without-column"} == reasons(reading.findings)


def test_without_times_and_rate_the_user_is_asked(root: Path) -> None:
    edit_rows(root / v2_data(0), lambda t: t.drop_columns(["timestamp"]))
    edit_info(root, lambda info: info.pop("fps"))
    source = open_source(root)
    assert "no-rate" in reasons(source.findings())
    with pytest.raises(EpisodeError, match="--fps") as raised:
        source.read(source.entries()[0])
    assert raised.value.reason == "no-time"
    given = open_source(root, SourceOptions(fps=4.0, dataset="mine", embodiment="bot"))
    episode = given.read(given.entries()[0]).episode
    assert (episode.fps, episode.dataset, episode.embodiment) == (4.0, "mine", "bot")
    assert episode.timestamps_ns.tolist() == [0, 250_000_000, 500_000_000, 750_000_000, 10**9]


def test_a_cut_episode_list_gives_the_lines_before_the_cut(root: Path) -> None:
    path = root / "meta/episodes.jsonl"
    path.write_text(path.read_text()[:-15])
    source = open_source(root)
    assert [entry.locator for entry in source.entries()] == ["episode_000000"]
    (bad,) = [f for f in source.findings() if f.reason == "bad-json"]
    assert (bad.severity, bad.where) == ("error", "meta/episodes.jsonl line 2")
    assert "orphan-file" in reasons(source.findings())


def test_an_unsorted_list_with_repeats(root: Path) -> None:
    rows = [
        {"episode_index": 1, "tasks": [], "length": 7},
        {"episode_index": 0, "tasks": [], "length": 5},
        {"episode_index": 1, "tasks": [], "length": 3},
        {"episode_index": "x", "tasks": [], "length": 3},
    ]
    write_lines(root / "meta/episodes.jsonl", rows)
    source = open_source(root)
    assert [(e.locator, e.num_steps) for e in source.entries()] == [
        ("episode_000000", 5),
        ("episode_000001", 7),
    ]
    assert {"duplicate-episode", "unsorted-episodes", "bad-episode-list"} == reasons(
        source.findings()
    )


@pytest.mark.parametrize("content", [None, "", "no json\n"])
def test_without_an_episode_list_the_source_is_refused(root: Path, content: str | None) -> None:
    path = root / "meta/episodes.jsonl"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(SourceError, match=r"episodes\.jsonl"):
        open_source(root)


def test_metadata_only(root: Path) -> None:
    for path in [*root.glob("data/**/*.parquet"), *root.glob("videos/**/*.mp4")]:
        path.unlink()
    source = open_source(root)
    assert {f.name for f in source.spec.features} >= {"state", "action"}
    assert {"missing-data-file", "camera-without-files"} == reasons(source.findings())
    for entry in source.entries():
        with pytest.raises(EpisodeError):
            source.read(entry)


def test_keys_follow_the_content_not_the_place(root: Path, tmp_path: Path) -> None:
    again = write_v2(tmp_path / "elsewhere" / "toy")
    keys = [entry.ingest_key for entry in open_source(root).entries()]
    assert keys == [entry.ingest_key for entry in open_source(again).entries()]
    edit_rows(again / v2_data(0), lambda t: replace_column(t, "task_index", [1] * 5))
    changed = [entry.ingest_key for entry in open_source(again).entries()]
    assert changed[0] != keys[0]
    assert changed[1] == keys[1]


def test_a_wrong_index_inside_the_file_is_told(root: Path) -> None:
    edit_rows(root / v2_data(0), lambda t: replace_column(t, "episode_index", [7] * 5))
    assert reasons(read_all(root)[0].findings) == {"wrong-episode-index"}


def test_chunk_folders_follow_the_chunk_size(root: Path) -> None:
    for name in (v2_data(1), v2_video(TOP, 1)):
        old = root / name
        new = root / name.replace("chunk-000", "chunk-001")
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)
    edit_info(root, lambda info: info.update(chunks_size=1))
    assert [r.episode.num_steps for r in read_all(root)] == [5, 7]
    assert json.loads((root / "meta/info.json").read_text())["chunks_size"] == 1

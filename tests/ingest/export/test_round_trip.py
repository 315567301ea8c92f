"""lake -> export -> ingest is the identity."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.export.lerobot import layout_v3
from ingest.export.lerobot.schema import Version
from lake import Episode
from tests.ingest.export.lakes import (
    episodes_of,
    exported,
    ingested,
    lake_of,
    same_cameras,
    same_episode,
)
from tests.ingest.lerobot_data import (
    SCHEMA,
    edit_info,
    edit_rows,
    replace_column,
    v2_data,
    v2_video,
    write_lines,
    write_v2,
    write_v3,
    write_video,
)

TOP, WRIST = "observation.images.top", "observation.images.wrist"
START_CODE = re.compile(b"\x00?\x00\x00\x01")
VERSIONS: tuple[Version, ...] = ("3.0", "2.1")


def same_lakes(ours: list[Episode], theirs: list[Episode]) -> None:
    """Nothing differs that a source tells, packets included."""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        same_episode(a, b)
        assert a.spec == b.spec
        assert a.content_sha256() == b.content_sha256()
        # Where an episode starts inside a group of pictures, its file has those before it too.
        new = set(b.provenance.findings) - set(a.provenance.findings)
        assert all("more-frames" in finding for finding in new)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("b_frames", [0, 2])
def test_a_dataset_comes_back(tmp_path: Path, version: Version, b_frames: int) -> None:
    lengths = (9, 7, 12)
    source = write_v2(tmp_path / "toy", lengths, (TOP, WRIST))
    for index, steps in enumerate(lengths):
        write_video(source / v2_video(TOP, index), steps, first=index * 20, b_frames=b_frames)
    before = ingested(source, tmp_path / "before.lake")
    report = exported(before, tmp_path / "out", version)
    (written,) = report.datasets.values()
    assert (written.episodes, written.steps, written.frames) == (3, 28, 56)
    assert report.findings == ()
    after = episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))
    same_lakes(episodes_of(before), after)
    assert all(episode.provenance.findings == () for episode in after)


@pytest.mark.parametrize("b_frames", [0, 2])
def test_episodes_that_start_inside_a_group_of_pictures_come_back(
    tmp_path: Path, b_frames: int
) -> None:
    source = write_v3(tmp_path / "toy", (8, 13, 6), b_frames=b_frames)
    before = ingested(source, tmp_path / "before.lake")
    starts = [episode.cameras["top"].index.packet_frame[0] for episode in episodes_of(before)]
    assert min(starts) < 0
    exported(before, tmp_path / "out")
    after = ingested(tmp_path / "out", tmp_path / "after.lake")
    same_lakes(episodes_of(before), episodes_of(after))


def test_episodes_share_files_up_to_their_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_v3, "_MB", 1200)  # bytes, of what is called MB
    before = ingested(write_v3(tmp_path / "toy", (9, 8, 4, 6, 9, 5)), tmp_path / "before.lake")
    exported(before, tmp_path / "out", data_file_mb=2, video_file_mb=4)
    data = sorted((tmp_path / "out/data").rglob("*.parquet"))
    videos = sorted((tmp_path / "out/videos").rglob("*.mp4"))
    assert 1 < len(data) < 6
    assert 1 < len(videos) < 6
    lists = sorted((tmp_path / "out/meta/episodes").rglob("*.parquet"))
    rows = [row for path in lists for row in pq.read_table(path).to_pylist()]
    assert [row["episode_index"] for row in rows] == list(range(6))
    for row in rows:
        where = tmp_path / "out/data/chunk-000" / f"file-{row['data/file_index']:03d}.parquet"
        stored = pq.read_table(where)["episode_index"].to_pylist()
        assert stored.count(row["episode_index"]) == row["length"]
    after = ingested(tmp_path / "out", tmp_path / "after.lake")
    same_lakes(episodes_of(before), episodes_of(after))


def test_files_are_typed_as_lerobot_types_them(tmp_path: Path) -> None:
    before = ingested(write_v2(tmp_path / "toy", (5, 7, 4)), tmp_path / "before.lake")
    exported(before, tmp_path / "out")
    file = pq.ParquetFile(tmp_path / "out/data/chunk-000/file-000.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(3)] == [5, 7, 4]
    schema = file.schema_arrow
    assert schema.names == SCHEMA.names
    assert schema.field("action").type.list_size == 3
    assert schema.field("timestamp").type == pa.float32()
    known = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert known["action"] == {
        "feature": {"dtype": "float32", "_type": "Value"},
        "length": 3,
        "_type": "List",
    }
    tasks = pq.read_table(tmp_path / "out/meta/tasks.parquet")
    pandas = json.loads(tasks.schema.metadata[b"pandas"])
    assert pandas["index_columns"] == ["task"]
    assert tasks["task_index"].to_pylist() == list(range(tasks.num_rows))
    row = pq.read_table(tmp_path / "out/meta/episodes/chunk-000/file-000.parquet").to_pylist()[1]
    assert (row["dataset_from_index"], row["dataset_to_index"]) == (5, 12)
    assert row[f"videos/{TOP}/from_timestamp"] == 0.5
    assert row[f"videos/{TOP}/to_timestamp"] == 1.2
    assert len(row["stats/action/q01"]) == 3
    assert np.shape(row[f"stats/{TOP}/mean"]) == (3, 1, 1)


def columns(steps: int) -> Mapping[str, Any]:
    """One column of each kind that LeRobot has."""
    numbers = np.arange(steps)
    return {
        "observation.grid": pa.array(
            (numbers[:, None, None] + np.ones((steps, 2, 3))).tolist(),
            pa.list_(pa.list_(pa.float64())),
        ),
        "next.reward": pa.array((numbers / 7).astype(np.float32)),
        "next.done": pa.array([step == steps - 1 for step in range(steps)]),
        "observation.contacts": pa.array([[True, False]] * steps, pa.list_(pa.bool_(), 2)),
        "observation.counts": pa.array(numbers.astype(np.int16)),
        "note": pa.array([f"nóte {step}" for step in range(steps)]),
    }


DECLARED = {
    "observation.grid": ("float64", [2, 3]),
    "next.reward": ("float32", [1]),
    "next.done": ("bool", [1]),
    "observation.contacts": ("bool", [2]),
    "observation.counts": ("int16", [1]),
    "note": ("string", [1]),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_columns_of_every_kind_come_back(tmp_path: Path, version: Version) -> None:
    source = write_v2(tmp_path / "toy", (5, 7), ())
    for index, steps in enumerate((5, 7)):

        def add(table: pa.Table, steps: int = steps) -> pa.Table:
            for name, values in columns(steps).items():
                table = table.append_column(name, values)
            return table

        edit_rows(source / v2_data(index), add)
    declared = {k: {"dtype": d, "shape": s, "names": None} for k, (d, s) in DECLARED.items()}
    edit_info(source, lambda info: info["features"].update(declared))
    before = ingested(source, tmp_path / "before.lake")
    exported(before, tmp_path / "out", version)
    after = ingested(tmp_path / "out", tmp_path / "after.lake")
    same_lakes(episodes_of(before), episodes_of(after))


@pytest.mark.parametrize("version", VERSIONS)
def test_several_tasks_and_annotations_come_back(tmp_path: Path, version: Version) -> None:
    source = write_v2(tmp_path / "toy", (5, 6))
    texts = ["pick", "place", "valid", "wait"]
    rows = [{"task_index": index, "task": text} for index, text in enumerate(texts)]
    write_lines(source / "meta/tasks.jsonl", rows)
    lists = [
        {"episode_index": 0, "tasks": ["place", "pick"], "length": 5},
        {"episode_index": 1, "tasks": ["wait"], "length": 6},
    ]
    write_lines(source / "meta/episodes.jsonl", lists)
    of_task = ([1, 1, 0, 0, 1], [3] * 6)
    of_validity = ([2, 2, 2, 2, 2], [2, 2, 3, 3, 2, 2])
    for index in range(2):

        def edit(table: pa.Table, index: int = index) -> pa.Table:
            table = replace_column(table, "task_index", of_task[index], pa.int64())
            return table.append_column(
                "annotation.human.validity", pa.array(of_validity[index], pa.int64())
            )

        edit_rows(source / v2_data(index), edit)
    validity = {"dtype": "int64", "shape": [1], "names": None}
    edit_info(source, lambda info: info["features"].update({"annotation.human.validity": validity}))
    parts = {
        "state": {"arm": {"start": 0, "end": 2, "rotation_type": "axis_angle"}},
        "action": {"arm": {"start": 0, "end": 3, "absolute": False, "range": [0, 1]}},
        "video": {"front": {"original_key": TOP}},
        "annotation": {"human.validity": {}},
    }
    (source / "meta/modality.json").write_text(json.dumps(parts))
    before = ingested(source, tmp_path / "before.lake")
    exported(before, tmp_path / "out", version)
    assert json.loads((tmp_path / "out/meta/modality.json").read_text()) == parts
    after = ingested(tmp_path / "out", tmp_path / "after.lake")
    same_lakes(episodes_of(before), episodes_of(after))


@pytest.mark.parametrize("version", VERSIONS)
def test_part_of_a_dataset_is_numbered_anew(tmp_path: Path, version: Version) -> None:
    before = ingested(write_v2(tmp_path / "toy", (5, 7, 4, 6)), tmp_path / "before.lake")
    chosen = episodes_of(before)[1::2]  # both have task 1
    exported(before, tmp_path / "out", version, episode_ids=[e.episode_id for e in chosen])
    after = episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))
    for number, (a, b) in enumerate(zip(chosen, after, strict=True)):
        same_episode(a, b, but=("episode_index", "index", "task_index"))
        assert set(b.features["episode_index"].tolist()) == {number}
        assert set(b.features["task_index"].tolist()) == {0}
    assert after[1].features["index"].tolist() == list(range(7, 13))


@pytest.mark.parametrize("codec", ["png", "mjpeg", "h264"])
@pytest.mark.parametrize("version", VERSIONS)
def test_episodes_of_another_format(
    tmp_path: Path, version: Version, codec: str, make_filmed_episode: Any
) -> None:
    episodes = [
        make_filmed_episode(number, steps=11, codec=codec, success=None, task=None, tags=())
        for number in range(2)
    ]
    exported(lake_of(tmp_path / "before.lake", episodes), tmp_path / "out", version)
    after = episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))
    for a, b in zip(episodes, after, strict=True):
        assert b.features["state"].tobytes() == a.features["state"].tobytes()
        assert b.features["note"].tolist() == a.features["note"].tolist()
        assert b.instruction == a.instruction
        assert np.abs(b.timestamps_ns - a.timestamps_ns).max() < 100  # LeRobot's are float32
        same_cameras(a, b)
        # NAL units are the same; how long the start codes between them are is of no account.
        before, after_it = (bytes(e.cameras["top"].payload) for e in (a, b))
        assert START_CODE.split(after_it) == START_CODE.split(before)

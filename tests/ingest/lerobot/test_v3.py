from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ingest.errors import EpisodeError, SourceError
from tests.ingest.lerobot_data import (
    FPS,
    TASKS,
    V3_DATA,
    V3_EPISODES,
    V3_TASKS,
    decoded,
    edit_info,
    edit_rows,
    open_source,
    plain_decode,
    read_all,
    reasons,
    replace_column,
    v3_video,
    write_parquet,
    write_tasks,
    write_v3,
    write_video,
)

TOP = "observation.images.top"
LENGTHS = (5, 7, 4)
STARTS = (0, 5, 12)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_v3(tmp_path / "toy", LENGTHS)


def edit_list(root: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the rows of the episode list in place."""

    def rewrite(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        change(rows)
        return pa.Table.from_pylist(rows)

    edit_rows(root / V3_EPISODES, rewrite)


def check_sound(root: Path, *, camera: str = TOP, name: str = "top", file: int = 0) -> None:
    """Each episode has its own values, task and, bit for bit, its own frames."""
    truth = plain_decode(root / v3_video(camera, file))
    for index, reading in enumerate(read_all(root)):
        episode = reading.episode
        assert episode.num_steps == LENGTHS[index]
        assert episode.features["state"][:, 0].tolist() == [
            index * 100 + step for step in range(LENGTHS[index])
        ]
        assert episode.instruction == TASKS[index % 2]
        shown = episode.cameras[name].index.step_to_frame
        frames = decoded(episode.cameras[name])
        for step in range(episode.num_steps):
            assert (frames[int(shown[step])] == truth[STARTS[index] + step]).all(), (index, step)


@pytest.mark.parametrize("b_frames", [0, 2])
@pytest.mark.parametrize("row_group_size", [None, 3, 5, 1])
def test_a_sound_dataset_in_any_row_groups(
    tmp_path: Path, b_frames: int, row_group_size: int | None
) -> None:
    root = write_v3(tmp_path / "toy", LENGTHS, b_frames=b_frames, row_group_size=row_group_size)
    source = open_source(root)
    assert source.format == "lerobot-v3.0"
    assert source.findings() == []
    assert all(reading.findings == () for reading in read_all(root))
    check_sound(root)


def test_episodes_can_be_read_in_any_order(root: Path) -> None:
    source = open_source(root)
    entries = list(source.entries())
    in_order = [source.read(entry).episode.content_sha256() for entry in entries]
    backwards = [source.read(entry).episode.content_sha256() for entry in reversed(entries)]
    assert in_order == backwards[::-1]


def test_task_rows_in_any_order_and_an_unnamed_index(root: Path) -> None:
    write_tasks(root, {1: TASKS[1], 0: TASKS[0]}, text_column="__index_level_0__")
    assert reasons(open_source(root).findings()) == {"unsorted-tasks"}
    check_sound(root)


def test_without_a_task_table_the_list_is_used(root: Path) -> None:
    (root / V3_TASKS).unlink()
    check_sound(root)
    assert reasons(open_source(root).findings()) == {"missing-file"}
    assert all(reasons(r.findings) == {"unknown-task"} for r in read_all(root))


def test_list_rows_in_any_order(root: Path) -> None:
    edit_list(root, lambda rows: rows.reverse())
    assert reasons(open_source(root).findings()) == {"unsorted-episodes"}
    check_sound(root)


def test_rows_shuffled_between_episodes_are_gathered_in_file_order(root: Path) -> None:
    # Interleaved: rows of episode 0 and 1 alternate, each still in its own order.
    order = [0, 5, 1, 6, 2, 7, 3, 8, 4, 9, 10, 11, 12, 13, 14, 15]
    edit_rows(root / V3_DATA, lambda t: t.take(pa.array(order)))
    assert reasons(read_all(root)[0].findings) == {"scattered-rows"}
    check_sound(root)


@pytest.mark.parametrize(
    "drop",
    [
        ["dataset_from_index", "dataset_to_index"],
        ["length"],
        ["tasks"],
        ["data/chunk_index", "data/file_index"],
        [f"videos/{TOP}/to_timestamp"],
    ],
)
def test_columns_the_list_can_do_without(root: Path, drop: list[str]) -> None:
    edit_rows(root / V3_EPISODES, lambda t: t.drop_columns(drop))
    check_sound(root)


def test_rows_without_episode_index_are_found_by_range(root: Path) -> None:
    edit_rows(root / V3_DATA, lambda t: t.drop_columns(["episode_index"]))
    check_sound(root)


def test_ranges_that_lie_do_no_harm(root: Path) -> None:
    def lie(rows: list[dict[str, Any]]) -> None:
        rows[1]["dataset_from_index"] += 2

    edit_list(root, lie)
    assert reasons(open_source(root).findings()) == {"row-range-tiling", "wrong-count"}
    check_sound(root)


def test_ends_one_frame_early_do_no_harm(root: Path) -> None:
    def lie(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row[f"videos/{TOP}/to_timestamp"] -= 1 / FPS

    edit_list(root, lie)
    (finding,) = open_source(root).findings()
    assert (finding.severity, finding.reason) == ("info", "short-to-timestamp")
    assert "3 episodes" in finding.detail
    check_sound(root)


@pytest.mark.parametrize("drift", [1e-4, -1e-4, 0.02, -0.02])
def test_float_drift_of_starts_does_no_harm(root: Path, drift: float) -> None:
    def lie(rows: list[dict[str, Any]]) -> None:
        for row in rows[1:]:
            row[f"videos/{TOP}/from_timestamp"] += drift

    edit_list(root, lie)
    check_sound(root)
    assert reasons(open_source(root).findings()) == set()


def test_a_start_off_by_a_frame_is_told_once_and_taken_as_declared(root: Path) -> None:
    def lie(rows: list[dict[str, Any]]) -> None:
        rows[1][f"videos/{TOP}/from_timestamp"] -= 1 / FPS

    edit_list(root, lie)
    found = [f for f in open_source(root).findings() if f.reason == "video-range-tiling"]
    assert [f.episode for f in found] == ["episode_000001", "episode_000002"]
    readings = read_all(root)
    truth = plain_decode(root / v3_video(TOP))
    frames = decoded(readings[1].episode.cameras["top"])
    assert (frames[0] == truth[4]).all()
    # Episode 0 now ends where episode 1 is said to start: its last step has no frame of its own.
    assert readings[0].episode.cameras["top"].index.step_to_frame.tolist() == [0, 1, 2, 3, -1]
    assert reasons(readings[0].findings) == {"steps-without-frame"}
    assert reasons(readings[1].findings) == {"more-frames"}


def test_a_start_between_frames_is_told(root: Path) -> None:
    def lie(rows: list[dict[str, Any]]) -> None:
        rows[2][f"videos/{TOP}/from_timestamp"] += 0.4 / FPS

    edit_list(root, lie)
    assert reasons(read_all(root)[2].findings) == {"start-off-grid"}
    check_sound(root)


def test_a_file_with_fewer_frames_than_rows(root: Path) -> None:
    write_video(root / v3_video(TOP), sum(LENGTHS) - 6)
    first, second, third = read_all(root)
    assert first.findings == ()
    assert second.episode.cameras["top"].index.step_to_frame.tolist() == [0, 1, 2, 3, 4, -1, -1]
    assert third.episode.cameras == {}
    assert [(f.severity, f.reason) for f in third.findings] == [("error", "no-frames")]


def test_a_video_cut_short_gives_the_frames_before_the_cut(root: Path) -> None:
    path = root / v3_video(TOP)
    whole = plain_decode(path)
    data = path.read_bytes()
    # Put the index in front, as recorders do, so that only the end of the file is lost.
    import av

    with (
        av.open(str(path)) as source,
        av.open(
            str(path.with_suffix(".fast.mp4")), "w", options={"movflags": "faststart"}
        ) as target,
    ):
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                target.mux(packet)
    fast = path.with_suffix(".fast.mp4").read_bytes()
    path.with_suffix(".fast.mp4").unlink()
    path.write_bytes(fast[: -len(data) // 8])
    first, *_ = read_all(root)
    assert "damaged-video" in reasons(first.findings)
    frames = decoded(first.episode.cameras["top"])
    assert (frames[0] == whole[0]).all()


def test_each_camera_has_its_own_file_and_start(tmp_path: Path) -> None:
    wrist = "observation.images.wrist"
    root = write_v3(tmp_path / "toy", LENGTHS, cameras=(TOP, wrist))
    # The wrist camera: episode 0 alone in file 1, episodes 1 and 2 in file 0.
    (root / v3_video(wrist)).unlink()
    write_video(root / v3_video(wrist, 1), 5, first=50)
    write_video(root / v3_video(wrist, 0), 11, first=90)

    def move(rows: list[dict[str, Any]]) -> None:
        for row, file, start in zip(rows, (1, 0, 0), (0, 0, 7), strict=True):
            row[f"videos/{wrist}/file_index"] = file
            row[f"videos/{wrist}/from_timestamp"] = start / FPS
            row[f"videos/{wrist}/to_timestamp"] = (start + row["length"]) / FPS

    edit_list(root, move)
    assert open_source(root).findings() == []
    check_sound(root)
    truth = {file: plain_decode(root / v3_video(wrist, file)) for file in (0, 1)}
    for index, (file, start) in enumerate([(1, 0), (0, 0), (0, 7)]):
        reading = read_all(root)[index]
        assert reading.findings == ()
        frames = decoded(reading.episode.cameras["wrist"])
        for step in range(LENGTHS[index]):
            assert (frames[step] == truth[file][start + step]).all()


@pytest.mark.parametrize("value", [None, float("nan")])
def test_an_episode_without_a_place_for_its_video(root: Path, value: float | None) -> None:
    def lie(rows: list[dict[str, Any]]) -> None:
        rows[1][f"videos/{TOP}/from_timestamp"] = value

    edit_list(root, lie)
    first, second, _ = read_all(root)
    assert set(first.episode.cameras) == {"top"}
    assert second.episode.cameras == {}
    assert [(f.severity, f.reason) for f in second.findings] == [("error", "missing-video")]


def test_orphan_rows_and_files_are_told_and_not_read(root: Path) -> None:
    edit_list(root, lambda rows: rows.pop())
    write_parquet(root / "data/chunk-000/file-007.parquet", pa.table({"episode_index": [3]}))
    write_video(root / v3_video(TOP, 9), 2)
    source = open_source(root)
    readings = [source.read(entry) for entry in source.entries()]
    assert [reading.episode.num_steps for reading in readings] == [5, 7]
    found = {f.reason: f for f in source.findings() if f.reason.startswith("orphan")}
    assert set(found) == {"orphan-rows", "orphan-file"}
    assert "4 of 16 rows" in found["orphan-rows"].detail
    files = [f for f in source.findings() if f.reason == "orphan-file"]
    assert [f.where for f in files] == ["data", "videos"]


def test_an_episode_whose_rows_are_not_in_its_file(root: Path) -> None:
    edit_rows(root / V3_DATA, lambda t: t.slice(0, 12))
    source = open_source(root)
    *good, lost = source.entries()
    assert [source.read(entry).episode.num_steps for entry in good] == [5, 7]
    with pytest.raises(EpisodeError) as raised:
        source.read(lost)
    assert raised.value.reason == "missing-rows"


def test_an_unfinished_list_file_costs_its_episodes_only(root: Path) -> None:
    second = root / "meta/episodes/chunk-000/file-001.parquet"
    second.write_bytes((root / V3_EPISODES).read_bytes()[:-9])
    (bad,) = open_source(root).findings()
    assert (bad.severity, bad.reason) == ("error", "unreadable-file")
    assert bad.where == "meta/episodes/chunk-000/file-001.parquet"
    check_sound(root)


@pytest.mark.parametrize("content", [None, b"", b"PAR1"])
def test_without_an_episode_list_the_source_is_refused(root: Path, content: bytes | None) -> None:
    (root / V3_EPISODES).unlink()
    if content is not None:
        (root / V3_EPISODES).write_bytes(content)
    with pytest.raises(SourceError, match="episodes"):
        open_source(root)


def test_stats_columns_are_not_needed_and_not_read(root: Path) -> None:
    edit_rows(
        root / V3_EPISODES,
        lambda t: replace_column(t, "stats/action/min", [[np.nan]] * 3, pa.list_(pa.float64())),
    )
    check_sound(root)


def test_a_flat_layout_by_its_own_template(root: Path) -> None:
    (root / V3_DATA).rename(root / "data/part-00000.parquet")
    edit_info(root, lambda info: info.update(data_path="data/part-{file_index:05d}.parquet"))
    check_sound(root)
    assert open_source(root).findings() == []


def test_numbers_that_pandas_made_floats(root: Path) -> None:
    def to_floats(table: pa.Table) -> pa.Table:
        whole = [f.name for f in table.schema if pa.types.is_integer(f.type)]
        for name in whole:
            table = replace_column(table, name, table[name].cast(pa.float64()))
        return table

    before = [reading.episode.content_sha256() for reading in read_all(root)]
    edit_rows(root / V3_EPISODES, to_floats)
    assert [reading.episode.content_sha256() for reading in read_all(root)] == before


def test_videos_on_another_disk(root: Path, tmp_path: Path) -> None:
    (root / "videos").rename(tmp_path / "elsewhere")
    (root / "videos").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/back").symlink_to(root)
    source = open_source(root)
    assert "camera-without-files" not in reasons(source.findings())
    assert all(reading.episode.cameras for reading in read_all(root))

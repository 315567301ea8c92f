"""From folders to a lake: counts, quarantine, repeats, stops."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.errors import EpisodeError, SourceError, UnknownFormatError
from ingest.pipeline import ingest_sources
from ingest.report import IngestProgress
from lake import Lake, create_lake, read_episode, visible_episodes
from tests.ingest.lerobot_data import (
    decoded,
    edit_info,
    edit_rows,
    plain_decode,
    read_all,
    replace_column,
    v2_data,
    v2_video,
    write_v2,
    write_v3,
)

TOP = "observation.images.top"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return create_lake(tmp_path / "robots.lake")


def quarantine(lake: Lake) -> list[dict[str, str]]:
    lake.refresh()
    rows: list[dict[str, str]] = lake.dataset("quarantine").to_table().to_pylist()
    return rows


def test_episodes_go_in_as_read(tmp_path: Path, lake: Lake) -> None:
    root = write_v2(tmp_path / "toy")
    report = ingest_sources([root], lake)
    (counts,) = report.sources
    assert (counts.written, counts.present, counts.quarantined) == (2, 0, 0)
    assert (counts.steps, counts.frames) == (12, 12)
    assert (counts.format, counts.dataset) == ("lerobot-v2.1", "toy")
    for reading in read_all(root):
        stored = read_episode(lake, reading.episode.episode_id)
        assert stored.content_sha256() == reading.episode.content_sha256()
        assert stored.instruction == reading.episode.instruction
        assert stored.provenance == reading.episode.provenance
    frames = decoded(stored.cameras["top"])
    truth = plain_decode(root / v2_video(TOP, 1))
    assert all((frames[n] == truth[n]).all() for n in range(7))


def test_a_second_ingest_reads_nothing(
    tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_v3(tmp_path / "toy")
    ingest_sources([root], lake)
    monkeypatch.setattr("ingest.pipeline.read_episode", _fail)
    (counts,) = ingest_sources([root], lake).sources
    assert (counts.written, counts.present) == (0, 3)
    assert visible_episodes(lake).num_rows == 3


def _fail(*args: object) -> None:
    raise AssertionError(args)


def test_one_source_given_twice_is_written_once(tmp_path: Path, lake: Lake) -> None:
    root = write_v2(tmp_path / "toy")
    first, second = ingest_sources([root, root], lake).sources
    assert (first.written, second.written, second.present) == (2, 0, 2)
    assert visible_episodes(lake).num_rows == 2


def test_what_cannot_be_read_is_quarantined_with_its_reason(tmp_path: Path, lake: Lake) -> None:
    sound = write_v2(tmp_path / "in/sound")
    half = write_v2(tmp_path / "in/half", lengths=(3, 4, 5))
    (half / v2_data(1)).write_bytes(b"")
    (half / v2_video(TOP, 2)).write_bytes(b"garbage")
    dead = write_v2(tmp_path / "in/dead")
    (dead / "meta/info.json").write_text("")
    report = ingest_sources([tmp_path / "in"], lake)
    by_name = {Path(s.source).name: s for s in report.sources}
    assert (by_name["sound"].written, by_name["sound"].quarantined) == (2, 0)
    assert (by_name["half"].written, by_name["half"].quarantined) == (2, 1)
    assert by_name["half"].streams_quarantined == 1
    assert (by_name["dead"].written, by_name["dead"].quarantined) == (0, 1)
    assert report.quarantined == 3
    rows = {
        (Path(r["source"]).name, r["episode"], r["stream"], r["reason"]) for r in quarantine(lake)
    }
    assert rows == {
        ("half", "episode_000001", "", "empty-file"),
        ("half", "episode_000002", TOP, "bad-video"),
        ("dead", "", "", "empty-file"),
    }
    assert all(row["detail"] for row in quarantine(lake))
    assert sound.name in by_name

    ingest_sources([tmp_path / "in"], lake)
    assert len(quarantine(lake)) == 3
    assert visible_episodes(lake).num_rows == 4


def test_a_damaged_part_of_the_episode_list_is_quarantined(tmp_path: Path, lake: Lake) -> None:
    root = write_v2(tmp_path / "toy")
    path = root / "meta/episodes.jsonl"
    path.write_text(path.read_text()[:-15])
    (counts,) = ingest_sources([root], lake).sources
    assert (counts.written, counts.quarantined) == (1, 1)
    (row,) = quarantine(lake)
    assert (row["episode"], row["reason"]) == ("", "bad-json")
    assert "episodes.jsonl line 2" in row["detail"]
    with pytest.raises(SourceError, match=r"episodes\.jsonl line 2"):
        ingest_sources([root], lake, on_error="fail")


def test_what_was_repaired_goes_in_later(tmp_path: Path, lake: Lake) -> None:
    root = write_v2(tmp_path / "toy")
    good = (root / v2_data(1)).read_bytes()
    (root / v2_data(1)).write_bytes(good[:-30])
    ingest_sources([root], lake)
    (root / v2_data(1)).write_bytes(good)
    (counts,) = ingest_sources([root], lake).sources
    assert (counts.written, counts.present, counts.quarantined) == (1, 1, 0)


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda root: (root / v2_data(1)).unlink(), EpisodeError),
        (lambda root: (root / v2_video(TOP, 1)).unlink(), EpisodeError),
        (lambda root: (root / "meta/info.json").write_text("{"), SourceError),
    ],
)
def test_on_error_fail_stops_at_the_first(
    tmp_path: Path, lake: Lake, damage: Callable[[Path], object], error: type[Exception]
) -> None:
    root = write_v2(tmp_path / "toy")
    damage(root)
    with pytest.raises(error):
        ingest_sources([root], lake, on_error="fail", commit_episodes=1)
    assert quarantine(lake) == []
    assert visible_episodes(lake).num_rows == (error is EpisodeError)


def test_a_bad_path_is_told_before_anything_is_written(tmp_path: Path, lake: Lake) -> None:
    root = write_v2(tmp_path / "toy")
    with pytest.raises(UnknownFormatError):
        ingest_sources([root, tmp_path / "nothing"], lake)
    assert visible_episodes(lake).num_rows == 0


def test_findings_travel_with_the_episode_and_are_counted(tmp_path: Path, lake: Lake) -> None:
    root = write_v2(tmp_path / "toy", lengths=(3, 3, 3))
    times = pa.array([0.0, 0.2, 0.1], pa.float32())
    for index in range(3):
        edit_rows(root / v2_data(index), lambda t: replace_column(t, "timestamp", times))
    edit_info(root, lambda info: info.update(total_frames=1))
    (counts,) = ingest_sources([root], lake).sources
    groups = {reason: group.count for (_, reason, _), group in counts.groups.items()}
    assert groups == {"backward-timestamps": 3, "wrong-count": 1}
    (episode, *_) = [
        read_episode(lake, i) for i in visible_episodes(lake)["episode_id"].to_pylist()
    ]
    assert "backward-timestamps" in episode.provenance.findings[0]
    assert episode.timestamps_ns.tolist() == [0, 200000003, 100000001]


def test_progress_counts_every_episode(tmp_path: Path, lake: Lake) -> None:
    root = write_v2(tmp_path / "toy", lengths=(2, 2, 2), cameras=())
    (root / v2_data(1)).unlink()
    seen: list[tuple[int, int, int]] = []

    def progress(state: IngestProgress) -> None:
        seen.append((state.done, state.total, state.source.written))

    ingest_sources([root], lake, progress=progress)
    assert seen == [(1, 3, 1), (2, 3, 1), (3, 3, 2)]


def test_two_datasets_of_one_name_and_content_place_are_told_apart(
    tmp_path: Path, lake: Lake
) -> None:
    first, second = write_v2(tmp_path / "a/toy"), write_v2(tmp_path / "b/toy", lengths=(6, 8))
    one, two = ingest_sources([first, second], lake).sources
    assert (one.written, two.written) == (2, 2)
    assert len(set(visible_episodes(lake)["episode_id"].to_pylist())) == 4


def test_an_episode_is_not_taken_for_its_own_older_self(tmp_path: Path, lake: Lake) -> None:
    root = write_v2(tmp_path / "toy", lengths=(3, 3, 3), cameras=())
    (counts,) = ingest_sources([root], lake, commit_episodes=1).sources
    assert (counts.written, counts.groups) == (3, {})


def test_a_changed_episode_goes_in_beside_the_older_one_and_is_told(
    tmp_path: Path, lake: Lake
) -> None:
    root = write_v2(tmp_path / "toy", cameras=())
    ingest_sources([root], lake)
    edit_rows(root / v2_data(1), lambda t: replace_column(t, "task_index", [0] * 7))
    (counts,) = ingest_sources([root], lake).sources
    assert (counts.written, counts.present) == (1, 1)
    (group,) = [g for (_, reason, _), g in counts.groups.items() if reason == "changed-episode"]
    assert (group.count, group.first.episode) == (1, "episode_000001")
    assert "toy/episode_000001-" in group.first.detail
    lake.refresh()
    assert visible_episodes(lake).num_rows == 3


def test_episodes_that_another_ingest_commits_first_are_told(tmp_path: Path, lake: Lake) -> None:
    root = write_v2(tmp_path / "toy", cameras=())

    def overtake(progress: IngestProgress) -> None:
        if progress.done == 1:
            other = ingest_sources([root], create_lake(lake.uri))
            assert (other.sources[0].written, other.raced) == (2, 0)

    report = ingest_sources([root], lake, progress=overtake)
    assert (report.sources[0].written, report.raced) == (2, 2)
    assert visible_episodes(create_lake(lake.uri)).num_rows == 2

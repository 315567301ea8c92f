from pathlib import Path

import lance
import pytest

from ingest.lake_doctor import check_lake
from lake import (
    EpisodeWriter,
    Lake,
    QuarantineEntry,
    RawMessage,
    RawStream,
    chunk_messages,
    create_lake,
    open_lake,
    visible_episodes,
)
from lake.edit.apply import Author
from lake.edit.hide import delete_episodes
from lake.edit.rearrange import split_episode
from tests.episodes import make_episode
from tests.ingest.lerobot_data import reasons
from tests.loader.damage import damaged_copy, flip, packet


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = create_lake(tmp_path / "robots.lake")
    with EpisodeWriter(lake) as writer:
        for number in range(20):
            writer.add(make_episode(number, camera_names=("top",)))
    return open_lake(lake.uri)


def test_a_sound_lake(lake: Lake) -> None:
    seen: list[tuple[int, int]] = []
    assert check_lake(lake, progress=lambda done, total: seen.append((done, total))) == []
    assert seen == [(16, 20), (20, 20)]


def test_rows_that_were_never_committed_are_told(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*args: object) -> None:
        raise KeyboardInterrupt(args)

    with monkeypatch.context() as patch:
        patch.setattr("lake.writer.record", killed)
        writer = EpisodeWriter(lake)
        writer.add(make_episode(99))
        with pytest.raises(KeyboardInterrupt):
            writer.commit()
    (finding,) = check_lake(open_lake(lake.uri))
    assert (finding.severity, finding.reason) == ("info", "uncommitted-rows")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("episodes", "no-labels"),
        ("stats", "no-stats"),
        ("specs", "no-spec"),
        ("trajectories", "ledger-without-row"),
    ],
)
def test_rows_lost_from_a_table_are_named(lake: Lake, table: str, reason: str) -> None:
    dataset = lance.dataset(lake.table_uri(table))
    key = "spec_id" if table == "specs" else "episode_id"
    lost = dataset.to_table(columns=[key])[key][0].as_py()
    dataset.delete(f"{key} = '{lost}'")
    findings = check_lake(open_lake(lake.uri))
    assert reason in reasons(findings)
    named = [f for f in findings if f.reason == reason]
    assert all(f.severity == "error" and f.episode for f in named)
    assert len(named) == (20 if table == "specs" else 1)


def test_flipped_bytes_are_found_and_the_others_still_verified(lake: Lake) -> None:
    """Overwrite stored packets: each damaged episode is named, the sound ones are not."""
    files = sorted(
        Path(lake.table_uri("trajectories")).glob("data/**/*"), key=lambda p: p.stat().st_size
    )
    path = next(p for p in reversed(files) if p.is_file())
    payload = make_episode(3, camera_names=("top",)).cameras["top"].payload
    data = bytearray(path.read_bytes())
    at = data.find(bytes(payload))
    assert at >= 0, "the packets of an episode lie in one piece in the largest file"
    data[at + 5] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(bytes(data))
    findings = check_lake(open_lake(lake.uri))
    assert [f.reason for f in findings] == ["corrupt-data"]
    assert findings[0].episode == make_episode(3).episode_id
    assert "checksum" in findings[0].detail
    assert findings[0].stream == "top"


def test_each_damaged_camera_is_named(tmp_path: Path) -> None:
    sound = create_lake(tmp_path / "sound.lake")
    episode = make_episode(0, camera_names=("left", "right", "top"))
    with EpisodeWriter(sound) as writer:
        writer.add(episode)
    packets = [
        packet(episode.cameras[name].index, episode.cameras[name].payload, 3)
        for name in ("left", "top")
    ]
    found = check_lake(damaged_copy(sound, tmp_path / "damaged.lake", packets))
    assert [(f.reason, f.stream) for f in found] == [
        ("corrupt-data", "left"),
        ("corrupt-data", "top"),
    ]
    assert all("video packet 3 of 12 does not match" in f.detail for f in found)


@pytest.mark.parametrize("table", ["episodes", "stats", "specs", "quarantine"])
def test_a_table_cut_short_is_named_and_hides_no_other(lake: Lake, table: str) -> None:
    with EpisodeWriter(lake) as writer:
        writer.refuse(QuarantineEntry(source="s", episode="e", stream="", reason="r", detail="d"))
    for path in Path(lake.table_uri(table)).glob("data/*.lance"):
        path.write_bytes(path.read_bytes()[:40])
    findings = [f for f in check_lake(open_lake(lake.uri)) if f.where == table]
    assert reasons(findings) == {"unreadable-table"}
    [finding] = findings
    assert finding.severity == "error"


def test_a_changed_fact_is_found(lake: Lake) -> None:
    # What flips a byte on disk, a direct update does as well.
    lance.dataset(lake.table_uri("trajectories")).update(
        {"embodiment": "'another'"}, where="episode_id LIKE '%3'"
    )
    findings = check_lake(open_lake(lake.uri))
    assert findings
    assert all("facts do not match" in finding.detail for finding in findings)


def test_an_edited_lake_is_sound(lake: Lake) -> None:
    ids = visible_episodes(lake)["episode_id"].to_pylist()
    by = Author(who="test")
    split_episode(lake, ids[0], [5], by)
    delete_episodes(lake, [ids[1]], by)
    seen: list[tuple[int, int]] = []
    assert check_lake(lake, progress=lambda done, total: seen.append((done, total))) == []
    assert seen[-1] == (20, 20)


def test_a_damaged_recording_is_named(lake: Lake) -> None:
    stream = RawStream(name="/joints")
    payload = b"a message that no other file has"
    message = RawMessage(stream=stream, clocks={"log": 1}, payload=payload)
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(30), chunk_messages([message]))
    assert check_lake(lake) == []
    flip(Path(lake.uri, "raw.lance"), payload)
    (finding,) = check_lake(open_lake(lake.uri))
    assert (finding.reason, finding.where) == ("corrupt-data", "raw")
    assert finding.episode == make_episode(30).episode_id
    assert "/joints, chunk 0" in finding.detail

"""Recordings kept as recorded: every clock, every byte, pictures by reference to the video."""

import heapq
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lake import Episode, EpisodeWriter, Lake, create_lake, open_lake, visible_episodes
from lake.errors import CorruptDataError, EpisodeNotFoundError, SpecError
from lake.raw import MAX_CHUNK_BYTES, RawChunk, RawMessage, RawStream
from lake.raw_chunks import chunk_messages
from lake.raw_read import raw_streams, read_raw, read_raw_messages
from tests.deaths import Died, dies_at
from tests.episodes import make_episode

JOINTS = RawStream(
    name="/joint_states",
    schema_name="sensor_msgs/msg/JointState",
    schema_encoding="ros2msg",
    schema=b"float64[] position",
    message_encoding="cdr",
    metadata={"offered_qos_profiles": "- history: 1"},
)
CAMERA = RawStream(name="/top/compressed", schema_name="foxglove.CompressedVideo")


def messages(episode: Episode) -> list[RawMessage]:
    """Joints by four clocks and pictures by one, interleaved; pictures refer to camera `top`."""
    rng = np.random.default_rng(episode.num_steps)
    video = episode.cameras["top"]
    ends = video.index.packet_offsets().tolist()
    found = []
    for step in range(episode.num_steps):
        log = 1_700_000_000_000_000_000 + step * 100_000_000
        found.append(
            RawMessage(
                stream=JOINTS,
                clocks={"log": log, "publish": log - 7, "header": log - 900, "device": step * 3},
                payload=rng.bytes(int(rng.integers(1, 99))),
                sequence=step,
            )
        )
        assert ends[step + 1] > ends[step]
        found.append(
            RawMessage(
                stream=CAMERA,
                clocks={"log": log + 5},
                payload=b"head" + b"tail",
                camera="top",
                frame=int(video.index.packet_frame[step]),
                frame_at=4,
            )
        )
    return found


def whole(message: RawMessage, episode: Episode) -> bytes:
    """What was recorded: with the packet in its place."""
    if message.frame < 0:
        return bytes(message.payload)
    video = episode.cameras["top"]
    ends = video.index.packet_offsets()
    at = int(np.flatnonzero(video.index.packet_frame == message.frame)[0])
    packet = bytes(video.payload[ends[at] : ends[at + 1]])
    return bytes(message.payload[:4]) + packet + bytes(message.payload[4:])


def one(number: int = 1, steps: int = 12) -> Episode:
    return make_episode(number, steps=steps, camera_names=("top",))


def write(lake: Lake, *episodes: Episode, chunk_bytes: int = 300) -> EpisodeWriter:
    with EpisodeWriter(lake, batch_episodes=2) as writer:
        for episode in episodes:
            writer.add(episode, chunk_messages(messages(episode), chunk_bytes=chunk_bytes))
    return writer


def assert_as_recorded(lake: Lake, episode: Episode) -> None:
    recorded = messages(episode)
    for stream in (JOINTS, CAMERA):
        expected = [m for m in recorded if m.stream is stream]
        found = list(read_raw_messages(lake, episode.episode_id, stream.name))
        assert [m.stream for m in found] == [stream] * len(expected)
        assert [m.clocks for m in found] == [m.clocks for m in expected]
        assert [m.sequence for m in found] == [m.sequence for m in expected]
        assert [bytes(m.payload) for m in found] == [whole(m, episode) for m in expected]


def test_messages_come_back_as_recorded(lake: Lake) -> None:
    episodes = [one(number, 5 + number) for number in range(3)]
    write(lake, *episodes)
    for episode in episodes:
        assert_as_recorded(open_lake(lake.uri), episode)


def test_streams_are_counted_and_merged_by_a_clock(lake: Lake) -> None:
    episode = one()
    write(lake, episode, one(2))
    streams = raw_streams(lake, episode.episode_id)
    assert streams == {JOINTS.name: episode.num_steps, CAMERA.name: episode.num_steps}
    merged = heapq.merge(
        *(read_raw_messages(lake, episode.episode_id, name) for name in streams),
        key=lambda message: message.clocks["log"],
    )
    expected = [(m.stream.name, m.clocks["log"]) for m in messages(episode)]
    assert [(m.stream.name, m.clocks["log"]) for m in merged] == expected


def test_chunks_come_back_one_by_one(lake: Lake) -> None:
    episode = one()
    write(lake, episode)
    chunks = list(read_raw(lake, episode.episode_id))
    assert [c.stream.name for c in chunks] == sorted(c.stream.name for c in chunks)
    joints = [c for c in chunks if c.stream == JOINTS]
    assert len(joints) > 1
    assert all(len(c.payload) <= 300 for c in joints)
    assert set(joints[0].clocks) == {"log", "publish", "header", "device"}
    assert joints[0].frames is None
    pictures = [c for c in chunks if c.stream.name == CAMERA.name]
    assert sum(len(c.payload) for c in pictures) == 8 * episode.num_steps
    assert pictures[0].camera == "top"


def test_a_long_recording_is_written_as_it_comes(lake: Lake) -> None:
    episode, given = one(), 0
    data = np.random.default_rng(1).bytes(1 << 20)

    def recorded() -> Iterator[RawMessage]:
        nonlocal given
        for number in range(96):
            given += 1
            yield RawMessage(stream=JOINTS, clocks={"log": number}, payload=bytes(data))

    with EpisodeWriter(lake) as writer:
        tracemalloc.start()
        writer.add(episode, chunk_messages(recorded(), chunk_bytes=2 << 20))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert given == 96
    assert peak < 40 << 20
    chunks = [len(c.payload) for c in read_raw(lake, episode.episode_id)]
    assert sum(chunks) == 96 << 20
    assert max(chunks) == 2 << 20


def test_an_older_lake_gets_the_table_when_it_is_needed(lake: Lake) -> None:
    first, second = one(1), one(2)
    with EpisodeWriter(lake) as writer:
        writer.add(first)
    assert not lake.has_table("raw")
    assert "raw" not in lake.versions()
    assert list(read_raw(lake, first.episode_id)) == []
    assert raw_streams(lake, first.episode_id) == {}
    before = lake.versions()
    write(lake, second)
    assert lake.versions()["raw"] == 2
    assert_as_recorded(lake, second)
    assert list(read_raw(lake, first.episode_id)) == []
    assert visible_episodes(lake.at(before)).num_rows == 1
    pinned = lake.at(lake.versions())
    shutil.rmtree(f"{lake.uri}/raw.lance/_versions")
    assert pinned.has_table("raw")


def test_who_is_not_there_has_no_recording(lake: Lake) -> None:
    for _ in range(2):
        with pytest.raises(EpisodeNotFoundError, match="no episode 'nobody'"):
            list(read_raw(lake, "nobody"))
        write(lake, one())


def test_a_recording_that_breaks_off_leaves_nothing(lake: Lake) -> None:
    def breaks() -> Iterator[RawChunk]:
        yield from list(chunk_messages(messages(one(1))))[:2]
        raise OSError("the bag ends here")

    def breaks_late() -> Iterator[RawChunk]:
        for number in range(12):
            payload = bytes(1 << 20)
            message = RawMessage(stream=JOINTS, clocks={"log": number}, payload=payload)
            yield from chunk_messages([message])
        raise OSError("the bag ends here")

    with EpisodeWriter(lake) as writer:
        for broken in (breaks(), breaks_late()):
            with pytest.raises(OSError, match=r"^the bag ends here$"):
                writer.add(one(1), broken)
        writer.add(one(2), chunk_messages(messages(one(2))))
    assert visible_episodes(lake)["episode_id"].to_pylist() == [one(2).episode_id]
    assert_as_recorded(lake, one(2))
    with EpisodeWriter(lake) as writer:
        writer.add(one(1), chunk_messages(messages(one(1))))
    assert_as_recorded(lake, one(1))


def test_a_second_ingest_reads_no_recording(lake: Lake) -> None:
    write(lake, one())
    with EpisodeWriter(lake) as writer:
        writer.add(one(), iter(["not a chunk"]))  # type: ignore[arg-type]
    assert writer.report.present == 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize(
    "target",
    [
        "lake.raw_write.write_fragments",
        "lake.append.lance.LanceDataset.commit_batch",
        "lake.raw_write.ensure_table",
        "lake.writer.record",
    ],
)
def test_death_between_any_two_steps(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, target: str, call: int, when: str
) -> None:
    episodes = [one(number, 4 + number) for number in range(5)]
    with monkeypatch.context() as patch:
        died = dies_at(patch, target, call, after=when == "after")
        try:
            write(lake, *episodes)
        except Died:
            assert died()
    lake.refresh()
    seen = set(visible_episodes(lake)["episode_id"].to_pylist())
    for episode in episodes:
        if episode.episode_id in seen:
            assert_as_recorded(lake, episode)
    write(lake, *episodes)
    assert visible_episodes(lake).num_rows == 5
    for episode in episodes:
        assert_as_recorded(lake, episode)


def test_a_commit_applied_twice_is_read_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    import lance

    real = lance.LanceDataset.commit_batch

    def twice(*args: object, **kwargs: object) -> object:
        real(*args, **kwargs)  # type: ignore[arg-type]
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("lance.LanceDataset.commit_batch", twice)
    write(lake, one())
    assert_as_recorded(lake, one())


def test_a_flipped_byte_is_named(lake: Lake) -> None:
    episode = one()
    write(lake, episode)
    found = 0
    for file in Path(f"{lake.uri}/raw.lance/data").glob("*.lance"):
        data = bytearray(file.read_bytes())
        payload = bytes(messages(episode)[0].payload)
        at = data.find(payload)
        if at >= 0:
            data[at] ^= 1
            file.write_bytes(data)
            found += 1
    assert found == 1
    with pytest.raises(CorruptDataError, match="joint_states, chunk 0: does not match"):
        list(read_raw(open_lake(lake.uri), episode.episode_id))


def test_what_cannot_be_kept_is_refused(lake: Lake) -> None:
    stamps = {"log": np.zeros(2, np.int64)}
    sizes = np.array([1, 1], np.int32)
    with pytest.raises(SpecError, match="joint_states: the sizes do not add up to 3 bytes"):
        RawChunk(stream=JOINTS, clocks=stamps, sizes=sizes, payload=b"abc")
    with pytest.raises(SpecError, match="clocks among log, publish, header, device"):
        RawChunk(stream=JOINTS, clocks={"wall": stamps["log"]}, sizes=sizes, payload=b"ab")
    with pytest.raises(SpecError, match="camera, frames and frame_at come together"):
        RawChunk(stream=JOINTS, clocks=stamps, sizes=sizes, payload=b"ab", camera="top")
    large = np.array([MAX_CHUNK_BYTES, 1], np.int32)
    with pytest.raises(SpecError, match="a chunk of 2 messages has"):
        RawChunk(stream=JOINTS, clocks=stamps, sizes=large, payload=bytes(MAX_CHUNK_BYTES + 1))
    ints = np.zeros(2, np.int32)
    with pytest.raises(SpecError, match="log is int32"):
        RawChunk(stream=JOINTS, clocks={"log": ints}, sizes=sizes, payload=b"ab")  # type: ignore[dict-item]
    for camera, frame, what in (("wrist", 0, "the episode lacks"), ("top", 99, "no frame 99")):
        chunk = RawChunk(
            stream=CAMERA,
            clocks=stamps,
            sizes=sizes,
            payload=b"ab",
            camera=camera,
            frames=np.array([0, frame], np.int32),
            frame_at=ints,
        )
        with EpisodeWriter(lake) as writer, pytest.raises(SpecError, match=what):
            writer.add(one(), [chunk])


def test_chunks_are_given_away_when_many_streams_are_open() -> None:
    streams = [RawStream(name=f"/{number}") for number in range(50)]

    def recorded() -> Iterator[RawMessage]:
        for number in range(1000):
            yield RawMessage(stream=streams[number % 50], clocks={"log": number}, payload=bytes(99))

    chunks = list(chunk_messages(recorded(), chunk_bytes=1000, held_bytes=4000))
    assert sum(c.num_messages for c in chunks) == 1000
    assert max(len(c.payload) for c in chunks) <= 1000
    for stream in streams:
        stamps = [t for c in chunks if c.stream == stream for t in c.clocks["log"].tolist()]
        assert stamps == sorted(stamps)


def test_lakes_with_recordings_are_created_like_others(tmp_path: Path) -> None:
    write(create_lake(tmp_path / "x.lake"), one())
    assert create_lake(tmp_path / "x.lake").has_table("raw")

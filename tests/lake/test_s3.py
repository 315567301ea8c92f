"""A lake in a real S3 store: create, write, race, read; its promises asked for first."""

import threading

import pytest

from lake import (
    ByteRange,
    EpisodeWriter,
    RawMessage,
    RawStream,
    chunk_messages,
    create_lake,
    open_lake,
    read_episode,
    read_ranges,
    read_raw_messages,
    read_signals,
    read_video_indexes,
    visible_episodes,
)
from lake.edit.apply import Author
from lake.edit.hide import delete_episodes
from lake.edit.rearrange import split_episode
from lake.errors import LakeError, LakeNotFoundError
from lake.files import files_under, unnamed_files
from lake.purge import purge
from lake.reshard import reshard
from tests.episodes import make_episode
from tests.s3_server import SECRET_KEY, S3Server

pytestmark = pytest.mark.s3


def test_write_and_read_back(s3_server: S3Server) -> None:
    options = s3_server.storage_options
    uri = s3_server.uri("plain.lake")
    with pytest.raises(LakeNotFoundError, match="no lake here"):
        open_lake(uri, storage_options=options)
    # One option is Lance's own, the probe's library does not know it.
    lake = create_lake(uri, storage_options={**options, "client_max_retries": "3"})
    episodes = [
        make_episode(number, camera_names=("top", "wrist"), packet_bytes=400 * 20**number)
        for number in range(3)
    ]
    with EpisodeWriter(lake, batch_episodes=2) as writer:
        for episode in episodes:
            writer.add(episode)
    assert writer.report.written == 3
    reader = open_lake(uri, storage_options=options)
    rows = visible_episodes(reader).to_pydict()
    assert rows["episode_id"] == [episode.episode_id for episode in episodes]
    for episode in episodes:
        got = read_episode(reader, episode.episode_id)
        assert got.content_sha256() == episode.content_sha256()
    signals = read_signals(reader, rows["address"], ["state"])
    assert [s.features["state"].tolist() for s in signals] == [
        e.features["state"].tolist() for e in episodes
    ]
    ranges, wanted = [], []
    for videos, episode in zip(read_video_indexes(reader, rows["address"]), episodes, strict=True):
        for name, base in videos.base_offsets.items():
            ranges.append(ByteRange(videos.address, base + 3, 50))
            wanted.append(episode.cameras[name].payload[3:53])
    assert read_ranges(reader, ranges) == wanted
    again = EpisodeWriter(create_lake(uri, storage_options=options))
    with again:
        for episode in episodes:
            again.add(episode)
    assert (again.report.written, again.report.present) == (0, 3)


def test_two_writers_race(s3_server: S3Server) -> None:
    options = s3_server.storage_options
    uri = s3_server.uri("race.lake")
    episodes = [make_episode(number) for number in range(6)]
    reports = []
    errors: list[BaseException] = []
    barrier = threading.Barrier(2)

    def run(order: int) -> None:
        try:
            barrier.wait()
            lake = create_lake(uri, storage_options=options)
            with EpisodeWriter(lake, batch_episodes=2) as writer:
                for episode in episodes[::order]:
                    writer.add(episode)
            reports.append(writer.report)
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(order,)) for order in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    lake = open_lake(uri, storage_options=options)
    ids = visible_episodes(lake)["episode_id"].to_pylist()
    assert sorted(ids) == [episode.episode_id for episode in episodes]
    assert sum(report.written + report.adopted for report in reports) == 6
    for episode in episodes:
        assert read_episode(lake, episode.episode_id).content_sha256() == episode.content_sha256()


def test_the_environment_is_enough(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    options = s3_server.storage_options
    monkeypatch.setenv("AWS_ENDPOINT_URL", options["aws_endpoint"])
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", options["aws_region"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["aws_access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["aws_secret_access_key"])
    lake = create_lake(s3_server.uri("environment.lake"))
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(1))
    assert read_episode(lake, make_episode(1).episode_id).num_steps == 12


@pytest.mark.parametrize("wrong", ["aws_secret_access_key", "aws_endpoint"])
def test_a_store_that_cannot_be_used_is_one_error_without_secrets(
    s3_server: S3Server, wrong: str
) -> None:
    value = "http://127.0.0.1:9" if wrong == "aws_endpoint" else SECRET_KEY[::-1]
    options = {**s3_server.storage_options, wrong: value, "client_max_retries": "0"}
    with pytest.raises(LakeError) as caught:
        create_lake(s3_server.uri("denied.lake"), storage_options=options)
    text = str(caught.value)
    assert text.startswith("s3://robots/denied.lake: ")
    assert "\n" not in text
    assert SECRET_KEY not in text
    assert SECRET_KEY[::-1] not in text


def test_recordings_edits_and_upkeep(s3_server: S3Server) -> None:
    options = s3_server.storage_options
    lake = create_lake(s3_server.uri("upkeep.lake"), storage_options=options)
    episodes = [make_episode(number, camera_names=("top",)) for number in range(3)]
    stream = RawStream(name="/x")
    for number, episode in enumerate(episodes):
        message = RawMessage(stream=stream, clocks={"log": number}, payload=b"abc" * number)
        with EpisodeWriter(lake) as writer:
            writer.add(episode, chunk_messages([message]))
    by = Author(who="test")
    parts = split_episode(lake, episodes[0].episode_id, [5], by).shown
    delete_episodes(lake, [episodes[1].episode_id], by)
    expected = {part: read_episode(lake, part).content_sha256() for part in parts}
    reader = open_lake(lake.uri, storage_options=options)
    assert {part: read_episode(reader, part).content_sha256() for part in parts} == expected
    done = {entry.table: entry.fragments_after for entry in reshard(lake)}
    assert (done["trajectories"], done["raw"]) == (1, 1)
    assert purge(lake, [episodes[1].episode_id], by, sweep=True).rows["raw"] == 1
    reader.refresh()
    assert {part: read_episode(reader, part).content_sha256() for part in parts} == expected
    found = read_episode(reader, episodes[2].episode_id)
    assert found.content_sha256() == episodes[2].content_sha256()
    (message,) = read_raw_messages(reader, episodes[2].episode_id)
    assert bytes(message.payload) == b"abcabc"
    assert reader.latest("trajectories").count_rows() == 2
    assert not [path for path in files_under(lake, "trajectories.lance") if "_versions/d" in path]
    assert len(unnamed_files(lake, "trajectories")) == 0

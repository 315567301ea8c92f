"""ROS 1 and ROS 2 bags, against rosbags, and as they are when something is wrong."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.writer import CompressionType
from rosbags.rosbag1 import Reader as BagReader
from rosbags.rosbag1 import Writer as BagWriter

from ingest.errors import IngestError, SourceError
from ingest.formats import detect, discover
from ingest.messages.log import Message, MessageLog
from ingest.messages.ros1.bag import open_bag
from ingest.messages.ros2.bag import open_rosbag2
from ingest.messages.source import LogSource
from ingest.pipeline import read_episode
from ingest.source import Finding, SourceOptions
from tests.ingest.messages.log_files import write_bag, write_db3, write_mcap, write_metadata
from tests.ingest.messages.message_logs import (
    NS,
    START,
    STEP,
    at_steps,
    header,
    payload,
    ros2_channel,
)

FLOAT = "std_msgs/msg/Float64"
JOINTS = "sensor_msgs/msg/JointState"
COUNT = 12
PACKINGS = [None, BagWriter.CompressionFormat.BZ2, BagWriter.CompressionFormat.LZ4]


def bag_rows(count: int = COUNT) -> list[tuple[str, str, int, dict[str, Any]]]:
    return [
        row
        for n in range(count)
        for row in (
            ("/x", FLOAT, START + n * STEP, {"data": float(n)}),
            (
                "/joints",
                JOINTS,
                START + n * STEP + 5,
                {
                    "header": {**header(n), "seq": n},
                    "name": ["a", "b"],
                    "position": [n, -n],
                },
            ),
        )
    ]


def read(log: MessageLog) -> tuple[list[Message], list[str]]:
    with closing(log):
        return list(log.messages()), [finding.reason for finding in log.findings()]


def episode_of(path: Path) -> tuple[Any, tuple[Finding, ...]]:
    known = detect(path)
    assert known is not None
    with closing(known.open(path, SourceOptions())) as source:
        assert isinstance(source, LogSource)
        (entry,) = source.entries()
        return read_episode(source, entry).episode, tuple(source.findings())


@pytest.mark.parametrize("compression", PACKINGS)
def test_bags_are_as_rosbags_reads_them(
    tmp_path: Path, compression: BagWriter.CompressionFormat | None
) -> None:
    path = write_bag(tmp_path / "a.bag", bag_rows(), compression=compression, chunk_bytes=600)
    known = detect(path)
    assert known is not None
    assert known.name == "ros1-bag"
    found, reasons = read(open_bag(path))
    with BagReader(path) as reader:
        expected = [(c.topic, time, bytes(data)) for c, time, data in reader.messages()]
    assert [(m.channel.topic, m.log_time_ns, m.payload) for m in found] == expected
    assert reasons == []
    assert {m.channel.schema_name for m in found} == {
        "std_msgs/Float64",
        "sensor_msgs/JointState",
    }
    episode, _ = episode_of(path)
    assert episode.features["x"].tolist() == list(range(COUNT))
    assert episode.features["joints_position"].tolist() == [[n, -n] for n in range(COUNT)]
    assert episode.timestamps_ns[0] == START + 5


def bag_cuts(data: bytes) -> list[int]:
    """Around the begin and the end of every record, and within."""
    points, at = {13, 15, 17}, 13
    while at + 4 <= len(data):
        head = at + 4 + int.from_bytes(data[at : at + 4], "little")
        end = head + 4 + int.from_bytes(data[head : head + 4], "little")
        points |= {at, at + 3, head, head + 2, head + 4, (head + end) // 2, end - 1, end}
        at = end
    return sorted(point for point in points if point < len(data))


@pytest.mark.parametrize("compression", PACKINGS)
def test_a_cut_bag_keeps_every_whole_message(
    tmp_path: Path, compression: BagWriter.CompressionFormat | None
) -> None:
    rows = bag_rows()
    data = write_bag(
        tmp_path / "a.bag", rows, compression=compression, chunk_bytes=600
    ).read_bytes()
    cut = tmp_path / "cut.bag"
    kept = []
    for point in bag_cuts(data):
        cut.write_bytes(data[:point])
        found, reasons = read(open_bag(cut))
        assert [m.log_time_ns for m in found] == [row[2] for row in rows[: len(found)]]
        assert set(reasons) <= {"cut-short", "unindexed"}, (point, reasons)
        assert reasons or len(found) == len(rows), point
        kept.append(len(found))
    assert kept == sorted(kept)
    assert kept[-1] == len(rows)
    assert len(set(kept)) > (10 if compression is None else 3)


def test_a_bag_that_was_not_closed_is_read(tmp_path: Path) -> None:
    path = write_bag(tmp_path / "a.bag.active", bag_rows(), chunk_bytes=600)
    data = bytearray(path.read_bytes())
    at = data.index(b"index_pos=") + len(b"index_pos=")
    end = int.from_bytes(data[at : at + 8], "little")
    data[at : at + 8] = bytes(8)
    path.write_bytes(bytes(data[:end]))
    found, reasons = read(open_bag(path))
    assert (len(found), reasons) == (2 * COUNT, ["unindexed"])


def test_chunks_out_of_order_are_put_into_the_order_of_time(tmp_path: Path) -> None:
    rows = [("/x", FLOAT, START + n * NS, {"data": float(n)}) for n in (3, 4, 5, 0, 1, 2)]
    episode, _ = episode_of(write_bag(tmp_path / "a.bag", rows))
    assert episode.features["x"].tolist() == [0, 1, 2, 3, 4, 5]
    back = [("/x", FLOAT, START + n * NS, {"data": float(n)}) for n in (0, 4, 1, 5, 2, 3)]
    with pytest.raises(IngestError, match="clock-reset"):
        episode_of(write_bag(tmp_path / "b.bag", back))


def numbers(count: int = COUNT, first: int = 0, topic: str = "/x") -> list[Message]:
    rows = at_steps(
        ros2_channel(topic, FLOAT),
        [payload(FLOAT, {"data": n}) for n in range(first, first + count)],
    )
    return [row._replace(log_time_ns=row.log_time_ns + first * STEP) for row in rows]


@pytest.mark.parametrize("definitions", [True, False])
def test_storage_files_of_every_version(tmp_path: Path, *, definitions: bool) -> None:
    path = write_db3(tmp_path / "a.db3", numbers(), definitions=definitions)
    known = detect(path)
    assert known is not None
    assert known.name == "ros2-bag"
    found, reasons = read(open_rosbag2(path))
    assert [(m.log_time_ns, m.payload) for m in found] == [
        (m.log_time_ns, m.payload) for m in numbers()
    ]
    assert reasons == []
    episode, _ = episode_of(path)
    assert episode.features["x"].tolist() == list(range(COUNT))
    assert episode.provenance.format == "ros2-bag-sqlite3"
    told = [line for line in episode.provenance.findings if "definition-from-library" in line]
    assert bool(told) != definitions


def test_what_a_killed_recorder_left_beside_the_file_is_read(tmp_path: Path) -> None:
    path = write_db3(tmp_path / "a.db3", numbers(), journal=True)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    found, reasons = read(open_rosbag2(path))
    assert (len(found), reasons) == (COUNT, [])
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_other_databases_are_no_bags(tmp_path: Path) -> None:
    path = tmp_path / "a.db3"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE songs(id INTEGER)")
        database.commit()
    assert detect(path) is None
    (tmp_path / "b.db3").write_bytes(b"SQLite format 3\0" + bytes(100))
    assert detect(tmp_path / "b.db3") is None


def split_bag(folder: Path, kind: str, *, metadata: bool = True, count: int = 3 * COUNT) -> Path:
    folder.mkdir()
    names = []
    for part in range(3):
        name = f"{folder.name}_{part}.{kind}"
        rows = numbers(first=part * COUNT)
        if kind == "mcap":
            write_mcap(folder / name, rows)
        else:
            write_db3(folder / name, rows)
        names.append(name)
    if metadata:
        write_metadata(folder, names, {"/x": count})
    return folder


@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize("kind", ["mcap", "db3"])
def test_split_bags_are_one_episode(tmp_path: Path, kind: str, *, metadata: bool) -> None:
    folder = split_bag(tmp_path / "bag", kind, metadata=metadata)
    (found,) = discover(tmp_path).sources
    assert (found.path, found.format.name) == (folder, "ros2-bag")
    episode, findings = episode_of(folder)
    assert episode.features["x"].tolist() == list(range(3 * COUNT))
    assert episode.provenance.files == tuple(f"bag_{n}.{kind}" for n in range(3))
    assert [f.reason for f in findings] == ([] if metadata else ["no-metadata"])


def test_a_folder_of_recordings_is_no_split_bag(tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        write_mcap(tmp_path / f"{name}.mcap", numbers())
    assert [source.format.name for source in discover(tmp_path).sources] == ["mcap", "mcap"]


def test_what_the_metadata_says_is_compared(tmp_path: Path) -> None:
    folder = split_bag(tmp_path / "bag", "mcap", count=3 * COUNT + 2)
    _, findings = episode_of(folder)
    assert [(f.severity, f.reason) for f in findings] == [("error", "wrong-count")]
    assert "/x: 36 messages, metadata.yaml says 38" in findings[0].detail
    (folder / "bag_1.mcap").unlink()
    episode, findings = episode_of(folder)
    assert [f.reason for f in findings] == ["missing-file", "wrong-count"]
    assert len(episode.features["x"]) == 2 * COUNT


@pytest.mark.parametrize(
    "text", ["", "rosbag2_bagfile_information: 5", "{rosbag2_bagfile_information"]
)
def test_a_damaged_metadata_file_stops_nothing(tmp_path: Path, text: str) -> None:
    folder = split_bag(tmp_path / "bag", "db3")
    (folder / "metadata.yaml").write_text(text)
    episode, findings = episode_of(folder)
    assert len(episode.features["x"]) == 3 * COUNT
    assert [f.reason for f in findings] == ["bad-metadata"]


def test_metadata_leads_out_of_no_folder(tmp_path: Path) -> None:
    write_mcap(tmp_path / "secret.mcap", numbers(topic="/secret"))
    folder = split_bag(tmp_path / "bag", "mcap")
    write_metadata(folder, ["../secret.mcap", "bag/bag_0.mcap"], {"/x": COUNT})
    found, reasons = read(open_rosbag2(folder))
    assert {m.channel.topic for m in found} == {"/x"}
    assert reasons[0] == "missing-file"


def test_a_bag_without_storage_is_refused(tmp_path: Path) -> None:
    write_metadata(tmp_path, ["gone_0.mcap"], {})
    with pytest.raises(SourceError, match="without storage files"):
        open_rosbag2(tmp_path)


def test_files_that_were_compressed_as_a_whole_are_unpacked(tmp_path: Path) -> None:
    folder = split_bag(tmp_path / "bag", "mcap")
    names = []
    for path in sorted(folder.glob("*.mcap")):
        packed = path.with_name(f"{path.name}.zstd")
        packed.write_bytes(zstandard.ZstdCompressor().compress(path.read_bytes()))
        path.unlink()
        names.append(packed.name)
    write_metadata(folder, names, {"/x": 3 * COUNT}, compression_mode="FILE")
    episode, findings = episode_of(folder)
    assert episode.features["x"].tolist() == list(range(3 * COUNT))
    assert findings == ()
    alone = folder / names[1]
    assert episode_of(alone)[0].features["x"].tolist() == list(range(COUNT, 2 * COUNT))
    alone.write_bytes(alone.read_bytes()[:-40])
    _, findings = episode_of(folder)
    assert [f.reason for f in findings] == ["damaged-file", "wrong-count"]


@given(data=st.data())
@settings(max_examples=100)
def test_damage_ends_in_messages_or_a_named_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "bags"
    if not folder.exists():
        folder.mkdir()
        for compression in PACKINGS:
            write_bag(folder / f"{compression}.bag", bag_rows(3), compression=compression)
        write_db3(folder / "whole.db3", numbers(3))
    whole = data.draw(st.sampled_from(sorted(folder.glob("*.*"))))
    damaged = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(13, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / f"damaged{whole.suffix}"
    path.write_bytes(bytes(damaged[: data.draw(st.integers(13, len(damaged)))]))
    with suppress(IngestError):
        found, _ = read(open_bag(path) if path.suffix == ".bag" else open_rosbag2(path))
        assert len(found) <= 20


def test_compression_by_chunks_of_mcap_in_a_bag(tmp_path: Path) -> None:
    folder = tmp_path / "bag"
    folder.mkdir()
    write_mcap(folder / "bag_0.mcap", numbers(), compression=CompressionType.ZSTD)
    write_metadata(folder, ["bag_0.mcap"], {"/x": COUNT})
    episode, findings = episode_of(folder)
    assert (len(episode.features["x"]), findings) == (COUNT, ())
    assert episode.provenance.format == "ros2-bag-mcap"

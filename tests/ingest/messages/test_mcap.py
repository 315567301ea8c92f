"""MCAP files, against their own library, and cut and flipped wherever it can be."""

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import NonSeekingReader
from mcap.writer import CompressionType

from ingest.errors import IngestError, SourceError
from ingest.formats import detect
from ingest.messages.log import Message
from ingest.messages.mcap.log import open_mcap
from ingest.messages.mcap.records import MAGIC
from ingest.source import Finding
from tests.ingest.messages.log_files import write_mcap
from tests.ingest.messages.message_logs import at_steps, json_channel, payload, ros2_channel

FLOAT = "std_msgs/msg/Float64"
PACKINGS = [CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD]


def rows(count: int = 20) -> list[Message]:
    numbers = at_steps(
        ros2_channel("/x", FLOAT), [payload(FLOAT, {"data": n}) for n in range(count)]
    )
    texts = at_steps(json_channel("/note"), [f'{{"at": {n}}}'.encode() for n in range(count)])
    return [row for pair in zip(numbers, texts, strict=True) for row in pair]


def read(path: Path) -> tuple[list[Message], tuple[Finding, ...]]:
    with closing(open_mcap(path)) as log:
        return list(log.messages()), tuple(log.findings())


def reasons(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.reason for finding in findings]


def same(found: list[Message], expected: list[Message]) -> None:
    assert [(m.channel.topic, *m[1:]) for m in found] == [
        (m.channel.topic, *m[1:]) for m in expected
    ]


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("summary", [True, False])
@pytest.mark.parametrize("compression", PACKINGS)
def test_messages_are_those_of_the_library(
    tmp_path: Path, compression: CompressionType, *, chunked: bool, summary: bool
) -> None:
    path = write_mcap(
        tmp_path / "a.mcap",
        rows(),
        compression=compression,
        chunk_size=300,
        chunked=chunked,
        summary=summary,
    )
    known = detect(path)
    assert known is not None
    assert known.name == "mcap"
    with closing(open_mcap(path)) as log:
        assert bool(log.channels()) == summary
        found = list(log.messages())
        same(found, rows())
        same(list(log.messages()), found)
        assert log.findings() == ()
        (x, note) = log.channels()
    with path.open("rb") as file:
        expected = [
            (channel.topic, m.log_time, m.publish_time, m.sequence, m.data)
            for _, channel, m in NonSeekingReader(file).iter_messages(log_time_order=False)
        ]
    assert [(m.channel.topic, *m[1:]) for m in found] == expected
    assert (x.schema_name, x.schema_encoding, x.message_encoding) == (FLOAT, "ros2msg", "cdr")
    assert b"float64 data" in x.schema
    assert (note.schema_name, note.message_encoding) == ("", "json")


def test_messages_that_rosbag2_compressed_are_unpacked(tmp_path: Path) -> None:
    pack = zstandard.ZstdCompressor().compress
    packed = [
        row._replace(payload=pack(row.payload)) if n % 2 == 0 else row
        for n, row in enumerate(rows())
    ]
    damaged = packed[4]._replace(payload=packed[4].payload[:-3])
    path = write_mcap(tmp_path / "a.mcap", [*packed[:4], damaged, *packed[5:]])
    found, findings = read(path)
    expected = rows()
    same(found, expected[:4] + expected[5:])
    assert reasons(findings) == ["bad-message", "wrong-count"]


def cut_points(data: bytes) -> list[int]:
    """Around the begin and the end of every record, and within."""
    points, at = {8, 9, 12}, 8
    while at + 9 <= len(data):
        size = int.from_bytes(data[at + 1 : at + 9], "little")
        points |= {at, at + 1, at + 9, at + 9 + size // 2, at + 9 + size - 1, at + 9 + size}
        at += 9 + size
    return sorted(point for point in points if point < len(data))


@pytest.mark.parametrize("compression", [None, *PACKINGS])
def test_a_cut_file_keeps_every_whole_message(
    tmp_path: Path, compression: CompressionType | None
) -> None:
    packing = compression or CompressionType.NONE
    whole = write_mcap(
        tmp_path / "a.mcap",
        rows(),
        compression=packing,
        chunk_size=400,
        chunked=compression is not None,
    )
    data = whole.read_bytes()
    cut = tmp_path / "cut.mcap"
    kept = []
    for point in cut_points(data):
        cut.write_bytes(data[:point])
        found, findings = read(cut)
        same(found, rows()[: len(found)])
        assert set(reasons(findings)) <= {"cut-short", "damaged-chunk"}, point
        if not findings:
            assert len(found) == 40, point
        kept.append(len(found))
    assert kept == sorted(kept)
    assert kept[-1] == 40
    if packing is CompressionType.NONE and compression is not None:
        # Between the chunks' ends: what is whole of a chunk that is cut.
        assert len(set(kept)) > data.count(b"\x06", 8, 9) + 5


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 0xFF
    return bytes(changed)


@pytest.mark.parametrize("compression", PACKINGS)
def test_a_chunk_with_a_flipped_byte_is_lost_alone(
    tmp_path: Path, compression: CompressionType
) -> None:
    path = write_mcap(tmp_path / "a.mcap", rows(), compression=compression, chunk_size=400)
    data = path.read_bytes()
    first = next(at for at in cut_points(data) if data[at] == 6)  # a chunk's begin
    size = int.from_bytes(data[first + 1 : first + 9], "little")
    path.write_bytes(flipped(data, first + 9 + size - 30))
    found, findings = read(path)
    assert reasons(findings)[0] == "damaged-chunk"
    assert reasons(findings)[-1] == "wrong-count"
    assert 0 < len(found) < 40
    same(found[-10:], rows()[-10:])


def test_lengths_that_lie_allocate_nothing(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / "a.mcap", rows(), compression=CompressionType.ZSTD)
    data = bytearray(path.read_bytes())
    first = next(at for at in cut_points(bytes(data)) if data[at] == 6)
    data[first + 25 : first + 33] = (1 << 40).to_bytes(8, "little")
    path.write_bytes(bytes(data))
    found, findings = read(path)
    assert found == []
    assert "1099511627776 bytes are announced" in str(findings[0])


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    path.write_bytes(b"nothing of that kind")
    assert detect(path) is None
    with pytest.raises(SourceError, match="no MCAP"):
        open_mcap(path)
    with pytest.raises(SourceError, match="No such file"):
        open_mcap(tmp_path / "b.mcap")


def test_messages_of_channels_that_are_not_defined_are_told(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / "a.mcap", rows(4), chunked=False, summary=False)
    data = path.read_bytes()
    at = next(p for p in cut_points(data) if data[p] == 4 and data[p + 9 : p + 11] == b"\x02\0")
    size = 9 + int.from_bytes(data[at + 1 : at + 9], "little")
    path.write_bytes(data[:at] + data[at + size :])
    found, findings = read(path)
    assert {m.channel.topic for m in found} == {"/x"}
    assert set(reasons(findings)) == {"unknown-channel"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Callable[[CompressionType], bytes]:
    folder = tmp_path_factory.mktemp("mcap")

    def build(compression: CompressionType) -> bytes:
        name = f"{compression.name}.mcap"
        if not (folder / name).exists():
            write_mcap(folder / name, rows(6), compression=compression, chunk_size=200)
        return (folder / name).read_bytes()

    return build


@given(data=st.data())
@settings(max_examples=120)
def test_damage_ends_in_messages_or_a_named_error(
    tmp_path_factory: pytest.TempPathFactory,
    small: Callable[[CompressionType], bytes],
    data: st.DataObject,
) -> None:
    whole = bytearray(small(data.draw(st.sampled_from(PACKINGS))))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(8, len(whole) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(8, len(whole)))])
    if data.draw(st.booleans()):
        damaged = MAGIC + data.draw(st.binary(max_size=300))
    path = tmp_path_factory.getbasetemp() / "damaged.mcap"
    path.write_bytes(damaged)
    with suppress(IngestError):
        found, _ = read(path)
        assert len(found) <= 20

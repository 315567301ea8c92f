"""Shards that are cut, flipped, missing or foreign: what is sound goes in, the loss is listed."""

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.errors import EpisodeError, MissingReaderError, SourceError
from ingest.formats import detect, discover
from ingest.pipeline import ingest_sources
from ingest.rlds.crc32c import masked_crc32c_of_few
from ingest.rlds.dataset_info import DatasetInfo
from ingest.rlds.source import RldsSource, recognises
from ingest.rlds.tfrecord import scan
from ingest.source import EpisodeEntry, SourceOptions
from lake import Lake, visible_episodes
from lake.errors import SpecError
from tests.ingest.rlds_files import NAME, episode, frame, serialise, write_dataset

_TINY = [
    {name: episode(2, seed)[name] for name in ("steps/action", "steps/is_first")}
    for seed in range(3)
]


def _open(root: Path) -> RldsSource:
    return RldsSource(root, SourceOptions())


def _reasons(source: RldsSource) -> list[str]:
    return [finding.reason for finding in source.findings() if finding.severity == "error"]


def test_every_cut_keeps_the_records_before_it(tmp_path: Path) -> None:
    frames = [frame(serialise(example)) for example in _TINY]
    whole = b"".join(frames)
    ends = [len(b"".join(frames[: count + 1])) for count in range(3)]
    path = tmp_path / "cut.tfrecord"
    for size in range(1, len(whole) + 1):
        path.write_bytes(whole[:size])
        kept = sum(end <= size for end in ends)
        if not kept:
            with pytest.raises(SourceError) as raised:
                _open(path)
            assert raised.value.reason == "damaged-shard"
            continue
        source = _open(path)
        assert len(source.entries()) == kept
        assert _reasons(source) == ([] if size in ends else ["damaged-shard"])
        if size not in ends:
            [loss] = [f for f in source.findings() if f.severity == "error"]
            assert f"{size - ends[kept - 1]} of {size} bytes are lost" in loss.detail


def test_records_keep_their_keys_where_the_shard_was_cut(tmp_path: Path) -> None:
    shard = write_dataset(tmp_path, _TINY)
    before = [entry.ingest_key for entry in _open(tmp_path).entries()]
    shard.write_bytes(shard.read_bytes()[:-3])
    assert [entry.ingest_key for entry in _open(tmp_path).entries()] == before[:2]


def test_a_flipped_record_is_quarantined_alone(tmp_path: Path, lake: Lake) -> None:
    shard = write_dataset(tmp_path, [episode(3, seed) for seed in range(3)])
    data = bytearray(shard.read_bytes())
    data[scan(shard).records[1].start + 50] ^= 0x10
    shard.write_bytes(data)
    report = ingest_sources([tmp_path], lake)
    [counts] = report.sources
    assert (counts.written, counts.quarantined) == (2, 1)
    rows = lake.dataset("quarantine").to_table().to_pylist()
    assert [(row["reason"], row["episode"]) for row in rows] == [("bad-checksum", f"{NAME}/1")]
    assert visible_episodes(lake).num_rows == 2


def test_a_flipped_length_ends_the_shard_and_is_counted(tmp_path: Path) -> None:
    shard = write_dataset(tmp_path, _TINY)
    data = bytearray(shard.read_bytes())
    data[scan(shard).records[1].start - 12 + 6] ^= 0x40  # exbibytes
    shard.write_bytes(data)
    source = _open(tmp_path)
    assert len(source.entries()) == 1
    [loss] = [f for f in source.findings() if f.severity == "error"]
    assert loss.reason == "damaged-shard"
    assert "3 are declared" in loss.detail


def test_a_length_beyond_the_file_allocates_nothing(tmp_path: Path) -> None:
    length = (1 << 60).to_bytes(8, "little")
    path = tmp_path / "long.tfrecord"
    path.write_bytes(length + masked_crc32c_of_few(length).to_bytes(4, "little") + b"x" * 100)
    with pytest.raises(SourceError, match="cut off after 100"):
        _open(path)


@given(data=st.binary(max_size=64))
def test_the_plain_checksum_is_the_compiled_one(data: bytes) -> None:
    crc = google_crc32c.value(data)
    expected = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crc32c_of_few(data) == expected


def test_shards_are_compared_with_the_declared_ones(tmp_path: Path) -> None:
    shard = write_dataset(tmp_path, _TINY, shard_lengths=[3, 5])
    shard.rename(tmp_path / NAME.replace("00001", "00002"))
    source = _open(tmp_path)
    assert [(f.reason, f.where) for f in source.findings() if f.severity == "error"] == [
        ("missing-shard", "toy-train.tfrecord-00001-of-00002")
    ]
    assert len(source.entries()) == 3
    write_dataset(tmp_path / "fewer", _TINY, shard_lengths=[4])
    assert _reasons(_open(tmp_path / "fewer")) == ["wrong-shard-length"]
    odd = write_dataset(tmp_path / "odd", _TINY)
    odd.with_name("toy-val.tfrecord-00000-of-00001").write_bytes(odd.read_bytes())
    source = _open(tmp_path / "odd")
    assert [f.reason for f in source.findings()] == ["undeclared-shard"]
    splits = {source.read(entry).episode.split for entry in source.entries()}
    assert splits == {"train", "val"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "bad-json"),
        ("[1]", "bad-json"),
        ("{}", "bad-features-json"),
        ('{"featuresDict": {"features": {"steps": 3}}}', "bad-features-json"),
        ("[" * 100_000, "bad-json"),
    ],
)
def test_damaged_features_json_is_told_and_shapes_inferred(
    tmp_path: Path, text: str, reason: str
) -> None:
    write_dataset(tmp_path, _TINY)
    (tmp_path / "features.json").write_text(text)
    source = _open(tmp_path)
    assert [f.reason for f in source.findings()] == [reason]
    assert source.read(source.entries()[0]).episode.features["action"].shape == (2, 7)


@pytest.mark.parametrize(
    "split",
    [
        3,
        {"name": "train", "shardLengths": ["x"]},
        {"shardLengths": ["3"]},
        {"name": "train", "shardLengths": ["-3"]},
        {"name": "train", "shardLengths": ["3"], "filepathTemplate": "../{SHARD_INDEX}"},
        {"name": "../../train", "shardLengths": ["3"]},
    ],
)
def test_splits_that_make_no_sense_are_told(tmp_path: Path, split: Any) -> None:
    write_dataset(tmp_path, _TINY, splits=[split])
    source = _open(tmp_path)
    assert [f.reason for f in source.findings()] == ["bad-split"]
    assert len(source.entries()) == 3


def test_a_template_of_another_kind_is_filled(tmp_path: Path) -> None:
    path = tmp_path / "dataset_info.json"
    template = "{SPLIT}_{DATASET}.{SHARD_INDEX}.{NUM_SHARDS}.{FILEFORMAT}"
    split = {"name": "val", "shardLengths": ["7", "8"], "filepathTemplate": template}
    path.write_text(json.dumps({"name": "x", "splits": [split]}))
    assert DatasetInfo.read(path).shards == {
        "val_x.00000.00002.tfrecord": ("val", 7),
        "val_x.00001.00002.tfrecord": ("val", 8),
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty-file"),
        (b"noise", "damaged-shard"),
        (gzip.compress(b"x", mtime=0), "compressed-file"),
    ],
)
def test_files_named_as_shards_are_refused_with_a_reason(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(content)
    assert recognises(path)
    with pytest.raises(SourceError) as raised:
        _open(path)
    assert raised.value.reason == reason
    assert str(path) in str(raised.value)


def test_content_tells_a_tfrecord_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "episodes.bin"
    path.write_bytes(frame(serialise(_TINY[0])))
    known = detect(path)
    assert known is not None
    assert known.name == "rlds"
    assert not recognises(tmp_path)
    path.write_bytes(b"\0" * 100)
    assert not recognises(path)


def test_a_dataset_and_a_lone_shard_beside_it_are_two(tmp_path: Path) -> None:
    write_dataset(tmp_path / "toy/1.0.0", _TINY)
    (tmp_path / "lone.tfrecord").write_bytes(frame(serialise(_TINY[0])))
    found = discover(tmp_path)
    assert [s.path.relative_to(tmp_path).as_posix() for s in found.sources] == [
        "lone.tfrecord",
        "toy/1.0.0",
    ]
    (tmp_path / "toy/1.0.0/dataset_info.json").unlink()
    lone = tmp_path / "toy/1.0.0" / NAME
    assert _open(lone).dataset == "toy"


def test_a_missing_reader_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path, _TINY)
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    assert recognises(tmp_path)
    with pytest.raises(MissingReaderError, match=r"headrace\[rlds\]"):
        _open(tmp_path)


_SMALL = b"".join(frame(serialise(example)) for example in _TINY)


def _reads_or_refuses(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tfrecord"
        path.write_bytes(content)
        try:
            source = _open(path)
        except SourceError:
            return
        for entry in source.entries():
            _reads_or_is_refused(source, entry)


def _reads_or_is_refused(source: RldsSource, entry: EpisodeEntry) -> None:
    try:
        source.read(entry)
    except (EpisodeError, SpecError):
        return


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=200))
def test_any_bytes_end_in_episodes_or_a_reason(content: bytes) -> None:
    _reads_or_refuses(content)


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, len(_SMALL) - 1), bit=st.integers(0, 7), cut=st.integers(0, 300))
def test_any_flip_and_cut_ends_in_episodes_or_a_reason(place: int, bit: int, cut: int) -> None:
    content = bytearray(_SMALL)
    content[place] ^= 1 << bit
    _reads_or_refuses(bytes(content[: len(content) - cut]))


@settings(max_examples=80, deadline=None)
@given(
    flips=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=4),
    data=st.one_of(st.none(), st.binary(max_size=120)),
)
def test_any_example_under_a_valid_checksum(
    flips: list[tuple[int, int]], data: bytes | None
) -> None:
    content = bytearray(serialise(_TINY[1]) if data is None else data)
    for place, value in flips:
        if content:
            content[place % len(content)] = value
    _reads_or_refuses(frame(bytes(content)))


_WORDS = st.sampled_from(
    [
        *("featuresDict", "features", "sequence", "feature", "tensor", "image", "text", "shape"),
        *("dimensions", "dtype", "encoding", "encodingFormat", "steps", "action", "float64"),
        *("zlib", "bytes", "-1", "2", "7", "999999999999999999", "splits", "shardLengths", "name"),
    ]
)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), _WORDS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_WORDS, inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(leaf=_JSON, root=_JSON)
def test_any_json_beside_the_shard_ends_in_episodes_or_a_reason(leaf: Any, root: Any) -> None:
    features = {"featuresDict": {"features": {"steps/action": leaf}}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_dataset(folder, _TINY[:1], features=features)
        (folder / "dataset_info.json").write_text(json.dumps(root))
        source = _open(folder)
        for entry in source.entries():
            _reads_or_is_refused(source, entry)


def test_dimensions_beyond_all_bounds_lose_only_their_signal(tmp_path: Path) -> None:
    shape = ["999999999999999999"] * 40
    tensor = {"tensor": {"dtype": "float32", "shape": {"dimensions": shape}}}
    features = {"featuresDict": {"features": {"steps/action": tensor}}}
    write_dataset(tmp_path, _TINY[:1], features=features)
    source = _open(tmp_path)
    reading = source.read(source.entries()[0])
    assert [f.reason for f in reading.findings if f.severity == "error"] == ["wrong-count"]
    assert "is_first" in reading.episode.features

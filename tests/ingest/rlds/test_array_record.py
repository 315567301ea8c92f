"""ArrayRecord shards, written by the package itself."""

import sys
from pathlib import Path

import numpy as np
import pytest

from ingest.errors import EpisodeError, MissingReaderError, SourceError
from ingest.pipeline import ingest_sources
from ingest.rlds.source import RldsSource, recognises
from ingest.source import SourceOptions
from lake import Lake, visible_episodes
from tests.ingest.rlds_files import episode, serialise, write_dataset

module = pytest.importorskip("array_record.python.array_record_module")

_NAME = "toy-train.array_record-00000-of-00001"


def _write(folder: Path, count: int = 3) -> Path:
    examples = [episode(4, seed) for seed in range(count)]
    write_dataset(folder, examples, fileFormat="array_record").unlink()
    writer = module.ArrayRecordWriter(str(folder / _NAME), "group_size:1")
    for example in examples:
        writer.write(serialise(example))
    writer.close()
    return folder / _NAME


def test_an_array_record_dataset_is_read(tmp_path: Path, lake: Lake) -> None:
    shard = _write(tmp_path)
    assert recognises(tmp_path)
    assert recognises(shard)
    [counts] = ingest_sources([tmp_path], lake).sources
    assert (counts.written, counts.format) == (3, "rlds-array-record")
    source = RldsSource(tmp_path, SourceOptions())
    assert not source.findings()
    for seed, entry in enumerate(source.entries()):
        found = source.read(entry).episode
        expected = episode(4, seed)
        actions = expected["steps/action"].astype(np.float32)
        np.testing.assert_array_equal(found.features["action"], actions)
        files = b"".join(expected["steps/observation/image"])
        assert bytes(found.cameras["image"].payload) == files
    assert visible_episodes(lake).num_rows == 3


def test_content_tells_it_whatever_its_name(tmp_path: Path) -> None:
    path = _write(tmp_path).rename(tmp_path / "episodes.bin")
    assert recognises(path)
    assert RldsSource(path, SourceOptions()).format == "rlds-array-record"


@pytest.mark.parametrize("size", [0, 100, 65536, 100_000])
def test_one_that_was_cut_is_refused(tmp_path: Path, size: int) -> None:
    shard = _write(tmp_path)
    shard.write_bytes(shard.read_bytes()[:size])
    with pytest.raises(SourceError) as raised:
        RldsSource(shard, SourceOptions())
    assert raised.value.reason == "damaged-shard"


def test_a_damaged_record_is_refused_alone(tmp_path: Path) -> None:
    shard = _write(tmp_path)
    data = bytearray(shard.read_bytes())
    wanted = RldsSource(tmp_path, SourceOptions())
    filled = np.flatnonzero(np.frombuffer(data, np.uint8)[64 : 1 << 16]) + 64
    data[filled[len(filled) // 2]] ^= 0xFF  # inside the second of three like records
    shard.write_bytes(data)
    outcomes = []
    for entry in wanted.entries():
        try:
            wanted.read(entry)
            outcomes.append("read")
        except EpisodeError as error:
            outcomes.append(error.reason)
    assert outcomes == ["read", "bad-record", "read"]


def test_without_the_package_it_is_known_and_the_extra_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = _write(tmp_path)
    monkeypatch.setitem(sys.modules, "array_record.python", None)
    assert recognises(shard)
    with pytest.raises(MissingReaderError, match=r"headrace\[rlds\]"):
        RldsSource(tmp_path, SourceOptions())

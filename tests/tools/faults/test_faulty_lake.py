"""A lake whose reads fail."""

from pathlib import Path

import pytest

from lake import Lake, read_signals, visible_episodes
from lake.errors import CorruptDataError, LakeError
from lake.read_video import ByteRange, read_ranges, read_video_indexes
from lake.take import take_rows
from tests.loader import scenes
from tools.faults.fault import Fault, Kind
from tools.faults.faulty_lake import Faults, faulty_lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return scenes.scene_lake(Path(tmp_path_factory.mktemp("faulty")))


@pytest.fixture(scope="module")
def addresses(lake: Lake) -> list[int]:
    rows: list[int] = visible_episodes(lake, ["episode_id"])["address"].to_pylist()
    return rows


def _faulty(lake: Lake, kind: Kind, **options: object) -> tuple[Lake, Faults]:
    faults = Faults([Fault(kind=kind, most=1, **options)])  # type: ignore[arg-type]  # of the tests
    return faulty_lake(lake, faults).at(lake.versions()), faults


def test_a_read_fails_once(lake: Lake, addresses: list[int]) -> None:
    for kind, words in (("slow_down", "os error 5"), ("stall", "os error 110")):
        faulty, faults = _faulty(lake, kind, hold_s=0.0)  # type: ignore[arg-type]  # each is a kind
        with pytest.raises(LakeError, match=words):
            take_rows(faulty, addresses, ["episode_id"])
        assert take_rows(faulty, addresses, ["episode_id"]).num_rows == len(addresses)
        assert faults.injected == {kind: 1}


def test_rows_are_missing_or_wrong_once(lake: Lake, addresses: list[int]) -> None:
    faulty, _ = _faulty(lake, "truncate")
    with pytest.raises(LakeError, match="os error 5"):
        read_signals(faulty, addresses)
    faulty, _ = _faulty(lake, "flip")
    with pytest.raises(CorruptDataError, match="checksum"):
        read_signals(faulty, addresses)
    assert len(read_signals(faulty, addresses)) == len(addresses)


@pytest.mark.parametrize("kind", ["truncate", "flip", "slow"])
def test_bytes_are_missing_or_wrong_once(lake: Lake, addresses: list[int], kind: Kind) -> None:
    lengths = [
        sum(index.num_bytes for index in v.cameras.values())
        for v in read_video_indexes(lake, addresses)
    ]
    ranges = [ByteRange(a, 0, n) for a, n in zip(addresses, lengths, strict=True) if n]
    right = read_ranges(lake, ranges)
    faulty, _ = _faulty(lake, kind, hold_s=0.0)
    if kind == "truncate":
        with pytest.raises(LakeError, match="read video: incomplete"):
            read_ranges(faulty, ranges)
    else:
        first = read_ranges(faulty, ranges)
        wrong = [(x ^ y).bit_count() for x, y in zip(first[0], right[0], strict=True)]
        assert sum(wrong) == (kind == "flip")
        assert first[1:] == right[1:]
    assert read_ranges(faulty, ranges) == right


def test_other_tables_are_left_alone(lake: Lake) -> None:
    faulty, faults = _faulty(lake, "slow_down")
    assert faulty.dataset("episodes").count_rows() == scenes.EPISODES
    assert faults.injected == {}

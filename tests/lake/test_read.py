"""Reading by address and id, in batches; damage and absence are named."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lake import (
    ByteRange,
    Episode,
    EpisodeWriter,
    FeatureSpec,
    Lake,
    Spec,
    find_episode,
    open_lake,
    read_episode,
    read_ranges,
    read_signals,
    read_steps,
    read_video_indexes,
    visible_episodes,
)
from lake.errors import CorruptDataError, EpisodeNotFoundError, LakeError, SpecError
from lake.take import take_rows
from tests.episodes import make_episode
from tests.lake.addresses import addresses_of

_PARENS = str.maketrans("[]", "()")


def test_signals_come_in_the_order_asked(lake: Lake, episodes: list[Episode]) -> None:
    addresses = addresses_of(lake)
    order = [4, 0, 3, 0, 1]
    got = read_signals(lake, [addresses[episodes[i].episode_id] for i in order])
    for signals, number in zip(got, order, strict=True):
        wanted = episodes[number]
        assert signals.episode_id == wanted.episode_id
        assert signals.address == addresses[wanted.episode_id]
        assert signals.num_steps == wanted.num_steps
        assert signals.spec == wanted.spec
        for name, values in wanted.features.items():
            np.testing.assert_array_equal(signals.features[name], values)
            assert signals.features[name].dtype == values.dtype
    assert read_signals(lake, []) == []


def test_signals_are_one_request(
    lake: Lake, episodes: list[Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.spec(episodes[0].spec.spec_id)
    takes: list[int] = []

    def counted(lake: Lake, addresses: Sequence[int], columns: Sequence[str]) -> pa.Table:
        takes.append(len(addresses))
        return take_rows(lake, addresses, columns)

    monkeypatch.setattr("lake.read.take_rows", counted)
    read_signals(lake, list(addresses_of(lake).values()), ["state"])
    assert takes == [5]


def test_only_the_features_asked_for(lake: Lake, episodes: list[Episode]) -> None:
    got = read_signals(lake, list(addresses_of(lake).values()), ["state"])
    assert [list(signals.features) for signals in got] == [["state"]] * 5
    assert {signals.features["state"].dtype.name for signals in got} == {"float32", "float64"}
    with pytest.raises(SpecError, match=r"has a feature torque; there are action, note, state"):
        read_signals(lake, [0], ["torque"])
    assert len(episodes) == 5


def test_an_episode_without_the_feature_does_not_have_it(
    lake: Lake, episodes: list[Episode]
) -> None:
    spec = Spec(features=(FeatureSpec(name="torque", source_name="t", dtype="int8", shape=()),))
    other = make_episode(9, steps=2, spec=spec, features={"torque": np.array([1, 2], np.int8)})
    with EpisodeWriter(lake) as writer:
        writer.add(other)
    addresses = addresses_of(lake)
    got = read_signals(
        lake, [addresses[episodes[0].episode_id], addresses[other.episode_id]], ["torque"]
    )
    assert [list(signals.features) for signals in got] == [[], ["torque"]]


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (2, 5), (0, 5), (4, 5)])
def test_a_range_of_steps(lake: Lake, episodes: list[Episode], start: int, stop: int) -> None:
    wanted = episodes[0]
    got = read_steps(lake, wanted.episode_id, start, stop, ["action"])
    assert (got.step_offset, got.num_steps) == (start, stop - start)
    np.testing.assert_array_equal(got.features["action"], wanted.features["action"][start:stop])
    np.testing.assert_array_equal(got.timestamps_ns, wanted.timestamps_ns[start:stop])


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 6), (3, 3), (4, 2), (5, 6)])
def test_a_range_outside_is_an_error_and_never_clamped(
    lake: Lake, episodes: list[Episode], start: int, stop: int
) -> None:
    with pytest.raises(SpecError, match="not inside its 5 steps"):
        read_steps(lake, episodes[0].episode_id, start, stop)


@pytest.mark.parametrize(
    "read",
    [
        lambda lake: find_episode(lake, "it's not here"),
        lambda lake: read_episode(lake, "it's not here"),
        lambda lake: read_steps(lake, "it's not here", 0, 1),
    ],
)
def test_an_unknown_id_is_named(lake: Lake, read: Callable[[Lake], object]) -> None:
    with pytest.raises(EpisodeNotFoundError, match=r"no episode .*s not here"):
        read(lake)


@pytest.mark.parametrize("bad", [5, 1 << 32 | 9, 99 << 32, 2**63])
@pytest.mark.parametrize(
    "read",
    [
        read_signals,
        read_video_indexes,
        lambda lake, addresses: read_ranges(lake, [ByteRange(a, 0, 1) for a in addresses]),
    ],
)
def test_an_address_that_was_never_written(
    lake: Lake, episodes: list[Episode], bad: int, read: Callable[[Lake, list[int]], object]
) -> None:
    good = addresses_of(lake)[episodes[0].episode_id]
    with pytest.raises(EpisodeNotFoundError, match=f"no row at address {bad} in version"):
        read(lake, [good, bad])


def test_a_deleted_row_is_named_and_the_pinned_version_still_has_it(
    lake: Lake, episodes: list[Episode]
) -> None:
    addresses = addresses_of(lake)
    pinned = lake.at(lake.versions())
    gone = addresses[episodes[1].episode_id]
    lake.latest("trajectories").delete(f"episode_id = '{episodes[1].episode_id}'")
    lake.refresh()
    assert episodes[1].episode_id not in visible_episodes(lake)["episode_id"].to_pylist()
    for call in (
        lambda: read_signals(lake, [addresses[episodes[0].episode_id], gone]),
        lambda: read_ranges(lake, [ByteRange(gone, 0, 1)]),
    ):
        with pytest.raises(EpisodeNotFoundError, match=f"no row at address {gone}"):
            call()
    kept = read_signals(lake, [addresses[episodes[2].episode_id]])[0]
    assert kept.episode_id == episodes[2].episode_id
    assert read_signals(pinned, [gone])[0].episode_id == episodes[1].episode_id


def test_a_flipped_byte_of_video_is_found(lake: Lake, episodes: list[Episode]) -> None:
    payload = bytes(episodes[2].cameras["wrist"].payload)
    needle = payload[40:80]
    for path in Path(lake.uri, "trajectories.lance", "data").rglob("*"):
        data = bytearray(path.read_bytes()) if path.is_file() else bytearray()
        if (at := data.find(needle)) >= 0:
            data[at] ^= 1
            path.write_bytes(data)
    with pytest.raises(CorruptDataError, match=r"episode_000002.*camera wrist: .*packet \d+"):
        read_episode(open_lake(lake.uri), episodes[2].episode_id)
    assert read_episode(open_lake(lake.uri), episodes[0].episode_id).num_steps == 5


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("timestamps_checksum", "1", "timestamps_ns does not match"),
        ("feature_checksums", "[1, 2, 3]", "state does not match"),
        ("video_index_checksums", "[1, 2]", "camera top: video index does not match"),
        ("facts_checksum", "1", "facts do not match"),
        ("num_steps", "7", "timestamps for 7 steps"),
        ("locator", "'elsewhere'", "facts do not match"),
        ("camera_widths", "[1, 1]", None),
    ],
)
def test_changed_columns_are_found(
    lake: Lake, episodes: list[Episode], column: str, value: str, message: str | None
) -> None:
    array = value if not value.startswith("[") else f"make_array{value.translate(_PARENS)}"
    kind = {"camera_widths": "Int32"}.get(column, "UInt64")
    expression = f"arrow_cast({array}, 'List({kind})')" if array != value else value
    lake.latest("trajectories").update(
        {column: expression}, where=f"episode_id = '{episodes[0].episode_id}'"
    )
    lake.refresh()
    if message is None:
        assert read_episode(lake, episodes[0].episode_id).num_steps == 5
        return
    with pytest.raises(CorruptDataError, match=message):
        read_episode(lake, episodes[0].episode_id)


def test_no_flipped_byte_on_disk_goes_unnoticed(lake: Lake) -> None:
    episode = make_episode(1, steps=40, camera_names=("top",), packet_bytes=30)
    with EpisodeWriter(lake) as writer:
        writer.add(episode)
    [path] = Path(lake.uri, "trajectories.lance", "data").glob("*.lance")
    good = path.read_bytes()
    rng = np.random.default_rng(7)
    outcomes = {"equal": 0, "error": 0}
    for at in rng.choice(len(good), 60, replace=False).tolist():
        bad = bytearray(good)
        bad[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        try:
            got = read_episode(open_lake(lake.uri), episode.episode_id)
        except LakeError:
            outcomes["error"] += 1
            continue
        assert got.content_sha256() == episode.content_sha256(), at
        assert got.provenance == episode.provenance, at
        outcomes["equal"] += 1
    assert outcomes["error"] > 30  # the rest are padding and unread statistics


def test_what_is_read_names_its_versions(lake: Lake, episodes: list[Episode]) -> None:
    rows = lake.dataset("commits").to_table().to_pylist()
    assert len(rows) == len(episodes)
    versions = [json.loads(row["versions_json"]) for row in rows]
    assert {frozenset(v) for v in versions} == {
        frozenset({"specs", "episodes", "stats", "trajectories"})
    }
    assert max(v["trajectories"] for v in versions) == lake.dataset("trajectories").version

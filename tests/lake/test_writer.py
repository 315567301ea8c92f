"""What is written comes back equal; what cannot be kept is refused; nothing is doubled."""

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest

from lake import (
    Episode,
    EpisodeWriter,
    FeatureSpec,
    Lake,
    QuarantineEntry,
    Spec,
    open_lake,
    read_episode,
    visible_episodes,
)
from lake.errors import SpecError
from lake.feature_stats import FeatureStats
from lake.spec import DTYPES
from tests.episodes import make_episode

LABELS = ("task", "instruction", "success", "split", "tags", "fps", "source", "dataset")


def write(lake: Lake, *episodes: Episode, **options: int) -> EpisodeWriter:
    with EpisodeWriter(lake, **options) as writer:
        for episode in episodes:
            writer.add(episode)
    return writer


def assert_equal(got: Episode, wanted: Episode) -> None:
    assert got.content_sha256() == wanted.content_sha256()
    assert got.spec == wanted.spec
    assert got.provenance == wanted.provenance
    assert got.timestamps_ns.tobytes() == wanted.timestamps_ns.tobytes()
    for name in LABELS:
        assert getattr(got, name) == getattr(wanted, name), name
    assert set(got.features) == set(wanted.features)
    for name, values in wanted.features.items():
        np.testing.assert_array_equal(got.features[name], values)
        assert got.features[name].dtype == values.dtype
    assert {n: m.tolist() for n, m in got.valid.items()} == {
        n: m.tolist() for n, m in wanted.valid.items()
    }
    assert list(got.cameras) == list(wanted.cameras)
    for name, video in wanted.cameras.items():
        assert bytes(got.cameras[name].payload) == bytes(video.payload)
        assert got.cameras[name].index.to_bytes() == video.index.to_bytes()


def feature_episode(number: int, dtype: str, shape: tuple[int, ...], **changes: Any) -> Episode:
    """An episode with one feature called `x` of the given type and shape."""
    rng = np.random.default_rng(number)
    steps = 6
    count = steps * int(np.prod(shape))
    values: Any
    if dtype == "string":
        values = np.array([f"t{i}" for i in range(count)], dtype=object)
    elif dtype == "bool":
        values = rng.random(count) > 0.5
    elif dtype.startswith("float"):
        values = rng.normal(size=count).astype(dtype)
    else:
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, count, dtype=dtype, endpoint=True)
    spec = Spec(features=(FeatureSpec(name="x", source_name="x", dtype=dtype, shape=shape),))
    return make_episode(
        number, steps=steps, spec=spec, features={"x": values.reshape(steps, *shape)}, **changes
    )


@pytest.mark.parametrize("cameras", [(), ("top",), ("top", "wrist", "side")])
def test_an_episode_comes_back_as_it_was(lake: Lake, cameras: tuple[str, ...]) -> None:
    episode = make_episode(1, camera_names=cameras)
    write(lake, episode)
    assert_equal(read_episode(lake, episode.episode_id), episode)


def test_many_types_and_shapes_share_a_lake(lake: Lake) -> None:
    shapes: list[tuple[int, ...]] = [(), (7,), (2, 3), (1, 1, 2)]
    episodes = [
        feature_episode(number, dtype, shape)
        for number, (dtype, shape) in enumerate((d, s) for d in DTYPES for s in shapes)
    ]
    write(lake, *episodes)
    for episode in episodes:
        assert_equal(read_episode(lake, episode.episode_id), episode)
    stored = set(lake.dataset("trajectories").schema.names)
    assert {"x", "x:float64", "x:string", "x:bool", "x:uint64"} <= stored


def test_validity_comes_back_and_nan_is_demanded(lake: Lake) -> None:
    plain = make_episode(1)
    valid = np.arange(plain.num_steps) % 3 > 0
    action = np.where(valid[:, None], plain.features["action"], np.float32("nan"))
    episode = make_episode(
        1, features={**plain.features, "action": action}, valid={"action": valid}
    )
    write(lake, episode)
    assert_equal(read_episode(lake, episode.episode_id), episode)
    with pytest.raises(SpecError, match="must be NaN"):
        write(lake, make_episode(2, valid={"action": valid}))


def test_episodes_without_labels_rates_or_some_features(lake: Lake) -> None:
    plain = make_episode(1)
    bare = make_episode(
        1,
        features={"state": plain.features["state"]},
        task=None,
        instruction=None,
        success=None,
        split=None,
        tags=(),
        fps=None,
    )
    write(lake, bare)
    assert_equal(read_episode(lake, bare.episode_id), bare)


@pytest.mark.parametrize("steps", [1, 2, 5000])
def test_lengths_from_one_step(lake: Lake, steps: int) -> None:
    episode = make_episode(1, steps=steps, camera_names=("top",), packet_bytes=20)
    write(lake, episode)
    assert_equal(read_episode(lake, episode.episode_id), episode)


def test_videos_that_lance_keeps_in_files_of_their_own(lake: Lake) -> None:
    episodes = [
        make_episode(1, camera_names=("top",), packet_bytes=600_000),  # one file
        make_episode(2, camera_names=("top", "wrist"), packet_bytes=30_000),  # packed
        make_episode(3, camera_names=("top",), packet_bytes=10),  # inline
        make_episode(4),
    ]
    assert episodes[0].cameras["top"].index.num_bytes > 4 << 20
    write(lake, *episodes)
    for episode in episodes:
        assert_equal(read_episode(lake, episode.episode_id), episode)


def test_big_lists(lake: Lake) -> None:
    spec = Spec(
        features=(FeatureSpec(name="depth", source_name="d", dtype="uint16", shape=(240, 320)),)
    )
    depth = np.random.default_rng(0).integers(0, 65536, (30, 240, 320), dtype=np.uint16)
    episode = make_episode(1, steps=30, spec=spec, features={"depth": depth})
    write(lake, episode)
    assert_equal(read_episode(lake, episode.episode_id), episode)
    [row] = lake.dataset("stats").to_table().to_pylist()
    assert (row["count"], row["mean"]) == (30, [])


def test_a_rate_given_as_a_whole_number_is_read_back(lake: Lake) -> None:
    episode = dataclasses.replace(make_episode(0, steps=4), fps=5)
    write(lake, episode)
    lake.refresh()
    assert_equal(read_episode(lake, episode.episode_id), episode)


def test_numbers_that_are_not_aligned_come_back(lake: Lake) -> None:
    """As where they are a view into the bytes of a file, behind a header of any length."""
    base = make_episode(0, steps=4)
    features: dict[str, Any] = {}
    for name, values in base.features.items():
        features[name] = values
        if values.dtype != object:
            shifted = np.frombuffer(b"x" + values.tobytes(), np.uint8)[1:]
            features[name] = shifted.view(values.dtype).reshape(values.shape)
    assert any(not values.flags.aligned for values in features.values())
    write(lake, dataclasses.replace(base, features=features))
    lake.refresh()
    assert_equal(read_episode(lake, base.episode_id), base)


def test_memoryview_payloads(lake: Lake) -> None:
    plain = make_episode(1, camera_names=("top",))
    video = plain.cameras["top"]
    whole = b"before" + bytes(video.payload) + b"after"
    view = memoryview(whole)[6:-5]
    episode = make_episode(1, cameras={"top": type(video)(index=video.index, payload=view)})
    write(lake, episode)
    assert_equal(read_episode(lake, episode.episode_id), episode)


def test_a_second_write_changes_nothing(lake: Lake) -> None:
    episodes = [make_episode(number) for number in range(5)]
    first = write(lake, *episodes).report
    assert (first.written, first.present, first.commits) == (5, 0, 1)
    versions = lake.versions()
    again = write(lake, *episodes).report
    assert (again.written, again.present, again.commits) == (0, 5, 0)
    assert lake.versions() == versions
    assert visible_episodes(lake).num_rows == 5


def test_the_same_episode_twice_in_one_batch_is_one(lake: Lake) -> None:
    writer = write(lake, make_episode(1), make_episode(1))
    assert writer.report.written == 1
    assert visible_episodes(lake).num_rows == 1


def test_an_id_belongs_to_one_episode(lake: Lake) -> None:
    write(lake, make_episode(1))
    taken = make_episode(1).episode_id
    with pytest.raises(SpecError, match="another episode of this id"):
        write(lake, make_episode(2, episode_id=taken))
    with pytest.raises(SpecError, match="another episode of this id"):
        write(lake, make_episode(3), make_episode(4, episode_id=make_episode(3).episode_id))


@pytest.mark.parametrize(
    ("options", "commits"),
    [({"batch_episodes": 2}, 3), ({"batch_bytes": 1}, 5), ({}, 1), ({"batch_episodes": 5}, 1)],
)
def test_batches_bound_what_is_held(lake: Lake, options: dict[str, int], commits: int) -> None:
    writer = write(lake, *[make_episode(number) for number in range(5)], **options)
    assert writer.report.commits == commits
    assert writer.report.written == visible_episodes(lake).num_rows == 5
    assert len(lake.dataset("trajectories").get_fragments()) == commits


def test_an_exception_leaves_what_was_committed_and_no_more(lake: Lake) -> None:
    def fails() -> None:
        with EpisodeWriter(lake, batch_episodes=2) as writer:
            for number in range(5):
                writer.add(make_episode(number))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    lake.refresh()
    assert visible_episodes(lake).num_rows == 4
    assert write(lake, *[make_episode(number) for number in range(5)]).report.written == 1


def test_has_knows_visible_pending_and_unknown(lake: Lake) -> None:
    first, second, third = (make_episode(number) for number in range(3))
    write(lake, first)
    with EpisodeWriter(lake) as writer:
        writer.add(second)
        keys = [episode.ingest_key for episode in (first, second, third)]
        assert [writer.has(key) for key in keys] == [True, True, False]
        assert writer.has(first.ingest_key)
    assert writer.report.present == 1


def test_refusals_are_kept_once(lake: Lake) -> None:
    entry = QuarantineEntry(
        source="s", episode="e1", stream="top", reason="no-frames", detail="0 of 5 frames"
    )
    other = QuarantineEntry(source="s", episode="e2", stream="", reason="empty", detail="no steps")
    counts = []
    for entries in ([entry, entry, other], [entry]):
        with EpisodeWriter(lake) as writer:
            for refusal in entries:
                writer.refuse(refusal)
        counts.append(writer.report.quarantined)
    assert counts == [2, 0]
    rows = lake.dataset("quarantine").to_table().to_pylist()
    assert sorted((r["episode"], r["stream"], r["reason"]) for r in rows) == [
        ("e1", "top", "no-frames"),
        ("e2", "", "empty"),
    ]
    assert all(row["time_ns"] > 0 for row in rows)


def test_labels_and_stats_are_written(lake: Lake) -> None:
    episode = make_episode(3)
    write(lake, episode)
    [label] = lake.dataset("episodes").to_table().to_pylist()
    assert label["episode_id"] == episode.episode_id
    assert (label["task"], label["success"], label["num_steps"]) == ("lift", True, 12)
    rows = {row["feature"]: row for row in lake.dataset("stats").to_table().to_pylist()}
    assert set(rows) == {"state", "action", "note"}
    stats = FeatureStats.of(episode.features["state"])
    assert rows["state"]["mean"] == stats.mean.tolist()
    assert rows["state"]["sketch"] == stats.quantiles.ravel().tolist()
    assert rows["note"]["count"] == 12


def test_writers_with_new_features_at_once(lake: Lake) -> None:
    errors: list[BaseException] = []
    barrier = threading.Barrier(4)

    def run(thread: int) -> None:
        try:
            barrier.wait()
            for batch in range(2):
                name = f"extra_{thread}_{batch}"
                spec = Spec(
                    features=(FeatureSpec(name=name, source_name=name, dtype="int16", shape=()),)
                )
                values = np.full(3, 10 * thread + batch, np.int16)
                write(
                    open_lake(lake.uri),
                    make_episode(10 * thread + batch, steps=3, spec=spec, features={name: values}),
                )
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    lake.refresh()
    ids = visible_episodes(lake)["episode_id"].to_pylist()
    assert len(ids) == 8
    found = sorted(
        int(values[0]) for i in ids for values in read_episode(lake, i).features.values()
    )
    assert found == [0, 1, 10, 11, 20, 21, 30, 31]


def test_timestamps_must_be_integers(lake: Lake) -> None:
    with pytest.raises(SpecError, match="timestamps_ns is float64"):
        write(lake, make_episode(1, timestamps_ns=np.arange(12.0)))

"""Parts of episodes, and episodes joined: read like any other, bit for bit what was recorded."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lake import (
    ByteRange,
    Episode,
    EpisodeWriter,
    Lake,
    create_lake,
    open_lake,
    read_episode,
    read_frames,
    read_ranges,
    read_raw,
    read_signals,
    read_steps,
    read_video_indexes,
    visible_episodes,
)
from lake.edit.apply import Author
from lake.edit.rearrange import merge_episodes, split_episode
from lake.edit.view import is_view
from lake.errors import CorruptDataError, EditError, EpisodeNotFoundError, LakeError
from lake.take import take_rows
from tests.episodes import make_episode, make_filmed_episode
from tests.lake.addresses import addresses_of

BY = Author(who="test")
Steps = Sequence[tuple[Episode, int, int]]


def write(lake: Lake, *episodes: Episode) -> Lake:
    with EpisodeWriter(lake) as writer:
        for episode in episodes:
            writer.add(episode)
    return lake


def masked(number: int, steps: int) -> Episode:
    """Filmed, with steps of the action that alignment could not fill, and steps not filmed."""
    episode = make_filmed_episode(number, steps=steps, camera_names=("top", "wrist"), gop=4)
    valid = np.ones(steps, np.bool_)
    valid[1::3] = False
    action = episode.features["action"].copy()
    action[~valid] = np.nan
    top = episode.cameras["top"]
    shown = top.index.step_to_frame.copy()
    shown[2::5] = -1
    cameras = {
        **episode.cameras,
        "top": replace(top, index=replace(top.index, step_to_frame=shown)),
    }
    features = {**episode.features, "action": action}
    return replace(episode, features=features, valid={"action": valid}, cameras=cameras)


def assert_consists_of(lake: Lake, whole: Lake, episode_id: str, steps: Steps) -> Episode:
    """An episode has these steps of episodes that `whole` has as they were recorded."""
    found = read_episode(lake, episode_id)
    assert found.num_steps == sum(stop - start for _, start, stop in steps)
    for name, values in found.features.items():
        expected = np.concatenate([e.features[name][a:b] for e, a, b in steps])
        np.testing.assert_array_equal(values, expected)
        assert values.dtype == expected.dtype
    for name, mask in found.valid.items():
        parts = [
            e.valid[name][a:b] if name in e.valid else np.ones(b - a, bool) for e, a, b in steps
        ]
        np.testing.assert_array_equal(mask, np.concatenate(parts))
    assert set(found.valid) == {name for e, _, _ in steps for name in e.valid}
    at = 0
    for episode, start, stop in steps:
        for name, video in episode.cameras.items():
            shown = video.index.step_to_frame[start:stop] >= 0
            mine = found.cameras[name].index.step_to_frame[at : at + stop - start]
            np.testing.assert_array_equal(mine >= 0, shown)
            asked = np.flatnonzero(shown)
            np.testing.assert_array_equal(
                read_frames(lake, episode_id, name, (asked + at).tolist()),
                read_frames(whole, episode.episode_id, name, (asked + start).tolist()),
            )
        at += stop - start
    return found


def test_parts_are_the_steps_of_the_episode(lake: Lake) -> None:
    episode = masked(1, 17)
    whole = write(lake, episode, make_filmed_episode(2)).newest()
    edit = split_episode(lake, episode.episode_id, [1, 6, 13], BY)
    assert edit.detail == {"at": [1, 6, 13]}
    bounds = [(0, 1), (1, 6), (6, 13), (13, 17)]
    for name, (start, stop) in zip(edit.shown, bounds, strict=True):
        found = assert_consists_of(open_lake(lake.uri), whole, name, [(episode, start, stop)])
        np.testing.assert_array_equal(found.timestamps_ns, episode.timestamps_ns[start:stop])
        assert (found.task, found.instruction, found.tags) == (
            *(episode.task, episode.instruction),
            episode.tags,
        )
        assert found.provenance.locator == f"episode 1, steps {start} to {stop - 1}"
    assert [is_view(address) for address in addresses_of(lake).values()] == [False] + [True] * 4
    last = read_steps(lake, edit.shown[3], 1, 3, ["action"])
    np.testing.assert_array_equal(last.features["action"], episode.features["action"][14:16])


@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(
    cuts=st.sets(st.integers(1, 16), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_parts_joined_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, cuts: set[int], order: Random
) -> None:
    episode = masked(3, 17)
    lake = write(create_lake(tmp_path_factory.mktemp("cuts") / "x.lake"), episode)
    whole = lake.newest()
    parts = list(split_episode(lake, episode.episode_id, sorted(cuts), BY).shown)
    bounds = dict(zip(parts, pairwise([0, *sorted(cuts), 17]), strict=True))
    order.shuffle(parts)
    merged = merge_episodes(lake, parts, BY, gap_ns=7).shown[0]
    steps = [(episode, *bounds[part]) for part in parts]
    found = assert_consists_of(lake, whole, merged, steps)
    assert (np.diff(found.timestamps_ns) > 0).all()
    # And cut again, over the seams.
    left, right = split_episode(lake, merged, [8], BY).shown
    flat = [step for _, a, b in steps for step in range(a, b)]
    for name, mine in ((left, flat[:8]), (right, flat[8:])):
        ends = [n for n in range(1, len(mine)) if mine[n] != mine[n - 1] + 1]
        runs = [mine[a:b] for a, b in pairwise([0, *ends, len(mine)])]
        assert_consists_of(lake, whole, name, [(episode, r[0], r[-1] + 1) for r in runs])


def test_episodes_joined(lake: Lake) -> None:
    one, two = masked(1, 9), make_filmed_episode(2, steps=7, camera_names=("top", "wrist"), gop=3)
    whole = write(lake, one, two).newest()
    with pytest.raises(EditError, match=r"begins 0\.800 s before the end of the one before it"):
        merge_episodes(lake, [one.episode_id, two.episode_id], BY)
    edit = merge_episodes(
        lake, [one.episode_id, two.episode_id], BY, gap_ns=50_000_000, merged_id="both"
    )
    found = assert_consists_of(lake, whole, "both", [(one, 0, 9), (two, 0, 7)])
    np.testing.assert_array_equal(found.timestamps_ns[:9], one.timestamps_ns)
    np.testing.assert_array_equal(found.timestamps_ns[9:], two.timestamps_ns + 850_000_000)
    assert edit.hidden == (one.episode_id, two.episode_id)
    assert (found.task, found.instruction, found.success) == ("lift", None, None)
    assert visible_episodes(lake)["episode_id"].to_pylist() == ["both"]


def test_bags_that_follow_each_other_need_no_gap(lake: Lake) -> None:
    one = make_episode(1, steps=6)
    two = replace(make_episode(2, steps=5), timestamps_ns=one.timestamps_ns[:5] + 10**9)
    write(lake, one, two)
    ids = [one.episode_id, two.episode_id]
    dry = merge_episodes(lake, ids, BY, dry_run=True)
    assert (dry.number, dry.views[0].facts["num_steps"]) == (0, 11)
    assert visible_episodes(lake)["episode_id"].to_pylist() == ids
    merged = merge_episodes(lake, ids, BY).shown[0]
    stamps = read_episode(lake, merged).timestamps_ns
    np.testing.assert_array_equal(stamps, [*one.timestamps_ns, *two.timestamps_ns])
    assert merged == f"{one.episode_id}+1"


def test_a_camera_that_one_lacks_shows_nothing_there(lake: Lake) -> None:
    one = make_filmed_episode(1, steps=5, camera_names=("top", "wrist"))
    two = replace(
        make_filmed_episode(2, steps=4, camera_names=("top", "wrist")),
        cameras={"top": make_filmed_episode(2, steps=4).cameras["top"]},
    )
    whole = write(lake, one, two).newest()
    merged = merge_episodes(lake, [two.episode_id, one.episode_id], BY, gap_ns=1).shown[0]
    found = assert_consists_of(lake, whole, merged, [(two, 0, 4), (one, 0, 5)])
    assert (found.cameras["wrist"].index.step_to_frame[:4] == -1).all()
    part = split_episode(lake, merged, [4], BY).shown[0]
    assert list(read_episode(lake, part).cameras) == ["top"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: make_episode(2, dtype="float64"), "differ in spec"),
        (lambda: make_episode(2, dataset="elsewhere"), "differ in dataset"),
        (lambda: make_episode(2, fps=12.0), "differ in fps"),
        (lambda: make_episode(2, embodiment="arm-2"), "differ in embodiment"),
        (
            lambda: replace(
                make_episode(2),
                features={n: v for n, v in make_episode(2).features.items() if n != "note"},
            ),
            "have different features",
        ),
    ],
)
def test_what_was_recorded_differently_is_not_joined(
    lake: Lake, other: Callable[[], Episode], message: str
) -> None:
    write(lake, make_episode(1), other())
    ids = visible_episodes(lake)["episode_id"].to_pylist()
    with pytest.raises(EditError, match=message):
        merge_episodes(lake, ids, BY, gap_ns=1)
    assert visible_episodes(lake)["episode_id"].to_pylist() == ids


def test_videos_of_other_sizes_are_not_joined(lake: Lake) -> None:
    one, two = make_filmed_episode(1), make_filmed_episode(2, height=64, width=80)
    write(lake, one, two)
    with pytest.raises(EditError, match="camera top: width is 64 in one and 80 in another"):
        merge_episodes(lake, [one.episode_id, two.episode_id], BY, gap_ns=1)


def test_videos_that_do_not_decode_as_one_are_not_joined(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = make_filmed_episode(1), make_filmed_episode(2)
    write(lake, one, two)
    from lake.edit import make_view

    real = make_view._digests
    calls: list[int] = []

    def seam(*arguments: object) -> dict[int, int]:
        calls.append(1)
        found = real(*arguments)  # type: ignore[arg-type]
        return {n: d + (len(calls) == 1 and n == 12) for n, d in found.items()}

    monkeypatch.setattr(make_view, "_digests", seam)
    with pytest.raises(EditError, match="cannot be decoded as one"):
        merge_episodes(lake, [one.episode_id, two.episode_id], BY, gap_ns=1)


@pytest.mark.parametrize("at", [[], [0], [12], [13], [-1], [5, 5], [7, 3]])
def test_a_split_outside_of_the_episode_is_refused(lake: Lake, at: list[int]) -> None:
    write(lake, make_episode(1))
    with pytest.raises(EditError, match="its 12 steps cannot be split at"):
        split_episode(lake, make_episode(1).episode_id, at, BY)


def test_merges_that_make_no_sense_are_refused(lake: Lake) -> None:
    one, two, three = (make_episode(number) for number in range(3))
    write(lake, one, two, three)
    ids = [one.episode_id, two.episode_id]
    with pytest.raises(EditError, match="needs two episodes or more"):
        merge_episodes(lake, ids[:1], BY)
    with pytest.raises(EditError, match="given twice"):
        merge_episodes(lake, [ids[0], ids[0]], BY)
    with pytest.raises(EditError, match="a gap of 0 ns"):
        merge_episodes(lake, ids, BY, gap_ns=0)
    with pytest.raises(EditError, match="there is or was an episode"):
        merge_episodes(lake, ids, BY, gap_ns=1, merged_id=three.episode_id)


def test_rows_come_in_the_order_asked_for(lake: Lake) -> None:
    one, two = masked(1, 9), masked(2, 12)
    write(lake, one, two)
    parts = split_episode(lake, one.episode_id, [4], BY).shown
    at = addresses_of(lake)
    wanted = [at[parts[1]], at[two.episode_id], at[parts[0]], at[parts[1]]]
    rows = take_rows(lake, wanted, ["episode_id", "num_steps", "fps", "findings"])
    assert rows["episode_id"].to_pylist() == [parts[1], two.episode_id, parts[0], parts[1]]
    assert [c.num_chunks for c in rows.columns] == [1] * 4
    assert (
        rows.schema.field("num_steps").type
        == lake.dataset("trajectories").schema.field("num_steps").type
    )
    signals = read_signals(lake, wanted, ["state"])
    assert [s.num_steps for s in signals] == [5, 12, 4, 5]


def test_byte_ranges_of_views_and_rows_in_one_call(lake: Lake) -> None:
    one, two = masked(1, 9), masked(2, 12)
    write(lake, one, two)
    merged = merge_episodes(lake, [two.episode_id, one.episode_id], BY, gap_ns=5).shown[0]
    third = masked(3, 8)
    write(lake, third)
    at = addresses_of(lake)
    found = read_episode(lake, merged)
    whole = b"".join(bytes(video.payload) for video in found.cameras.values())
    stored = b"".join(bytes(video.payload) for video in third.cameras.values())
    rng = np.random.default_rng(3)
    ranges, expected = [], []
    for _ in range(50):
        name, data = [(merged, whole), (third.episode_id, stored)][rng.integers(2)]
        start, stop = np.sort(rng.integers(0, len(data) + 1, 2)).tolist()
        if start < stop:
            ranges.append(ByteRange(at[name], start, stop - start))
            expected.append(data[start:stop])
    assert read_ranges(lake, ranges) == expected
    with pytest.raises(LakeError, match=f"are not among its {len(whole)} bytes of video"):
        read_ranges(lake, [ByteRange(at[merged], len(whole) - 1, 2)])
    assert read_video_indexes(lake, [at[merged]])[0].episode_id == merged


def test_an_address_of_another_lake_is_named(lake: Lake) -> None:
    write(lake, make_episode(1))
    with pytest.raises(EpisodeNotFoundError, match="no episode at address"):
        take_rows(lake, [1 << 62 | 5], ["episode_id"])


def test_a_view_reads_on_when_its_rows_move_or_are_hidden(lake: Lake) -> None:
    episode = masked(1, 10)
    whole = write(lake, episode).newest()
    parts = split_episode(lake, episode.episode_id, [4], BY).shown
    pinned = lake.newest()
    split_episode(lake, parts[1], [2], BY)
    assert_consists_of(pinned, whole, parts[1], [(episode, 4, 10)])


def test_a_flipped_byte_under_a_view_is_named(lake: Lake) -> None:
    from pathlib import Path

    episode = make_episode(1, steps=40, camera_names=("top",))
    write(lake, episode)
    part = split_episode(lake, episode.episode_id, [20], BY).shown[1]
    (file,) = Path(f"{lake.uri}/trajectories.lance/data").glob("*.lance")
    data = bytearray(file.read_bytes())
    needle = episode.features["state"][25].tobytes()
    assert data.count(needle) == 1
    data[data.find(needle)] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptDataError, match="state does not match its checksum"):
        read_episode(open_lake(lake.uri), part)


def test_a_part_has_no_recording_of_its_own(lake: Lake) -> None:
    write(lake, make_episode(1))
    part = split_episode(lake, make_episode(1).episode_id, [4], BY).shown[0]
    with pytest.raises(EpisodeNotFoundError, match="was not recorded as such: it consists of"):
        list(read_raw(lake, part))
    assert list(read_raw(lake, make_episode(1).episode_id)) == []

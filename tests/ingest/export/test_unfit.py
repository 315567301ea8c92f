"""What LeRobot cannot express is refused with its reason, and nothing is left behind."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.depth_png import depth_pngs
from ingest.export.errors import ExportError
from ingest.export.lerobot import plan
from ingest.export.lerobot.schema import Version
from lake import CameraSpec, Episode, FeatureSpec, Spec
from lake.edit.apply import Author
from lake.edit.rearrange import merge_episodes, split_episode
from lake.video_encode import encode_frames
from lake.video_images import images_video
from tests.episodes import make_spec, moving_pictures
from tests.ingest.export.lakes import episodes_of, exported, ingested, lake_of, same_cameras
from tests.ingest.lerobot_data import write_v2

STEPS = 11


def with_spec(episode: Episode, **changes: Any) -> Episode:
    return replace(episode, spec=replace(episode.spec, **changes))


def with_camera(episode: Episode, **changes: Any) -> Episode:
    """The episode, fields of its camera's index changed."""
    video = episode.cameras["top"]
    index = replace(video.index, **changes)
    return replace(episode, cameras={"top": replace(video, index=index)})


def invalid(episode: Episode) -> Episode:
    action = episode.features["action"].copy()
    action[3] = np.nan
    valid = {"action": np.arange(STEPS) != 3}
    return replace(episode, valid=valid, features={**episode.features, "action": action})


def uneven(episode: Episode) -> Episode:
    stamps = episode.timestamps_ns.copy()
    stamps[4:] += 1_000_000
    return replace(episode, timestamps_ns=stamps)


def depth(episode: Episode) -> Episode:
    cameras = tuple(replace(camera, is_depth=True) for camera in episode.spec.cameras)
    return with_spec(episode, cameras=cameras)


def held(episode: Episode) -> Episode:
    return with_camera(episode, step_to_frame=np.arange(STEPS, dtype=np.int32) // 2)


def dark(episode: Episode) -> Episode:
    shown = np.arange(STEPS, dtype=np.int32)
    shown[7] = -1
    return with_camera(episode, step_to_frame=shown)


def texts(episode: Episode) -> Episode:
    feature = FeatureSpec(name="words", source_name="words", dtype="string", shape=(2,))
    values = np.full((STEPS, 2), "a", dtype=object)
    changed = with_spec(episode, features=(*episode.spec.features, feature))
    return replace(changed, features={**episode.features, "words": values})


CASES: dict[str, tuple[Callable[[Episode], Episode], str, str]] = {
    "invalid-steps": (invalid, "action", "1 of 11 steps are invalid"),
    "uneven-steps": (uneven, "", "step 4 comes 0.401000 s after the first"),
    "no-rate": (lambda episode: replace(episode, fps=None), "", "no rate is known"),
    "unfit-depth": (depth, "top", "depth as h264 yuv420p"),
    "rotated": (lambda e: with_camera(e, rotation_deg=90), "top", "by 90 degrees"),
    "unfit-codec": (lambda e: with_camera(e, codec="mpeg4"), "top", "mpeg4 video"),
    "held-pictures": (held, "top", "step 1 shows frame 0"),
    "missing-pictures": (dark, "top", "no picture at 1 of 11 steps, first at step 7"),
    "unfit-text": (texts, "words", "several texts per step"),
}


@pytest.mark.parametrize("reason", CASES)
def test_an_unfit_episode_is_named_and_may_be_skipped(
    tmp_path: Path, reason: str, make_filmed_episode: Callable[..., Episode]
) -> None:
    change, stream, says = CASES[reason]
    fits, unfit = make_filmed_episode(0, steps=STEPS), make_filmed_episode(1, steps=STEPS)
    unfit = change(unfit)
    lake = lake_of(tmp_path / "robots.lake", [fits, unfit])
    with pytest.raises(ExportError) as caught:
        exported(lake, tmp_path / "out")
    message = str(caught.value)
    assert "1 of 2 episodes" in message
    assert unfit.episode_id in message
    assert says in message
    assert "--on-unfit skip" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["robots.lake"]
    report = exported(lake, tmp_path / "out", on_unfit="skip")
    assert report.left_out == 1
    (error,) = [finding for finding in report.findings if finding.severity == "error"]
    assert (error.reason, error.episode, error.stream) == (reason, unfit.episode_id, stream)
    assert [written.episodes for written in report.datasets.values()] == [1]


@pytest.mark.parametrize("reason", ["invalid-steps", "unfit-depth", "held-pictures", "unfit-text"])
def test_the_stream_at_fault_can_be_left_out(
    tmp_path: Path, reason: str, make_filmed_episode: Callable[..., Episode]
) -> None:
    change, stream, _ = CASES[reason]
    lake = lake_of(tmp_path / "robots.lake", [change(make_filmed_episode(steps=STEPS))])
    exported(lake, tmp_path / "out", left_out=[stream])
    (after,) = episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))
    assert stream not in {*after.features, *after.cameras}


def test_only_unfit_episodes_make_no_dataset(
    tmp_path: Path, make_episode: Callable[..., Episode]
) -> None:
    lake = lake_of(tmp_path / "robots.lake", [make_episode(fps=None)])
    with pytest.raises(ExportError, match="no rate is known"):
        exported(lake, tmp_path / "out", on_unfit="skip")
    assert not (tmp_path / "out").exists()


def other_camera(make: Callable[..., Episode]) -> tuple[Episode, str]:
    return make(1, steps=STEPS, camera_names=("top", "side")), "only some have observation.images"


def other_rate(make: Callable[..., Episode]) -> tuple[Episode, str]:
    stamps = np.arange(STEPS, dtype=np.int64) * 50_000_000
    return make(1, steps=STEPS, fps=20.0, timestamps_ns=stamps), "fps is 10.0 and 20.0"


def other_robot(make: Callable[..., Episode]) -> tuple[Episode, str]:
    return make(1, steps=STEPS, embodiment="b"), "robot_type is 'test-arm' and 'b'"


def other_size(make: Callable[..., Episode]) -> tuple[Episode, str]:
    return make(1, steps=STEPS, height=64), "top differs: shape is .48, 64, 3. and .64, 64, 3."


def other_type(make: Callable[..., Episode]) -> tuple[Episode, str]:
    return make(1, steps=STEPS, dtype="float64"), "dtype is float32 and float64"


@pytest.mark.parametrize("other", [other_camera, other_rate, other_robot, other_size, other_type])
def test_episodes_that_differ_make_several_datasets(
    tmp_path: Path,
    other: Callable[[Callable[..., Episode]], tuple[Episode, str]],
    make_filmed_episode: Callable[..., Episode],
) -> None:
    second, says = other(make_filmed_episode)
    lake = lake_of(tmp_path / "robots.lake", [make_filmed_episode(0, steps=STEPS), second])
    with pytest.raises(ExportError, match=says):
        exported(lake, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    report = exported(lake, tmp_path / "out", several=True)
    assert [path.name for path in report.datasets] == ["synthetic", "synthetic-2"]
    after = episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))
    assert {episode.instruction for episode in after} == {"lift block 0", "lift block 1"}


def test_a_camera_that_an_episode_lacks_is_named(
    tmp_path: Path, make_filmed_episode: Callable[..., Episode]
) -> None:
    both = make_filmed_episode(0, steps=STEPS, camera_names=("top", "side"))
    lacking = replace(
        make_filmed_episode(1, steps=STEPS, camera_names=("top", "side")),
        cameras={"top": both.cameras["top"]},
    )
    lake = lake_of(tmp_path / "robots.lake", [both, lacking])
    with pytest.raises(ExportError, match=r"only some have observation\.images\.side"):
        exported(lake, tmp_path / "out")
    exported(lake, tmp_path / "out", left_out=["side"])
    assert len(episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))) == 2


@pytest.mark.parametrize(
    ("renamed", "says"),
    [
        ({"state": "task"}, "another meaning for 'task'"),
        ({"state": "frame_index"}, "another meaning for 'frame_index'"),
        ({"state": "action"}, "would both be called 'action'"),
        ({"stat": "x"}, "no feature or camera is called 'stat'"),
    ],
)
def test_keys_must_be_free(
    tmp_path: Path, renamed: dict[str, str], says: str, make_episode: Callable[..., Episode]
) -> None:
    lake = lake_of(tmp_path / "robots.lake", [make_episode()])
    with pytest.raises(ExportError, match=says):
        exported(lake, tmp_path / "out", renamed=renamed)


def test_a_feature_is_written_under_the_key_given(
    tmp_path: Path, make_episode: Callable[..., Episode]
) -> None:
    lake = lake_of(tmp_path / "robots.lake", [make_episode()])
    exported(lake, tmp_path / "out", renamed={"note": "language.note"})
    (after,) = episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))
    assert {feature.source_name for feature in after.spec.features} >= {
        "language.note",
        "observation.state",
        "action",
    }


@pytest.mark.parametrize("version", ["3.0", "2.1"])
def test_part_of_an_episode_begins_at_zero(tmp_path: Path, version: Version) -> None:
    lake = ingested(write_v2(tmp_path / "toy", (12,)), tmp_path / "robots.lake")
    (whole,) = episodes_of(lake)
    split_episode(lake, whole.episode_id, [4], Author(who="test"))
    parts = episodes_of(lake)
    assert [part.num_steps for part in parts] == [4, 8]
    report = exported(lake, tmp_path / "out", version)
    assert [f.reason for f in report.findings] == ["start-moved"]
    after = episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))
    for part, again in zip(parts, after, strict=True):
        assert again.timestamps_ns[0] == 0
        assert np.abs(np.diff(again.timestamps_ns) - 100_000_000).max() < 100
        assert again.features["state"].tobytes() == part.features["state"].tobytes()
        same_cameras(part, again)


def test_a_part_that_starts_inside_a_group_of_pictures_needs_v3(tmp_path: Path) -> None:
    lake = ingested(write_v2(tmp_path / "toy", (12,)), tmp_path / "robots.lake")
    (whole,) = episodes_of(lake)
    split_episode(lake, whole.episode_id, [6], Author(who="test"))
    with pytest.raises(ExportError, match="begins with pictures before the first step"):
        exported(lake, tmp_path / "v21", "2.1")
    exported(lake, tmp_path / "v3")
    after = episodes_of(ingested(tmp_path / "v3", tmp_path / "after.lake"))
    for part, again in zip(episodes_of(lake), after, strict=True):
        same_cameras(part, again)


def test_a_rate_that_is_no_whole_number_needs_v3(
    tmp_path: Path, make_filmed_episode: Callable[..., Episode]
) -> None:
    stamps = np.rint(np.arange(STEPS) * 1e9 / 29.97).astype(np.int64)
    episode = make_filmed_episode(steps=STEPS, fps=29.97, timestamps_ns=stamps)
    lake = lake_of(tmp_path / "robots.lake", [episode])
    with pytest.raises(ExportError, match=r"29\.97 steps per second"):
        exported(lake, tmp_path / "v21", "2.1")
    exported(lake, tmp_path / "v3")
    (after,) = episodes_of(ingested(tmp_path / "v3", tmp_path / "after.lake"))
    assert after.fps == 29.97
    same_cameras(episode, after)


def test_sixteen_bit_depth_goes_into_v3(
    tmp_path: Path, make_episode: Callable[..., Episode]
) -> None:
    pictures = depth_pngs(np.full((6, 8), 1000 * number, np.uint16) for number in range(12))
    video = images_video(pictures, step_to_frame=np.arange(12, dtype=np.int32))
    camera = CameraSpec(
        name="depth", source_name="observation.images.depth", height=6, width=8, is_depth=True
    )
    spec: Spec = replace(make_spec(), cameras=(camera,))
    episode = make_episode(spec=spec, cameras={"depth": video})
    lake = lake_of(tmp_path / "robots.lake", [episode])
    with pytest.raises(ExportError, match="16-bit pictures overflow"):
        exported(lake, tmp_path / "v21", "2.1")
    exported(lake, tmp_path / "v3")
    (after,) = episodes_of(ingested(tmp_path / "v3", tmp_path / "after.lake"))
    assert after.spec.cameras[0].is_depth
    assert bytes(after.cameras["depth"].payload) == bytes(video.payload)


def test_a_merged_episode_whose_seam_hides_pictures_is_refused(
    tmp_path: Path, make_filmed_episode: Callable[..., Episode]
) -> None:
    pictures = moving_pictures(STEPS + 3)
    shown = np.arange(3, STEPS + 3, dtype=np.int32)
    late = encode_frames(pictures, fps=10, step_to_frame=shown, gop=50)
    episodes = [
        make_filmed_episode(0, steps=STEPS, gop=50),
        replace(make_filmed_episode(1, steps=STEPS), cameras={"top": late}),
    ]
    lake = lake_of(tmp_path / "robots.lake", episodes)
    ids = [episode.episode_id for episode in episodes]
    merge_episodes(lake, ids, Author(who="test"), gap_ns=100_000_000)
    with pytest.raises(ExportError, match="pictures that no step shows"):
        exported(lake, tmp_path / "out")
    exported(lake, tmp_path / "out", left_out=["top"])


def test_pictures_in_rows_may_be_shown_twice(
    tmp_path: Path, make_filmed_episode: Callable[..., Episode]
) -> None:
    episode = held(make_filmed_episode(steps=STEPS, codec="png"))
    exported(lake_of(tmp_path / "robots.lake", [episode]), tmp_path / "out")
    (after,) = episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))
    same_cameras(episode, after)


def test_an_episode_beyond_lerobots_rounding_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_filmed_episode: Callable[..., Episode]
) -> None:
    monkeypatch.setattr(plan, "MAX_EPISODE_S", 1.0)
    episodes = [make_filmed_episode(number, steps=10 + number) for number in range(2)]
    report = exported(lake_of(tmp_path / "robots.lake", episodes), tmp_path / "out")
    told = [f.episode for f in report.findings if f.reason == "long-episode"]
    assert told == [episodes[1].episode_id]

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.errors import SourceError
from ingest.lerobot.info import DeclaredFeature, read_info


def write(root: Path, info: object) -> Path:
    (root / "meta").mkdir(exist_ok=True)
    text = info if isinstance(info, str) else json.dumps(info)
    (root / "meta/info.json").write_text(text)
    return root


GOOD: dict[str, Any] = {
    "codebase_version": "v2.1",
    "fps": 30,
    "robot_type": "arm",
    "features": {"action": {"dtype": "float32", "shape": [2], "names": ["a", "b"]}},
    "splits": {"train": "0:8", "test": "8:10", "odd": "all"},
    "total_episodes": 10,
}


def test_a_good_file_is_parsed(tmp_path: Path) -> None:
    info = read_info(write(tmp_path, GOOD))
    assert (info.version, info.fps, info.robot_type) == ("2.1", 30.0, "arm")
    assert info.features["action"].names == ("a", "b")
    assert info.totals == {"total_episodes": 10}
    assert info.data_path.format(episode_chunk=1, episode_index=1002) == (
        "data/chunk-001/episode_001002.parquet"
    )
    assert [info.split_of(i) for i in (0, 7, 8, 9, 10)] == ["train", "train", "test", "test", None]


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("", "empty-file", "0 bytes"),
        ("   \n", "empty-file", "info.json"),
        ("{", "bad-json", "not JSON"),
        ("[1, 2]", "bad-json", "object is expected"),
        ("{}", "bad-info", "codebase_version"),
        ('{"codebase_version": "v1.6", "features": {"a": 1}}', "unknown-version", "v1.6"),
        ('{"codebase_version": "v9.0", "features": {"a": 1}}', "unknown-version", "2.0"),
        ('{"codebase_version": "v2.1"}', "bad-info", "no features"),
        ('{"codebase_version": "v2.1", "features": {}}', "bad-info", "no features"),
        ('{"codebase_version": "v2.1", "features": {"a": {}}}', "bad-info", "a has no dtype"),
    ],
)
def test_a_bad_file_is_one_error(tmp_path: Path, text: str, reason: str, words: str) -> None:
    with pytest.raises(SourceError) as raised:
        read_info(write(tmp_path, text))
    assert raised.value.reason == reason
    assert words in str(raised.value)
    assert "info.json" in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"info\.json: missing") as raised:
        read_info(tmp_path)
    assert raised.value.reason == "missing-file"


@pytest.mark.parametrize(
    "change",
    [
        lambda info: info.update(chunks_size=0),
        lambda info: info.update(data_path="data/{nonsense}.parquet"),
        lambda info: info.update(data_path=7),
        lambda info: info.update(data_path="/etc/secret.parquet"),
        lambda info: info.update(data_path="data/../../secret.parquet"),
        lambda info: info.update(data_path="data/{episode_index:999999999d}.parquet"),
        lambda info: info.update(data_path="data/{episode_index.__class__}.parquet"),
        lambda info: info.update(video_path="{video_key:03d}.mp4"),
        lambda info: info["features"]["action"].update(shape="2"),
        lambda info: info["features"]["action"].update(shape=[-1]),
    ],
)
def test_malformed_entries_are_errors(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    info = json.loads(json.dumps(GOOD))
    change(info)
    with pytest.raises(SourceError) as raised:
        read_info(write(tmp_path, info))
    assert raised.value.reason == "bad-info"


@pytest.mark.parametrize("fps", [0, -3, None, "30", True, float("inf")])
def test_an_impossible_rate_counts_as_none(tmp_path: Path, fps: object) -> None:
    assert read_info(write(tmp_path, {**GOOD, "fps": fps})).fps is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (None, None),
        (["x", "y"], ("x", "y")),
        ([["x", "y"]], ("x", "y")),
        ({"motors": ["x", "y"]}, ("x", "y")),
        ({"left": ["x"], "right": ["y"]}, ("x", "y")),
        ({"y": 1, "x": 0}, ("x", "y")),
        ([], None),
        (3, None),
    ],
)
def test_element_names_in_every_form(
    tmp_path: Path, names: object, expected: tuple[str, ...] | None
) -> None:
    info = {**GOOD, "features": {"action": {"dtype": "float32", "shape": [2], "names": names}}}
    assert read_info(write(tmp_path, info)).features["action"].names == expected


@pytest.mark.parametrize(
    ("shape", "names", "facts", "size"),
    [
        ((480, 640, 3), ("height", "width", "channel"), {}, (480, 640)),
        ((3, 240, 320), ("channel", "height", "width"), {}, (240, 320)),
        ((3, 240, 320), None, {}, (240, 320)),
        ((240, 320, 3), None, {}, (240, 320)),
        ((3, 240, 320), None, {"video.height": 11, "video.width": 22}, (11, 22)),
        ((7,), None, {}, (0, 0)),
    ],
)
def test_picture_size_of_any_channel_order(
    shape: tuple[int, ...],
    names: tuple[str, ...] | None,
    facts: dict[str, Any],
    size: tuple[int, int],
) -> None:
    feature = DeclaredFeature(key="c", dtype="video", shape=shape, names=names, facts=facts)
    assert feature.picture_size == size


def test_older_sets_call_the_facts_video_info(tmp_path: Path) -> None:
    camera = {"dtype": "video", "shape": [4, 4, 1], "video_info": {"video.is_depth_map": True}}
    info = read_info(write(tmp_path, {**GOOD, "features": {"cam": camera}}))
    assert info.cameras[0].is_depth

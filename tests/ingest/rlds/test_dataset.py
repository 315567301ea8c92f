"""Values and meaning of RLDS episodes."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.errors import EpisodeError
from ingest.formats import discover
from ingest.pipeline import ingest_sources
from ingest.rlds.source import RldsSource
from ingest.source import SourceOptions
from lake import Lake, read_episode, visible_episodes
from tests.ingest.rlds_files import (
    TEXT,
    Example,
    episode,
    example_class,
    frame,
    image,
    read_one,
    sequence,
    serialise,
    tensor,
    told,
    tree,
)


def test_values_types_and_roles_are_the_declared_ones(tmp_path: Path) -> None:
    example = episode()
    found = read_one(tmp_path, example).episode
    roles = {f.name: (f.dtype, f.shape, f.role) for f in found.spec.features}
    assert roles == {
        "action": ("float32", (7,), "action"),
        "state": ("float64", (8,), "state"),
        "language_instruction": ("string", (), "language"),
        "is_first": ("bool", (), "other"),
        "is_last": ("bool", (), "other"),
        "is_terminal": ("bool", (), "done"),
        "reward": ("float32", (), "reward"),
        "discount": ("float32", (), "other"),
        "episode_metadata_file_path": ("string", (), "language"),
        "episode_metadata_success": ("bool", (), "other"),
    }
    np.testing.assert_array_equal(
        found.features["action"], example["steps/action"].astype(np.float32)
    )
    np.testing.assert_array_equal(
        found.features["state"],
        example["steps/observation/state"].astype(np.float32).astype(np.float64),
    )
    assert found.features["is_last"].tolist() == [False] * 5 + [True]
    assert set(found.features["episode_metadata_file_path"]) == {"/raw/0.npy"}
    assert (found.instruction, found.success, found.split) == ("pick up the cup", True, "train")
    assert found.spec.conventions["action_timing"].startswith("action[t] is applied after")
    assert "gripper" not in found.spec.conventions


@pytest.mark.parametrize("encoding", ["zlib", "bytes"])
def test_encoded_tensors_are_decoded(tmp_path: Path, encoding: str) -> None:
    values = np.arange(6 * 6, dtype=np.int16).reshape(6, 2, 3) - 7
    rows = [v.tobytes() for v in values]
    example = episode() | {
        "steps/x": [zlib.compress(r) for r in rows] if encoding == "zlib" else rows
    }
    features = tree(steps={"x": tensor("int16", 2, 3, encoding=encoding)})
    found = read_one(tmp_path, example, features=features).episode
    assert found.features["x"].dtype == np.int16
    np.testing.assert_array_equal(found.features["x"], values)


def test_integers_of_every_size_come_back(tmp_path: Path) -> None:
    values = np.array([0, 1, 127, 128, -1, -(2**63)], np.int64)
    wide = np.array([0, 255, 300, 65535, 7, 1])
    example = episode() | {"steps/a": values, "steps/b": wide, "steps/c": wide}
    features = tree(steps={"a": tensor("int64"), "b": tensor("uint16"), "c": tensor("uint8")})
    reading = read_one(tmp_path, example, features=features)
    found = reading.episode.features
    np.testing.assert_array_equal(found["a"], values)
    assert found["b"].dtype == np.uint16
    np.testing.assert_array_equal(found["b"], wide)
    assert (found["c"].dtype, found["c"].tolist()) == (np.dtype(np.int64), wide.tolist())
    assert told(reading, "info")["c"] == "type-differs"


def test_ragged_rows_keep_their_lengths(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32) + 0.1
    example = episode() | {
        "steps/points/ragged_flat_values": values,
        "steps/points/ragged_row_lengths_0": np.array([2, 0, 1, 0, 3, 0]),
        "steps/even/ragged_flat_values": np.arange(12),
        "steps/even/ragged_row_lengths_0": np.full(6, 2),
        "steps/deep/ragged_flat_values": np.arange(3),
        "steps/deep/ragged_row_lengths_0": np.array([1, 0, 0, 0, 0, 1]),
        "steps/deep/ragged_row_lengths_1": np.array([2, 1]),
    }
    more = {
        "points": sequence(tensor("float32")),
        "even": sequence(tensor("int32")),
        "deep": sequence(sequence(tensor("int32"))),
    }
    reading = read_one(tmp_path, example, features=tree(steps=more))
    found = reading.episode.features
    rows = [np.array(json.loads(text), np.float32) for text in found["points"]]
    assert [len(row) for row in rows] == [2, 0, 1, 0, 3, 0]
    np.testing.assert_array_equal(np.concatenate(rows), values)
    assert (found["even"].dtype, found["even"].shape) == (np.dtype(np.int32), (6, 2))
    assert [json.loads(text) for text in found["deep"]] == [[[0, 1]], [], [], [], [], [[2]]]
    assert told(reading, "info")["points"] == "ragged"


def test_row_lengths_that_lie_lose_only_their_signal(tmp_path: Path) -> None:
    example = episode() | {
        "steps/a/ragged_flat_values": np.arange(5),
        "steps/a/ragged_row_lengths_0": np.array([2, 0, 1, 0, 3, 0]),
        "steps/b/ragged_flat_values": np.arange(5),
        "steps/b/ragged_row_lengths_0": np.array([-1, 6, 0, 0, 0, 0]),
        "steps/c/ragged_flat_values": np.arange(5),
    }
    reading = read_one(tmp_path, example, features=tree())
    assert told(reading, "error") == {
        "a": "wrong-count",
        "steps/b": "bad-row-lengths",
        "steps/c": "bad-row-lengths",
    }
    assert "action" in reading.episode.features


def test_an_instruction_that_changes_is_a_feature_and_told(tmp_path: Path) -> None:
    texts = ["reach"] * 3 + ["grasp"] * 3
    reading = read_one(tmp_path, episode() | {"steps/language_instruction": texts})
    assert reading.episode.instruction == "reach"
    assert reading.episode.features["language_instruction"].tolist() == texts
    assert "instruction-changes" in {f.reason for f in reading.findings}


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_an_instruction_in_code_points_is_text(tmp_path: Path, dtype: str) -> None:
    text = "drücke den Knopf"
    codes = list(text.encode()) if dtype == "uint8" else [ord(letter) for letter in text]
    row = np.array(codes + [0] * (32 - len(codes)))
    example = episode() | {"steps/observation/instruction": np.tile(row, (6, 1))}
    del example["steps/language_instruction"]
    features = tree(observation={"instruction": tensor(dtype, 32)})
    assert read_one(tmp_path, example, features=features).episode.instruction == text


def test_natural_language_below_observation_is_the_instruction(tmp_path: Path) -> None:
    example = episode()
    text = example.pop("steps/language_instruction")
    example["steps/observation/natural_language_instruction"] = text
    example["steps/observation/natural_language_embedding"] = np.zeros((6, 512), np.float32)
    found = read_one(tmp_path, example).episode
    assert found.instruction == "pick up the cup"
    roles = {f.name: f.role for f in found.spec.features}
    assert roles["natural_language_embedding"] == "other"


def test_flags_and_first_action_are_told_never_dropped(tmp_path: Path) -> None:
    example = episode()
    example["steps/action"][0, :6] = 0
    reading = read_one(tmp_path / "a", example)
    assert {"last-step-not-valid", "zero-first-action"} <= {f.reason for f in reading.findings}
    assert reading.episode.num_steps == 6
    np.testing.assert_array_equal(reading.episode.features["action"][0, :6], np.zeros(6))
    cut = episode() | {"steps/is_last": np.zeros(6, bool), "steps/is_first": np.zeros(6, bool)}
    reading = read_one(tmp_path / "b", cut)
    assert {"is-last-differs", "is-first-differs"} <= {f.reason for f in reading.findings}
    assert "zero-first-action" not in {f.reason for f in reading.findings}


def test_actions_in_parts_all_have_the_role(tmp_path: Path) -> None:
    example = episode()
    action = example.pop("steps/action")
    example["steps/action/world_vector"] = action[:, :3]
    example["steps/action/open_gripper"] = np.arange(6) % 2
    example["steps/action/world_vector"][0] = 0
    reading = read_one(tmp_path, example)
    roles = {f.name: f.role for f in reading.episode.spec.features}
    assert roles["action_world_vector"] == roles["action_open_gripper"] == "action"
    assert reading.episode.spec.conventions["gripper"].endswith("1 open, 0 closed")
    assert "zero-first-action" in {f.reason for f in reading.findings}


def test_the_rate_is_of_the_table_the_user_or_nobody(tmp_path: Path) -> None:
    known = read_one(tmp_path / "a", episode(), name="fractal20220817_data")
    assert (known.episode.fps, known.episode.embodiment) == (3.0, "google_robot")
    assert known.episode.timestamps_ns[:3].tolist() == [0, 333333333, 666666667]
    assert "rate-from-table" in {f.reason for f in known.findings}
    given = read_one(
        tmp_path / "b", episode(), name="fractal20220817_data", options=SourceOptions(fps=10)
    )
    assert given.episode.fps == 10.0
    assert "rate-from-table" not in {f.reason for f in given.findings}
    unknown = read_one(tmp_path / "c", episode())
    assert unknown.episode.fps is None
    assert unknown.episode.timestamps_ns.tolist() == list(range(6))
    assert "no-clock" in {f.reason for f in unknown.findings}


def test_a_known_gripper_is_a_convention_and_not_applied(tmp_path: Path) -> None:
    example = episode()
    found = read_one(tmp_path, example, name="droid").episode
    assert found.spec.conventions["gripper"] == "action: 1 closed, 0 open"
    np.testing.assert_array_equal(
        found.features["action"], example["steps/action"].astype(np.float32)
    )


def test_a_lone_shard_is_read_by_its_counts(tmp_path: Path) -> None:
    example = episode()
    path = tmp_path / "lone.tfrecord"
    path.write_bytes(frame(serialise(example)))
    source = RldsSource(path, SourceOptions())
    assert (source.dataset, source.format) == ("lone", "rlds-tfrecord")
    assert [f.reason for f in source.findings()] == ["no-features-json"]
    found = source.read(source.entries()[0]).episode
    assert (found.num_steps, found.split) == (6, None)
    assert found.features["state"].shape == (6, 8)
    assert set(found.cameras) == {"image", "depth"}
    assert found.spec == source.spec


def test_declared_and_stored_signals_are_compared(tmp_path: Path) -> None:
    example = episode() | {"steps/surprise": np.arange(6)}
    del example["steps/reward"]
    reading = read_one(tmp_path, example)
    assert told(reading, "error") == {"steps/reward": "missing-stream"}
    assert told(reading, "info")["surprise"] == "undeclared-stream"
    assert reading.episode.features["surprise"].tolist() == list(range(6))


@pytest.mark.parametrize(
    ("name", "values", "declared", "reason"),
    [
        ("steps/x", np.arange(7.0), tensor("float32"), "wrong-count"),
        ("steps/x", np.arange(6.0), tensor("float32", 10**9, 10**9), "wrong-count"),
        ("steps/x", np.arange(6.0), tensor("float32", -1, -1), "wrong-count"),
        ("steps/x", [b"abc"] * 6, tensor("float32", 1), "bad-buffer"),
        ("steps/x", [b"abc"] * 6, tensor("float32", 1, encoding="zlib"), "bad-buffer"),
        ("steps/x", [b"abc"] * 6, tensor("float32", 10**9, 10**9), "wrong-count"),
        ("steps/x", [b"abc"] * 6, image("uint8", "jpeg", 4, 4, 3), "bad-pictures"),
        ("steps/x", [b""] * 6, image("uint8", "jpeg", 4, 4, 3), "no-pictures"),
        ("steps/x", [b"abc"] * 5, image("uint8", "jpeg", 4, 4, 3), "wrong-count"),
        ("steps/x", np.arange(6), TEXT, "no-text"),
        ("steps/x", np.arange(6), image("uint8", "jpeg", 4, 4, 3), "wrong-count"),
    ],
)
def test_one_bad_signal_never_stops_the_others(
    tmp_path: Path, name: str, values: Any, declared: Any, reason: str
) -> None:
    features = tree(steps={"x": declared})
    reading = read_one(tmp_path, episode() | {name: values}, features=features)
    assert told(reading, "error") == {"x": reason}
    assert {"action", "state"} <= set(reading.episode.features)


def test_a_large_fact_of_the_episode_is_not_repeated_without_end(tmp_path: Path) -> None:
    example = episode() | {"episode_metadata/blob": np.zeros(1 << 20, np.float32)}
    assert told(read_one(tmp_path, example), "error") == {
        "episode_metadata_blob": "episode-value-too-large"
    }


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        ({"label": np.array([3])}, "no-steps"),
        ({}, "no-steps"),
        ({"steps/x": np.zeros(0)}, "unknown-length"),
    ],
)
def test_records_that_are_no_episodes_are_refused(
    tmp_path: Path, example: Example, reason: str
) -> None:
    with pytest.raises(EpisodeError) as raised:
        read_one(tmp_path, example)
    assert raised.value.reason == reason
    assert "toy-train" in str(raised.value)


def test_real_bridge_episodes_equal_an_independent_parse(recordings: Path, lake: Lake) -> None:
    folder = recordings / "rlds_octo_bridge/bridge_dataset/1.0.0"
    data = (folder / "bridge_dataset-train.tfrecord-00000-of-00001").read_bytes()
    messages, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        message: Any = example_class()()
        message.ParseFromString(data[at + 12 : at + 12 + length])
        messages.append(message.features.feature)
        at += length + 16
    [found] = discover(recordings / "rlds_octo_bridge/bridge_dataset").sources
    assert found.format.name == "rlds"
    report = ingest_sources([found.path], lake)
    assert [source.written for source in report.sources] == [len(messages)] == [25]
    rows = visible_episodes(lake, ["locator", "episode_id", "fps"]).to_pylist()
    ids = {int(row["locator"].rpartition("/")[2]): row for row in rows}
    for number in (0, 11, 24):
        expected, row = messages[number], ids[number]
        stored = read_episode(lake, row["episode_id"])
        for name, path, size in (
            ("action", "steps/action", 7),
            ("state", "steps/observation/state", 7),
            ("language_embedding", "steps/language_embedding", 512),
        ):
            values = np.array(expected[path].float_list.value, np.float32).reshape(10, size)
            np.testing.assert_array_equal(stored.features[name], values)
        texts = expected["steps/language_instruction"].bytes_list.value
        assert stored.instruction == texts[0].decode()
        assert row["fps"] == 5.0
    source = RldsSource(folder, SourceOptions())
    for entry, expected in zip(source.entries(), messages, strict=True):
        reading = source.read(entry)
        for camera in ("image_0", "image_1", "image_2", "image_3"):
            files = expected[f"steps/observation/{camera}"].bytes_list.value
            assert bytes(reading.episode.cameras[camera].payload) == b"".join(files)
        flags = {f.stream for f in reading.findings if f.reason == "flag-differs"}
        assert {"image_0", "image_1", "image_2"} <= flags
        assert "is-last-differs" in {f.reason for f in reading.findings}

"""A log of messages as a source: episodes, isolation of bad topics, what is told."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.alignment.policy import AlignmentPolicy
from ingest.episode_cuts import EpisodeCuts
from ingest.errors import EpisodeError, IngestError, SourceError
from ingest.messages.log import Message
from ingest.messages.source import LogSource
from ingest.pipeline import read_episode
from ingest.source import EpisodeReading, Finding
from tests.ingest.hdf5_files import pictures
from tests.ingest.messages.message_logs import (
    NS,
    START,
    STEP,
    at_steps,
    json_channel,
    payload,
    read,
    ros2_channel,
    source_of,
    told,
)

FLOAT = "std_msgs/msg/Float64"


def numbers(count: int, topic: str = "/x") -> list[Message]:
    channel = ros2_channel(topic, FLOAT)
    return at_steps(channel, [payload(FLOAT, {"data": n}) for n in range(count)])


def marks(marked: Sequence[tuple[float, Any]], name: str = "std_msgs/msg/String") -> list[Message]:
    """Markers at given steps, a moment before the step's other messages."""
    channel = ros2_channel("/episode", name)
    return [
        Message(channel, START + round(at * STEP) - 1, 0, n, payload(name, {"data": value}))
        for n, (at, value) in enumerate(marked)
    ]


def episodes(source: LogSource) -> list[EpisodeReading]:
    return [read_episode(source, entry) for entry in source.entries()]


def steps_of(readings: list[EpisodeReading]) -> list[list[float]]:
    return [reading.episode.features["x"].tolist() for reading in readings]


def test_a_log_is_one_episode_with_its_alignment_recorded(tmp_path: Path) -> None:
    source, log = source_of(tmp_path, numbers(5))
    (entry,) = source.entries()
    assert log.readings == 0
    episode = read_episode(source, entry).episode
    assert (entry.locator, source.dataset, episode.source) == ("teleop", "teleop", "teleop.log")
    assert episode.provenance.files == ("teleop.log",)
    assert '"span":"overlap"' in episode.provenance.alignment
    assert episode.timestamps_ns.tolist() == [START + n * STEP for n in range(5)]
    assert source.spec == episode.spec


def test_the_clock_of_the_sender_is_kept(tmp_path: Path) -> None:
    late = [m._replace(log_time_ns=m.log_time_ns + 7) for m in numbers(4)]
    reading = read(tmp_path, late, alignment=AlignmentPolicy(clock="publish"))
    assert reading.episode.timestamps_ns[0] == START - 1_000_000


@pytest.mark.parametrize(
    ("marked", "name", "expected"),
    [
        ([(0, "start"), (4, "start"), (7, "go")], "std_msgs/msg/String", [4, 3, 3]),
        ([(2, "start"), (5, "stop"), (6, "start")], "std_msgs/msg/String", [3, 4]),
        ([(2, True), (5, False), (6, True), (9, False)], "std_msgs/msg/Bool", [3, 3]),
        ([(0, 1), (4, 0)], "std_msgs/msg/Int32", [4]),
        ([(0, None), (4, None)], "std_msgs/msg/Empty", [4, 6]),
    ],
)
def test_markers_cut_episodes(
    tmp_path: Path, marked: list[tuple[float, Any]], name: str, expected: list[int]
) -> None:
    if name.endswith("Empty"):
        channel = ros2_channel("/episode", name, schema=b"\n", schema_encoding="ros2msg")
        rows = [
            Message(channel, START + round(s * STEP) - 1, 0, 0, b"\0\1\0\0\0") for s, _ in marked
        ]
    else:
        rows = marks(marked, name)
    cuts = EpisodeCuts(marker="/episode")
    source, log = source_of(tmp_path, numbers(10), rows, cuts=cuts)
    readings = episodes(source)
    found = steps_of(readings)
    assert [len(steps) for steps in found] == expected
    firsts = [int(at) for at, value in marked if value not in {"stop", False}]
    assert [steps[0] for steps in found] == firsts
    assert [entry.locator for entry in source.entries()] == [
        f"teleop/episode_{n:06d}" for n in range(len(expected))
    ]
    assert log.readings == 2, "once to cut, once for all episodes in their order"
    outside = [f for f in source.findings() if f.reason == "outside-episodes"]
    assert bool(outside) == (sum(expected) < 10)


def test_a_marker_topic_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no message on the marker topic /start; there are /x"):
        source_of(tmp_path, numbers(3), cuts=EpisodeCuts(marker="/start"))


def test_gaps_cut_episodes(tmp_path: Path) -> None:
    rows = [
        m._replace(log_time_ns=m.log_time_ns + 3 * NS * (n // 4)) for n, m in enumerate(numbers(10))
    ]
    source, _ = source_of(tmp_path, rows, cuts=EpisodeCuts(gap_s=2.0))
    assert steps_of(episodes(source)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    whole, _ = source_of(tmp_path, rows, cuts=EpisodeCuts(gap_s=4.0))
    assert len(whole.entries()) == 1
    keys = {entry.ingest_key for each in (source, whole) for entry in each.entries()}
    assert len(keys) == 4, "another rule gives other episodes"


def test_episodes_can_be_read_in_any_order(tmp_path: Path) -> None:
    cuts = EpisodeCuts(marker="/episode")
    source, _ = source_of(tmp_path, numbers(9), marks([(0, "a"), (3, "b"), (6, "c")]), cuts=cuts)
    forward = steps_of(episodes(source))
    backward = [read_episode(source, entry) for entry in reversed(source.entries())]
    assert steps_of(backward) == forward[::-1]


def test_messages_out_of_order_belong_to_the_episode_of_their_time(tmp_path: Path) -> None:
    cuts = EpisodeCuts(marker="/episode")
    source, log = source_of(tmp_path, numbers(8), marks([(0, "a"), (4, "b")]), cuts=cuts)
    shuffled = list(log.rows)
    shuffled[2], shuffled[7] = shuffled[7], shuffled[2]
    log.rows = shuffled
    again = LogSource(source.root, log, source._options)
    assert steps_of(episodes(again)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("choice", [{"marker": "/a", "gap_s": 1.0}, {"gap_s": 0.0}])
def test_rules_that_mean_nothing_are_refused(choice: dict[str, Any]) -> None:
    with pytest.raises(IngestError, match=r"episodes are cut|a gap of"):
        EpisodeCuts(**choice)


def test_bad_topics_stop_no_others(tmp_path: Path) -> None:
    service = ros2_channel("/srv", "a_msgs/srv/B_Event", schema=b"bool a\n---\nbool b\n")
    strange = ros2_channel("/odd", "std_msgs/msg/String", message_encoding="wrong_format")
    broken = ros2_channel("/broken", FLOAT)
    bare = ros2_channel("/bare", "", schema=b" ", schema_encoding="")
    rows = [at_steps(channel, [b"\0\1"] * 4) for channel in (service, strange, broken, bare)]
    reading = read(tmp_path, numbers(4), *rows)
    assert sorted(told(reading)) == [
        ("bare", "channel-without-schema"),
        ("broken", "bad-messages"),
        ("odd", "unknown-encoding"),
        ("srv", "bad-schema"),
    ]
    assert all("4 messages" in f.detail for f in reading.findings if f.severity == "error")
    assert reading.episode.features["x"].tolist() == [0, 1, 2, 3]


def test_a_topic_of_several_channels_is_one_stream(tmp_path: Path) -> None:
    rows = numbers(6)
    other = ros2_channel("/x", FLOAT)
    mixed = [m._replace(channel=other) if n % 2 else m for n, m in enumerate(rows)]
    reading = read(tmp_path, mixed)
    assert reading.episode.features["x"].tolist() == list(range(6))


def test_a_log_without_messages_is_refused_with_the_reason(tmp_path: Path) -> None:
    source, _ = source_of(tmp_path, [])
    with pytest.raises(EpisodeError, match="no message in it") as caught:
        read_episode(source, source.entries()[0])
    assert caught.value.reason == "empty-recording"
    only_bad = at_steps(ros2_channel("/x", FLOAT, message_encoding="?"), [b"1"])
    with pytest.raises(EpisodeError, match=r"no stream is left: /x: 1 messages: messages in \?"):
        read(tmp_path, only_bad)


def test_findings_of_the_log_are_the_sources(tmp_path: Path) -> None:
    source, log = source_of(tmp_path, numbers(3))
    log.notes.append(Finding(severity="error", reason="cut-short", where="a", detail="2 lost"))
    assert source.findings() == tuple(log.notes)


def test_pictures_and_numbers_come_onto_one_grid(tmp_path: Path) -> None:
    """A camera at 10 Hz, joints at 20 Hz: each picture with the joints of its moment."""
    name = "sensor_msgs/msg/Image"
    rows = [
        payload(
            name,
            {"height": 16, "width": 24, "encoding": "rgb8", "step": 72, "data": seen.ravel()},
        )
        for seen in pictures(5, height=16, width=24)
    ]
    fast = at_steps(
        ros2_channel("/x", FLOAT),
        [payload(FLOAT, {"data": n}) for n in range(10)],
        every=STEP // 2,
    )
    reading = read(tmp_path, at_steps(ros2_channel("/cam", name), rows), fast, images="png")
    assert reading.episode.features["x"].tolist() == [0, 2, 4, 6, 8]
    assert reading.episode.cameras["cam"].index.step_to_frame.tolist() == list(range(5))


def test_a_stream_of_the_same_name_in_json_and_cdr(tmp_path: Path) -> None:
    text = at_steps(json_channel("/x"), [b'{"data": 5}'] * 4)
    reading = read(tmp_path, numbers(4), text)
    assert {name: values.dtype for name, values in reading.episode.features.items()} == {
        "x": np.dtype(np.float64),
        "x_2": np.dtype(np.float64),
    }

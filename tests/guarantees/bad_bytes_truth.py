"""Which spans bad bytes cost, worked out packet by packet, without the loader."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lake import EpisodeWriter, Lake, create_lake
from lake.episode import Episode
from lake.video_index import VideoIndex
from loader import PackLoader
from loader.bad_spans import BadSpan
from loader.batch import IGNORED_LABEL
from packing.plan import Plan
from tests.episodes import make_episode
from tests.loader import scenes
from tests.loader.damage import SpanKey, packet, spans_of
from tests.loader.video_kinds import bframe_video

SLOTS = 3
REORDERED = scenes.EPISODES  # the episode with B-frames and open groups of pictures

Spans = dict[SpanKey, dict[str, NDArray[Any]]]


@functools.cache
def episode(number: int) -> Episode:
    if number < scenes.EPISODES:
        return scenes.scene_episode(number)
    return make_episode(number, steps=30, cameras={"top": bframe_video(30, gop=8)})


def sound_lake(folder: Path) -> Lake:
    """The episodes of the scene, and one more."""
    made = create_lake(folder / "robots.lake")
    with EpisodeWriter(made) as writer:
        for number in range(scenes.EPISODES + 1):
            writer.add(episode(number))
    made.refresh()
    return made


def streamed(lake: Lake, plan: Plan, **options: Any) -> tuple[Spans, list[BadSpan]]:
    """Every span, each once, and the bad ones."""
    chosen = {"process": "inline", "max_bad_share": 1.0, **options}
    spans: Spans = {}
    with PackLoader(lake, plan, framework="numpy", **chosen) as loader:
        for batch in loader:
            for key, values in spans_of(batch).items():
                assert key not in spans
                spans[key] = values
        assert loader.metrics.counts["bad_spans"] == len(loader.bad_spans)
        return spans, loader.bad_spans


def planned_rows(plan: Plan) -> list[dict[str, Any]]:
    """The spans of a plan as rows, read without the loader."""
    columns = ("span_id", "occurrence", "episode", "start", "stop", "stride")
    return [
        {
            "step": pack["step"],
            "slot": pack["slot"],
            "epoch": pack["epoch"],
            **dict(zip(columns, values, strict=True)),
        }
        for pack in plan.packs.to_pylist()
        for values in zip(*(pack[name] for name in columns), strict=True)
    ]


def episode_number(plan: Plan, episode: int) -> int:
    """The number of the episode that stands in a row of the plan's episodes."""
    name: str = plan.episodes["episode_id"][episode].as_py()
    return int(name.partition("episode_")[2].partition("-")[0])


def packets_of(index: VideoIndex, frame: int) -> set[int]:
    """The packets without which a frame cannot be had."""
    own = index.packet_frame.tolist().index(frame)
    starts = [
        key
        for key in np.flatnonzero(index.packet_key).tolist()
        if key <= own and (index.packet_pts[key] <= index.packet_pts[own] or key == 0)
    ]
    return set(range(max(starts), own + 1))


def lost(
    plan: Plan, packets: Mapping[tuple[int, str], set[int]], rows: set[int]
) -> dict[SpanKey, tuple[str, str]]:
    """Spans that need damaged packets (episode, camera) or rows -> episode and camera to blame."""
    found = {}
    for row in planned_rows(plan):
        number, key = (
            episode_number(plan, row["episode"]),
            (row["epoch"], row["span_id"], row["occurrence"]),
        )
        name = plan.episodes["episode_id"][row["episode"]].as_py()
        if number in rows:
            found[key] = (name, "")
            continue
        for camera in sorted(episode(number).cameras):
            damaged = packets.get((number, camera), set())
            index = episode(number).cameras[camera].index
            shown = index.step_to_frame[row["start"] : row["stop"] : row["stride"]].tolist()
            if any(frame >= 0 and damaged & packets_of(index, frame) for frame in shown):
                found.setdefault(key, (name, camera))
    return found


def video_packet(number: int, camera: str, packet_number: int) -> bytes:
    video = episode(number).cameras[camera]
    return packet(video.index, video.payload, packet_number)


def video_index(number: int, camera: str) -> bytes:
    return episode(number).cameras[camera].index.to_bytes()


def feature_bytes(number: int, name: str) -> bytes:
    return bytes(episode(number).features[name].ravel()[4:12].tobytes())


Case = tuple[list[bytes], dict[tuple[int, str], set[int]], set[int]]
CASES: dict[str, Callable[[], Case]] = {
    "inside a group of pictures": lambda: ([video_packet(5, "top", 6)], {(5, "top"): {6}}, set()),
    "key": lambda: ([video_packet(5, "wrist", 8)], {(5, "wrist"): {8}}, set()),
    "the last": lambda: ([video_packet(5, "top", 28)], {(5, "top"): {28}}, set()),
    "several, of both cameras": lambda: (
        [video_packet(3, "top", 1), video_packet(3, "wrist", 7), video_packet(3, "wrist", 16)],
        {(3, "top"): {1}, (3, "wrist"): {7, 16}},
        set(),
    ),
    "two of one group of pictures": lambda: (
        [video_packet(5, "top", 5), video_packet(5, "top", 7)],
        {(5, "top"): {5, 7}},
        set(),
    ),
    **{
        f"reordered {number}": lambda number=number: (  # type: ignore[misc]
            [video_packet(REORDERED, "top", number)],
            {(REORDERED, "top"): {number}},
            set(),
        )
        for number in (1, 7, 8, 9, 16, 29)
    },
    "state": lambda: ([feature_bytes(1, "state")], {}, {1}),
    "action": lambda: ([feature_bytes(2, "action")], {}, {2}),
    "the index of a camera with gaps": lambda: ([video_index(2, "top")], {}, {2}),
    "the index of one of two cameras": lambda: ([video_index(5, "wrist")], {}, {5}),
    "an episode without cameras": lambda: ([feature_bytes(4, "state")], {}, {4}),
    "an id": lambda: ([episode(6).episode_id.encode()], {}, {6}),
    "all kinds": lambda: (
        [
            video_packet(5, "top", 6),
            video_packet(REORDERED, "top", 8),
            feature_bytes(1, "state"),
            video_index(2, "top"),
        ],
        {(5, "top"): {6}, (REORDERED, "top"): {8}},
        {1, 2},
    ),
}


_SAME_IN_PADDING = (
    *("input_ids", "position_ids", "token_modality", "labels", "loss_weights"),
    *("state_step_index", "action_dim_mask", "action_position_ids"),
    *("embodiment_id", "dataset_id", "stats_id", "episode_id", "step_index"),
)
_ZERO_IN_PADDING = ("state", "state_dim_mask", "actions", "action_loss_weights", "sample_weight")


def assert_equal(values: Mapping[str, NDArray[Any]], others: Mapping[str, NDArray[Any]]) -> None:
    assert values.keys() == others.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(value, others[name], name)


def assert_padding(
    values: Mapping[str, NDArray[Any]], others: Mapping[str, NDArray[Any]], *, pictures_known: bool
) -> None:
    assert values.keys() == others.keys()  # as many pictures
    for name in _SAME_IN_PADDING:
        np.testing.assert_array_equal(values[name], others[name], name)
    for name in _ZERO_IN_PADDING:
        assert values[name].shape == others[name].shape
        assert not values[name].any()
    assert (values["labels"] == IGNORED_LABEL).all()
    for name, value in values.items():
        if name.startswith("image "):
            assert not value.any()
            assert value.shape == others[name].shape
        elif name.startswith("image_") and pictures_known:
            np.testing.assert_array_equal(value, others[name], name)

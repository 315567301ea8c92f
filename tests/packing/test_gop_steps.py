"""Where groups of pictures begin: by few packet indexes, or by those of all episodes."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from lake import CameraVideo, Episode, Lake
from lake.read_video import read_video_indexes
from lake.visible import visible_episodes
from packing.gop_steps import COLUMNS, read_groups
from tests.episodes import noise_video

Write = Callable[[Sequence[Episode]], Lake]
Make = Callable[..., Episode]
LENGTHS = (7, 12, 15, 4, 9, 20, 11, 5, 13, 8, 6, 17)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many indexes each request reads."""
    sizes: list[int] = []

    def count(lake: Lake, addresses: Sequence[int]) -> object:
        sizes.append(len(addresses))
        return read_video_indexes(lake, addresses)

    monkeypatch.setattr("packing.gop_steps.read_video_indexes", count)
    return sizes


def video(steps: int, keys: Sequence[int], frames: Sequence[int] | None = None) -> CameraVideo:
    """Key frames at these packets, and these frames shown (a packet each where None)."""
    shown = np.arange(steps) if frames is None else np.array(frames)
    made = noise_video(np.random.default_rng(0), int(shown.max()) + 1, packet_bytes=8)
    key = np.zeros(len(made.index.packet_key), np.bool_)
    key[list(keys)] = True
    index = replace(made.index, packet_key=key, step_to_frame=shown.astype(np.int32))
    return CameraVideo(index=index, payload=made.payload)


def groups_of(lake: Lake, *cameras: str) -> list[list[int]]:
    """Steps at which groups begin, of each episode."""
    rows = visible_episodes(lake, ("episode_id", *COLUMNS)).sort_by("episode_id").combine_chunks()
    lengths = rows["num_steps"].to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    groups: NDArray[np.bool_] = read_groups(lake, rows, cameras, offsets)
    assert groups.shape == (offsets[-1],)
    return [np.flatnonzero(part).tolist() for part in np.split(groups, offsets[1:-1])]


def test_few_indexes_stand_for_episodes_that_begin_with_a_key_frame(
    write: Write, make_episode: Make, read: list[int]
) -> None:
    lake = write(
        [
            make_episode(n, steps=steps, cameras={"top": video(steps, range(0, steps, 5))})
            for n, steps in enumerate(LENGTHS)
        ]
    )
    assert groups_of(lake, "top") == [list(range(0, steps, 5)) for steps in LENGTHS]
    assert sum(read) == 8


def test_episodes_cut_inside_a_group_are_read_all(
    write: Write, make_episode: Make, read: list[int]
) -> None:
    lake = write(
        [
            make_episode(n, steps=steps, cameras={"top": video(steps, [0, *range(2, steps, 5)])})
            for n, steps in enumerate(LENGTHS)
        ]
    )
    assert groups_of(lake, "top") == [[0, *range(2, steps, 5)] for steps in LENGTHS]
    assert sum(read) == len(LENGTHS)


def test_an_episode_with_another_number_of_key_frames_is_read(
    write: Write, make_episode: Make, read: list[int]
) -> None:
    keys = {n: range(0, steps, 5) for n, steps in enumerate(LENGTHS)}
    keys[11] = range(0, 17, 3)
    lake = write(
        [
            make_episode(n, steps=steps, cameras={"top": video(steps, keys[n])})
            for n, steps in enumerate(LENGTHS)
        ]
    )
    assert groups_of(lake, "top") == [list(keys[n]) for n in range(12)]
    assert sum(read) == 9


def test_the_camera_with_the_longest_groups_decides(write: Write, make_episode: Make) -> None:
    both = {"top": video(20, range(0, 20, 2)), "wrist": video(20, range(0, 20, 10))}
    lake = write([make_episode(0, steps=20, cameras=both)])
    assert groups_of(lake, "top", "wrist") == [[0, 10]]
    assert groups_of(lake, "top") == [list(range(0, 20, 2))]
    assert groups_of(lake) == [list(range(20))]


def test_steps_of_a_slow_camera_and_steps_without_a_frame(write: Write, make_episode: Make) -> None:
    slow = video(8, [0, 2], frames=[-1, 0, 0, 1, -1, 2, 2, 3])
    lake = write([make_episode(0, steps=8, cameras={"top": slow})])
    assert groups_of(lake, "top") == [[0, 1, 5]]

"""What samples should be, worked out from whole episodes read another way."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lake import Episode, Lake, read_episode, visible_episodes
from lake.frames import read_frames


def episodes_by_id(lake: Lake) -> list[Episode]:
    """Every episode, in the order of samples."""
    ids = sorted(visible_episodes(lake)["episode_id"].to_pylist())
    return [read_episode(lake, episode_id) for episode_id in ids]


def places(episodes: Sequence[Episode]) -> list[tuple[int, int]]:
    """(episode, step) of every sample."""
    return [(e, step) for e, episode in enumerate(episodes) for step in range(episode.num_steps)]


def expected(
    lake: Lake, episode: Episode, step: int, deltas: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Features, pictures and padding flags of a sample under the lake's names."""
    last = episode.num_steps - 1
    found: dict[str, Any] = {}
    for name, values in episode.features.items():
        found[name] = values[[min(max(step + d, 0), last) for d in deltas.get(name, [0])]]
        if name not in deltas:
            found[name] = found[name][0]
    for name in episode.cameras:
        steps = [min(max(step + d, 0), last) for d in deltas.get(name, [0])]
        pictures = read_frames(lake, episode.episode_id, name, steps)
        found[name] = pictures[0] if len(steps) == 1 else pictures
    for name in deltas:
        if name in episode.features or name in episode.cameras:
            found[f"{name}_is_pad"] = np.array([not 0 <= step + d <= last for d in deltas[name]])
    return found


def require_equal(sample: Mapping[str, Any], truth: Mapping[str, Any]) -> None:
    """Every key of the truth is in the sample, bit for bit."""
    for key, value in truth.items():
        found = sample[key]
        if isinstance(value, np.ndarray) and value.dtype != object:
            array: NDArray[Any] = np.asarray(found)
            assert array.shape == value.shape, key
            assert array.tobytes() == value.astype(array.dtype).tobytes(), key
        else:
            assert found == (value.tolist() if isinstance(value, np.ndarray) else value), key


def require_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Two samples are equal in keys, dtypes and values."""
    assert list(one) == list(other)
    for key, value in one.items():
        if isinstance(value, (str, list)):
            assert other[key] == value, key
        else:
            assert other[key].dtype == value.dtype, key
            assert np.asarray(other[key]).tobytes() == np.asarray(value).tobytes(), key
            assert other[key].shape == value.shape, key

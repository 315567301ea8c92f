"""Steps without a picture or a valid value, damaged episodes, and episodes that differ."""

import dataclasses
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from lake import Lake, create_lake
from lake.errors import CorruptDataError
from lake.writer import EpisodeWriter
from loader import LoaderError
from loader.storage.tiers import Tiers
from loader.windows.window import Window
from tests.episodes import make_episode, make_filmed_episode
from tests.loader.damage import damaged_copy
from tests.loader.windows.window_truth import episodes_by_id, expected, places, require_same


def open_window(lake: Lake, **options: Any) -> Window:
    return Window(lake, **{"names": "canonical", "image_dtype": "uint8", **options})


def test_episodes_with_gaps_are_refused_before_the_first_sample(scene: Lake) -> None:
    with pytest.raises(LoaderError, match=r"1 of 7 episodes.*picture of top.*000002.*missing='pad"):
        open_window(scene)
    with pytest.raises(LoaderError, match=r"1 of 7 episodes.*valid value of action.*000003"):
        open_window(scene, keys=["action", "state"])
    assert len(open_window(scene, keys=["state"])) == sum(9 + 4 * n for n in range(7))
    sound = [e.episode_id for e in episodes_by_id(scene) if e.episode_id[-14] not in "23"]
    assert len(sound) == 5
    assert open_window(scene, episodes=sound).num_episodes == 5


def test_with_pad_what_is_missing_is_zero_and_marked(scene: Lake) -> None:
    deltas = {"action": [-1, 0, 1, 2], "top": [0, 1]}
    window = open_window(scene, missing="pad", delta_steps=deltas)
    episodes = episodes_by_id(scene)
    for number, (row, step) in enumerate(places(episodes)):
        episode, sample = episodes[row], window[number]
        last = episode.num_steps - 1
        for nth, delta in enumerate(deltas["action"]):
            at = min(max(step + delta, 0), last)
            valid = episode.valid.get("action", np.ones(last + 1, np.bool_))[at]
            value = sample["action"][nth]
            assert sample["action_is_pad"][nth] == (at != step + delta or not valid)
            wanted = episode.features["action"][at] if valid else np.zeros(3, np.float32)
            assert value.numpy().tobytes() == wanted.tobytes()
        assert not sample["state_is_pad"].any()
        assert "frame_index_is_pad" not in sample
        assert ("top" in sample) == ("top" in episode.cameras)
        if "top" in episode.cameras:
            shown = episode.cameras["top"].index.step_to_frame
            ats = [min(step + d, last) for d in deltas["top"]]
            pad = [at != step + d or shown[at] < 0 for d, at in zip((0, 1), ats, strict=True)]
            assert sample["top_is_pad"].tolist() == pad
            for nth, at in enumerate(ats):
                if shown[at] < 0:
                    assert not sample["top"][nth].any()
                else:
                    truth = expected(scene, episode, at, {})["top"]
                    assert sample["top"][nth].numpy().tobytes() == truth.tobytes()


def test_samples_have_what_their_episode_has(scene: Lake) -> None:
    window = open_window(scene, missing="pad")
    for row, episode in enumerate(episodes_by_id(scene)):
        sample = window[window.meta.episodes["dataset_from_index"][row]]
        assert {"top", "wrist"} & set(sample) == set(episode.cameras)
    assert set(window.meta.camera_keys) == {"top", "wrist"}


def test_a_damaged_packet_is_named(tmp_path: Path) -> None:
    episode = make_filmed_episode(0)
    video = episode.cameras["top"]
    checksums = video.index.packet_checksum.copy()
    checksums[6] ^= np.uint64(1)
    index = dataclasses.replace(video.index, packet_checksum=checksums)
    lake = create_lake(tmp_path / "x.lake")
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(0, cameras={"top": dataclasses.replace(video, index=index)}))
    lake.refresh()
    window = open_window(lake)
    assert window[3]["top"].any()
    with pytest.raises(CorruptDataError, match=r"episode synthetic/.*camera top, step 7.*packet 6"):
        window[7]


def test_depth_is_left_out_and_refused_by_name(tmp_path: Path) -> None:
    episode = make_filmed_episode(0, camera_names=("top", "depth"))
    cameras = tuple(
        dataclasses.replace(c, is_depth=c.name == "depth") for c in episode.spec.cameras
    )
    spec = dataclasses.replace(episode.spec, cameras=cameras)
    lake = create_lake(tmp_path / "x.lake")
    with EpisodeWriter(lake) as writer:
        writer.add(dataclasses.replace(episode, spec=spec))
    lake.refresh()
    assert "depth" not in open_window(lake)[0]
    with pytest.raises(LoaderError, match="depth is a depth camera"):
        open_window(lake, keys=["top", "depth"])


def test_two_streams_of_one_name_need_the_lake_s(tmp_path: Path) -> None:
    episode = make_episode(0)
    twins = tuple(
        dataclasses.replace(f, source_name="data") if f.name in {"state", "action"} else f
        for f in episode.spec.features
    )
    lake = create_lake(tmp_path / "x.lake")
    with EpisodeWriter(lake) as writer:
        writer.add(
            dataclasses.replace(episode, spec=dataclasses.replace(episode.spec, features=twins))
        )
    lake.refresh()
    with pytest.raises(LoaderError, match=r"two streams .* called data; use names='canonical'"):
        Window(lake)
    assert torch.is_tensor(open_window(lake)[0]["state"])


def test_unsigned_numbers_beyond_int64_are_an_error(tmp_path: Path) -> None:
    episode = make_episode(0)
    spec = dataclasses.replace(
        episode.spec,
        features=(*episode.spec.features[:1], *_counter_like(episode)),
    )
    features = {
        "state": episode.features["state"],
        "stamp": np.full(12, 2**63 + 1, np.uint64),
    }
    lake = create_lake(tmp_path / "x.lake")
    with EpisodeWriter(lake) as writer:
        writer.add(dataclasses.replace(episode, spec=spec, features=features))
    lake.refresh()
    with pytest.raises(LoaderError, match=r"stamp has uint64 values too large for int64"):
        open_window(lake)[0]


def _counter_like(episode: Any) -> tuple[Any, ...]:
    state = episode.spec.features[0]
    return (
        dataclasses.replace(
            state,
            name="stamp",
            source_name="stamp",
            dtype="uint64",
            shape=(),
            names=None,
            role="other",
        ),
    )


def _with_another(table: pa.Table, name: str, change: Callable[[Any], Any]) -> pa.Table:
    at = table.column_names.index(name)
    values = [change(value) for value in table[name].to_pylist()]
    return table.set_column(at, name, pa.array(values, table.schema.field(name).type))


_ON_THE_WAY: dict[str, Callable[[Any], Any]] = {
    "ranges": lambda found: [bytes([part[0] ^ 1, *part[1:]]) for part in found],
    "a checksum": lambda rows: _with_another(rows, "timestamps_checksum", lambda n: n ^ 1),
    "a length": lambda rows: _with_another(rows, "timestamps_ns", lambda times: times[:-1]),
    "an index": lambda rows: _with_another(rows, "video_indexes", lambda each: [b"\0"] * len(each)),
    "what it is": lambda rows: _with_another(rows, "content_sha256", lambda key: key[::-1]),
}


@pytest.mark.parametrize("damage", _ON_THE_WAY)
def test_what_was_damaged_on_the_way_is_read_again(
    scene: Lake, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    truth, window = open_window(scene, missing="pad"), open_window(scene, missing="pad")
    asked: list[bool] = []
    method = "ranges" if damage == "ranges" else "rows"
    real = getattr(Tiers, method)

    def damaging(self: Tiers, *args: Any, past_caches: bool = False) -> Any:
        asked.append(past_caches)
        found = real(self, *args, past_caches=past_caches)
        return found if past_caches else _ON_THE_WAY[damage](found)

    monkeypatch.setattr(Tiers, method, damaging)
    samples = window.__getitems__([3, 40, 60])
    monkeypatch.undo()
    assert asked[0] is False
    assert asked.count(True) == len(asked) - 1 > 0
    for sample, other in zip(samples, truth.__getitems__([3, 40, 60]), strict=True):
        require_same(sample, other)


def test_what_is_damaged_in_the_lake_is_named(scene: Lake, tmp_path: Path) -> None:
    (damaged, *_) = episodes_by_id(scene)
    needle = damaged.features["state"].ravel()[4:12].tobytes()
    window = open_window(damaged_copy(scene, tmp_path / "x.lake", [needle]), missing="pad")
    with pytest.raises(
        CorruptDataError, match=r"000000\S* is damaged in the lake: .*state.*doctor"
    ):
        window[0]
    assert torch.is_tensor(window[12]["state"])


def test_no_thread_outlives_a_window(scene: Lake) -> None:
    gc.collect()
    others = set(threading.enumerate())  # those of windows before this one may be about to end

    def started() -> list[threading.Thread]:
        gc.collect()
        return [thread for thread in threading.enumerate() if thread not in others]

    window = open_window(scene, missing="pad")
    first = window[0]
    assert [thread.name for thread in started()] == ["watchdog"]
    window.close()
    assert started() == []
    require_same(window[0], first)
    del window
    assert started() == []

"""Window: samples are the steps of episodes and those around them."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from catalog.selection import freeze_selection
from lake import Lake, create_lake
from lake.writer import EpisodeWriter
from loader import LoaderError
from loader.storage.settings import StorageSettings
from loader.windows.samples import WindowSamples
from loader.windows.window import Window
from tests.episodes import make_episode, make_filmed_episode
from tests.loader.windows.window_truth import (
    episodes_by_id,
    expected,
    places,
    require_equal,
    require_same,
)

DELTAS = {"state": [-3, 0], "action": [0, 1, 2, 3, 4], "top": [-2, -1, 0], "wrist": [7]}


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Three episodes of 12, 9 and 1 steps with two cameras; GOP 5."""
    lake = create_lake(tmp_path_factory.mktemp("filmed") / "x.lake")
    with EpisodeWriter(lake) as writer:
        for number, steps in enumerate((12, 9, 1)):
            writer.add(make_filmed_episode(number, steps=steps, camera_names=("top", "wrist")))
    lake.refresh()
    return lake


def open_window(lake: Lake, **options: Any) -> Window:
    return Window(lake, **{"names": "canonical", "image_dtype": "uint8", **options})


def test_every_sample_at_every_step_and_edge(filmed: Lake) -> None:
    window = open_window(filmed, delta_steps=DELTAS)
    episodes = episodes_by_id(filmed)
    assert len(window) == window.num_frames == 22
    assert window.num_episodes == 3
    for number, (episode, step) in enumerate(places(episodes)):
        sample = window[number]
        require_equal(sample, expected(filmed, episodes[episode], step, DELTAS))
        assert window.locate(number) == (episodes[episode].episode_id, step)
        assert sample["task"] == episodes[episode].instruction
        assert (sample["frame_index"], sample["index"]) == (step, number)
        assert sample["episode_index"] == episode
        assert sample["timestamp"] == np.float32(step / 10)


def test_a_batch_equals_its_single_samples(filmed: Lake) -> None:
    window = open_window(filmed, delta_steps=DELTAS)
    rng = np.random.default_rng(0)
    batch = [*rng.permutation(len(window)).tolist(), 3, 3, -1, np.int64(4), torch.tensor(5)]
    for number, sample in zip(batch, window.__getitems__(batch), strict=True):
        require_same(sample, open_window(filmed, delta_steps=DELTAS)[int(number)])


def test_samples_share_no_memory(filmed: Lake) -> None:
    window = open_window(filmed, delta_steps=DELTAS)
    one, other = window.__getitems__([2, 2])
    kept = {key: value.clone() for key, value in other.items() if torch.is_tensor(value)}
    for value in one.values():
        if torch.is_tensor(value):
            value.zero_()
    for key, value in kept.items():
        assert torch.equal(other[key], value), key
    assert torch.equal(window[2]["state"], kept["state"])


def test_slices_and_numbers_from_the_end(filmed: Lake) -> None:
    window = open_window(filmed)
    require_same(window[-1], window[21])
    assert [sample["index"] for sample in window[9:14:2]] == [9, 11, 13]
    for outside in (22, -23):
        with pytest.raises(IndexError, match=f"{outside} of 22"):
            window[outside]


def test_seconds_are_steps_of_the_grid(filmed: Lake) -> None:
    seconds = {key: [step / 10 for step in steps] for key, steps in DELTAS.items()}
    by_seconds, by_steps = (
        open_window(filmed, delta_timestamps=seconds),
        open_window(filmed, delta_steps=DELTAS),
    )
    for one, other in zip(by_seconds[:], by_steps[:], strict=True):
        require_same(one, other)


def test_pictures_as_float_are_those_of_uint8(filmed: Lake) -> None:
    floats, bytes_ = open_window(filmed, image_dtype="float32")[5], open_window(filmed)[5]
    assert floats["top"].dtype == torch.float32
    assert torch.equal(floats["top"], bytes_["top"].to(torch.float32) / 255)


def test_pictures_are_scaled_and_transformed(filmed: Lake) -> None:
    seen = []

    def transform(pixels: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(pixels.shape))
        return 255 - pixels

    window = open_window(filmed, delta_steps={"top": [-1, 0]}, image_size=(24, 32))
    plain = window[5]
    window.image_transforms = transform
    changed = window[5]
    assert sorted(seen) == [(2, 3, 24, 32), (3, 24, 32)]
    assert torch.equal(changed["top"], 255 - plain["top"])
    assert torch.equal(changed["state"], plain["state"])
    assert window.meta.features["top"]["shape"] == (24, 32, 3)
    size: Any = np.array([24, 32])
    require_same(
        open_window(filmed, image_size=tuple(size))[5], open_window(filmed, image_size=(24, 32))[5]
    )


def test_names_are_the_source_s_or_the_lake_s(filmed: Lake) -> None:
    assert {"observation.state", "observation.images.top", "action", "note"} <= set(
        Window(filmed)[0]
    )
    assert {"state", "top", "action", "note"} <= set(open_window(filmed)[0])


def test_only_the_keys_asked_for_are_read(filmed: Lake) -> None:
    window = open_window(filmed, keys=["action", "wrist"])
    counters = {"timestamp", "frame_index", "episode_index", "index", "task_index", "task"}
    assert set(window[0]) == {"action", "wrist", *counters}
    assert window.metrics.counts["wanted_frames"] == 1
    assert set(open_window(filmed, keys=[])[0]) == counters
    assert window.meta.camera_keys == ("wrist",)


def test_text_with_deltas_is_a_list(filmed: Lake) -> None:
    sample = open_window(filmed, delta_steps={"note": [-1, 0]})[0]
    assert sample["note"] == ["note 0.0 \u00e9"] * 2
    assert sample["note_is_pad"].tolist() == [True, False]


def test_episodes_are_chosen_by_condition_ids_and_selection(filmed: Lake) -> None:
    ids = [episode.episode_id for episode in episodes_by_id(filmed)]
    frozen = freeze_selection(filmed, "num_steps > 5", name="long")
    filmed.refresh()
    for episodes in ("num_steps > 5", frozen, "long", [ids[1], ids[0]]):
        window = open_window(filmed, episodes=episodes)
        assert window.meta.episodes["episode_id"] == ids[:2]
        assert len(window) == 21


def test_arguments_that_do_not_fit_are_refused_at_once(filmed: Lake) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"names": "short"}, "names='short'"),
        ({"image_dtype": "float16"}, "image_dtype"),
        ({"missing": "skip"}, "missing='skip'"),
        ({"image_size": 64}, "image_size"),
        ({"cache_bytes": -1}, "cache_bytes"),
        ({"episodes": [0, 1]}, "give episode ids"),
        ({"episodes": ["nobody"]}, "not in the lake, first nobody"),
        ({"episodes": []}, "no episode"),
        ({"keys": ["depth"]}, "no selected episode has depth; there are"),
        ({"image_size": (True, 24)}, "image_size"),
        ({"run_steps": 2.5}, "run_steps=2.5: at least 1 step"),
        ({"frame_cache_bytes": 1 << 20}, "frame_cache_bytes=1048576: without run_steps"),
        ({"keys": "action"}, "keys='action': a list of keys"),
        ({"delta_steps": {"action": 5}}, "delta_steps={'action': 5}: a list for each key"),
        ({"delta_steps": {"action": "ab"}}, "are not all whole numbers"),
        ({"delta_steps": {"action": [0.5]}}, "are not all whole numbers"),
        ({"delta_steps": {"action": [float("nan")]}}, "are not all whole numbers"),
        ({"delta_steps": {"action": [1 << 70]}}, "are not all whole numbers"),
        ({"delta_timestamps": {"action": [float("nan")]}}, "nan is not a time"),
        ({"delta_timestamps": {"action": [1e300]}}, "1e[+]300 is not a time"),
        ({"delta_timestamps": {"action": ["now"]}}, "now is not a time"),
        ({"delta_timestamps": {"action": [np.float32(0.1) * 3]}}, r"is 3\.0000\d+ steps"),
        ({"delta_steps": {"actions": [0]}}, "deltas of actions: .* they have action"),
        ({"delta_timestamps": {"action": [0.05]}}, r"episode synthetic/.*action: 0.05 s is 0.5"),
    ]
    for options, message in wrong:
        with pytest.raises(LoaderError, match=message):
            open_window(filmed, **options)


def test_episodes_of_several_rates(tmp_path: Path) -> None:
    lake = create_lake(tmp_path / "x.lake")
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(0, steps=8, fps=10.0))
        writer.add(make_episode(1, steps=8, fps=20.0))
        writer.add(make_episode(2, steps=8, fps=None))
    lake.refresh()
    two = "fps is not null"
    window = open_window(lake, episodes=two, delta_timestamps={"action": [0.0, 0.2]})
    first, second = episodes_by_id(lake)[:2]
    assert window[1]["action"].numpy().tobytes() == first.features["action"][[1, 3]].tobytes()
    assert window[9]["action"].numpy().tobytes() == second.features["action"][[1, 5]].tobytes()
    with pytest.raises(LoaderError, match="no one rate: 10, 20"):
        _ = window.fps
    with pytest.raises(LoaderError, match=r"000000.*action: 0.05 s is 0.5 steps at 10"):
        open_window(lake, episodes=two, delta_timestamps={"action": [0.05]})
    with pytest.raises(LoaderError, match=r"000002.*no nominal rate"):
        open_window(lake, delta_timestamps={"action": [0.0]})
    assert len(open_window(lake, delta_steps={"action": [0, 1]})) == 24


@pytest.mark.parametrize("fps", [29.97, 50 / 3, 30000 / 1001])
def test_rates_that_divide_nothing(tmp_path: Path, fps: float) -> None:
    lake = create_lake(tmp_path / "x.lake")
    times = np.rint(np.arange(40) * 1e9 / fps).astype(np.int64)
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(0, steps=40, fps=fps, timestamps_ns=times))
    lake.refresh()
    window = open_window(lake, delta_timestamps={"action": [i / fps for i in range(-5, 30)]})
    (episode,) = episodes_by_id(lake)
    truth = expected(lake, episode, 20, {"action": range(-5, 30)})
    require_equal(window[20], truth)
    assert window.fps == fps


def test_float64_and_small_integers_come_as_lerobot_has_them(tmp_path: Path) -> None:
    lake = create_lake(tmp_path / "x.lake")
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(0, dtype="float64"))
    lake.refresh()
    window = open_window(lake)
    (episode,) = episodes_by_id(lake)
    assert window[3]["state"].dtype == torch.float32
    assert window[3]["state"].tolist() == episode.features["state"][3].astype("f4").tolist()
    assert window.meta.features["state"]["dtype"] == "float32"


def test_values_beyond_float32_are_an_error_not_infinity(tmp_path: Path) -> None:
    lake = create_lake(tmp_path / "x.lake")
    features = dict(make_episode(0, dtype="float64").features)
    features["state"] = np.full((12, 4), 1e300)
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(0, dtype="float64", features=features))
    lake.refresh()
    with pytest.raises(LoaderError, match=r"episode_000000.*state.*too large for float32"):
        open_window(lake)[0]
    assert "action" in open_window(lake, keys=["action"])[0]


def test_statistics_are_those_of_all_steps(filmed: Lake) -> None:
    window = open_window(filmed)
    states = np.concatenate([e.features["state"] for e in episodes_by_id(filmed)]).astype("f8")
    stats = window.stats["state"]
    assert stats["count"].tolist() == [22]
    np.testing.assert_allclose(stats["mean"], states.mean(0))
    np.testing.assert_allclose(stats["std"], states.std(0))
    np.testing.assert_array_equal(stats["min"], states.min(0))
    assert {"q01", "q10", "q50", "q90", "q99", "max"} <= set(stats)
    assert "top" not in window.stats


def test_meta_speaks_the_trainer_s_language(filmed: Lake) -> None:
    meta = Window(filmed).meta
    assert meta.camera_keys == ("observation.images.top", "observation.images.wrist")
    assert meta.features["observation.images.top"] == {
        "dtype": "video",
        "shape": (48, 64, 3),
        "names": ["height", "width", "channels"],
    }
    assert meta.features["observation.state"]["names"] == ["x", "y", "z", "grip"]
    assert meta.episodes["dataset_from_index"] == [0, 12, 21]
    assert meta.episodes["dataset_to_index"] == [12, 21, 22]
    assert (meta.total_frames, meta.total_episodes) == (22, 3)
    assert meta.tasks == ("lift block 0", "lift block 1", "lift block 2")
    assert meta.robot_type == "test-arm"


def test_a_batch_is_one_read_and_decodes_each_group_once(filmed: Lake) -> None:
    window = open_window(filmed, keys=["top"])
    window.__getitems__([0])  # the episode's index is held from here on
    window.metrics.counts.clear()
    window.__getitems__([4, 1, 3, 2, 0, 4])
    counts = window.metrics.counts
    assert (counts["requests"], counts["decoded_frames"], counts["wanted_frames"]) == (1, 5, 6)


def test_what_is_kept_is_bounded_in_bytes(filmed: Lake) -> None:
    window = open_window(filmed, cache_bytes=0)
    for sample, again in zip(window[:], open_window(filmed)[:], strict=True):
        require_same(sample, again)
    assert window._samples._reader is not None
    assert len(window._samples._reader._episodes._held) == 3  # those of the last batch alone
    window[0]
    assert len(window._samples._reader._episodes._held) == 1


def test_pickled_it_reads_the_same_versions(filmed: Lake) -> None:
    window = open_window(filmed, delta_steps=DELTAS)
    before = window[7]
    copy = pickle.loads(pickle.dumps(window))
    require_same(copy[7], before)
    assert copy.metrics.counts != {}


def test_later_episodes_do_not_change_an_open_window(tmp_path: Path) -> None:
    lake = create_lake(tmp_path / "x.lake")
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(1))
    lake.refresh()
    window = open_window(lake)
    sample = window[4]
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(0))
    assert len(window) == 12
    require_same(pickle.loads(pickle.dumps(window))[4], sample)


def test_default_collate_makes_lerobot_s_batches(filmed: Lake) -> None:
    window = Window(filmed, delta_steps={"action": [0, 1, 2]})
    batch = next(iter(DataLoader(window, batch_size=4)))
    assert batch["observation.images.top"].shape == (4, 3, 48, 64)
    assert batch["observation.images.top"].dtype == torch.float32
    assert batch["action"].shape == (4, 3, 3)
    assert batch["action_is_pad"].shape == (4, 3)
    assert batch["index"].tolist() == [0, 1, 2, 3]
    assert batch["task"] == ["lift block 0"] * 4


def test_the_node_s_cache_serves_what_was_read_before(filmed: Lake, tmp_path: Path) -> None:
    storage = StorageSettings(cache_dir=str(tmp_path / "cache"))
    first, again = (open_window(filmed, storage=storage) for _ in range(2))
    for sample, other in zip(first[:], again[:], strict=True):
        require_same(sample, other)
    assert first.metrics.counts["cache_misses"] > 0
    assert again.metrics.counts["cache_misses"] == 0
    assert again.metrics.counts["cache_hits"] > 0


def test_without_torch_samples_are_arrays(filmed: Lake) -> None:
    samples = WindowSamples(filmed, delta_steps=DELTAS, names="canonical")
    window = open_window(filmed, delta_steps=DELTAS)
    for array, tensor in zip(samples.read(range(22)), window[:], strict=True):
        require_same(tensor, {k: _tensor(v) for k, v in array.items()})
    code = "import loader.windows.samples, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value

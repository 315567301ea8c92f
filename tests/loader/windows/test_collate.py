"""Samples of unlike episodes as one batch: padded with masks, or packed without padding."""

import dataclasses
import functools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from lake import FeatureSpec, Lake, create_lake
from lake.writer import EpisodeWriter
from loader.errors import BatchError, LoaderError
from loader.windows.collate import PackedSamples, collate_packed, collate_padded
from loader.windows.window import Window
from tests.episodes import make_episode, make_filmed_episode

DELTAS = {"action": [0, 1, 2, 3], "top": [-1, 0]}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two arms: one with 4 states and two cameras, one with 6 states, 5 actions and one camera."""
    lake = create_lake(tmp_path_factory.mktemp("mixed") / "x.lake")
    with EpisodeWriter(lake) as writer:
        writer.add(make_filmed_episode(0, steps=6, camera_names=("top", "wrist")))
        writer.add(larger_arm())
    lake.refresh()
    return lake


def larger_arm() -> Any:
    episode = make_filmed_episode(1, steps=5, camera_names=("top",))
    rng = np.random.default_rng(0)
    state, action, *_ = episode.spec.features
    features = (
        dataclasses.replace(state, shape=(6,), names=None),
        dataclasses.replace(action, shape=(5,)),
        FeatureSpec(
            name="reward", source_name="next.reward", dtype="float32", shape=(), role="reward"
        ),
    )
    values = {
        "state": rng.normal(size=(5, 6)).astype(np.float32),
        "action": rng.normal(size=(5, 5)).astype(np.float32),
        "reward": np.arange(1, 6, dtype=np.float32),
    }
    spec = dataclasses.replace(episode.spec, features=features)
    return dataclasses.replace(episode, spec=spec, features=values)


def open_window(lake: Lake, **options: Any) -> Window:
    return Window(
        lake, **{"names": "canonical", "image_dtype": "uint8", "delta_steps": DELTAS, **options}
    )


def test_what_a_sample_lacks_is_zero_and_said(mixed: Lake) -> None:
    window = open_window(mixed)
    samples = window.__getitems__([5, 6])
    batch = collate_padded(samples, keys=window.padded_keys())
    small, large = samples
    assert batch["state"].shape == (2, 6)
    assert batch["state"][0].tolist() == [*small["state"].tolist(), 0, 0]
    assert batch["state_mask"].tolist() == [[True] * 4 + [False] * 2, [True] * 6]
    assert batch["action"].shape == (2, 4, 5)
    assert torch.equal(batch["action"][0, :, :3], small["action"])
    assert not batch["action"][0, :, 3:].any()
    assert torch.equal(batch["action"][1], large["action"])
    assert batch["action_mask"].tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert batch["action_is_pad"].tolist() == [[False, True, True, True], [False] * 4]
    assert batch["reward"].tolist() == [0, 1]
    assert batch["reward_mask"].tolist() == [False, True]
    assert batch["wrist_mask"].tolist() == [True, False]
    assert torch.equal(batch["wrist"][0], small["wrist"])
    assert not batch["wrist"][1].any()
    assert batch["top_mask"].tolist() == [True, True]
    assert batch["top"].shape == (2, 2, 3, 48, 64)
    assert batch["note"] == [small["note"], None]
    assert batch["task"] == [small["task"], large["task"]]


def test_every_batch_has_the_same_form(mixed: Lake) -> None:
    window = open_window(mixed, missing="pad")
    collate = pickle.loads(
        pickle.dumps(functools.partial(collate_padded, keys=window.padded_keys(dims={"action": 8})))
    )
    forms = set()
    for numbers in ([0, 1], [6, 7], [2, 8]):
        batch = collate(window.__getitems__(numbers))
        forms.add(
            tuple(
                (key, value.dtype, tuple(value.shape)) if torch.is_tensor(value) else key
                for key, value in batch.items()
            )
        )
        assert batch["action"].shape == (2, 4, 8)
    assert len(forms) == 1


def test_alike_episodes_give_the_default_batch_and_picture_masks(mixed: Lake) -> None:
    window = open_window(mixed, episodes="num_steps = 6")
    samples = window.__getitems__([0, 3])
    batch = collate_padded(samples, keys=window.padded_keys())
    plain = default_collate([{k: v for k, v in s.items() if k != "note"} for s in samples])
    assert set(batch) == {*plain, "note", "top_mask", "wrist_mask"}
    for key, value in plain.items():
        if torch.is_tensor(value):
            assert torch.equal(batch[key], value), key


def test_keys_of_another_window_are_refused(mixed: Lake) -> None:
    few = open_window(mixed, keys=["action", "top"]).padded_keys()
    window = open_window(mixed)
    with pytest.raises(BatchError, match=r"samples have note, state, .*keys of the batch do not"):
        collate_padded([window[0]], keys=few)
    short = open_window(mixed, delta_steps={**DELTAS, "action": [0, 1]})
    with pytest.raises(BatchError, match=r"action is \[4, 3\] in a sample.*room for \[2, 5\]"):
        collate_padded([window[0]], keys=short.padded_keys())


def test_dims_must_fit(mixed: Lake) -> None:
    window = open_window(mixed)
    for dims, message in (
        ({"action": 4}, "action has 5 elements, 4 are too few"),
        ({"reward": 2}, "reward is a single number"),
        ({"top": 2}, "no vectors called top"),
    ):
        with pytest.raises(LoaderError, match=message):
            window.padded_keys(dims=dims)


def test_pictures_of_several_sizes_need_one(scene: Lake, tmp_path: Path) -> None:
    lake = create_lake(tmp_path / "x.lake")
    with EpisodeWriter(lake) as writer:
        writer.add(make_filmed_episode(0))
        writer.add(make_filmed_episode(1, height=32, width=32))
    lake.refresh()
    with pytest.raises(LoaderError, match="top have sizes 32x32, 48x64: give an image_size"):
        open_window(lake).padded_keys()
    window = open_window(lake, image_size=(24, 24))
    batch = collate_padded(window.__getitems__([0, 20]), keys=window.padded_keys())
    assert batch["top"].shape == (2, 2, 3, 24, 24)
    # In the scene, the wrist camera differs from the top one, and not every episode has one.
    both = open_window(scene, missing="pad", delta_steps={"action": [0]})
    forms = both.padded_keys()
    assert (forms["top"].shape, forms["wrist"].shape) == ((3, 32, 48), (3, 48, 64))


def test_an_episode_without_a_feature_of_its_spec_is_masked(tmp_path: Path) -> None:
    lake = create_lake(tmp_path / "x.lake")
    whole, short = make_episode(0), make_episode(1)
    features = {name: short.features[name] for name in ("action", "note")}
    with EpisodeWriter(lake) as writer:
        writer.add(whole)
        writer.add(dataclasses.replace(short, features=features))
    lake.refresh()
    window = open_window(lake, delta_steps={"action": [0]})
    batch = collate_padded(window.__getitems__([0, 12]), keys=window.padded_keys())
    assert batch["state_mask"].tolist() == [[True] * 4, [False] * 4]
    assert not batch["state"][1].any()


def test_packed_samples_hold_real_steps_only(mixed: Lake) -> None:
    window = open_window(mixed, delta_steps={**DELTAS, "state": [-1, 0]})
    samples = window.__getitems__([0, 5, 6])
    packed = collate_packed(samples, cameras=window.meta.camera_keys, state="state")
    assert packed.cu_seqlens_action.tolist() == [0, 4, 5, 9]
    assert packed.cu_seqlens_state.tolist() == [0, 1, 3, 4]  # no step before the first
    assert packed.max_seqlen_action == 4
    assert packed.cu_seqlens_action.dtype == torch.int32
    assert torch.equal(packed.actions[4, :3], samples[1]["action"][0])
    assert torch.equal(packed.actions[5:], samples[2]["action"])
    assert packed.action_dim_mask[4].tolist() == [True] * 3 + [False] * 2
    assert packed.state_dim_mask[3].tolist() == [True] * 6
    assert torch.equal(packed.state[3], samples[2]["state"][1])
    # Sample 0 has no picture before its first, sample 2 neither, and no wrist camera.
    assert packed.cameras == ("top", "wrist")
    assert packed.image_span_ids.tolist() == [0, 0, 1, 1, 1, 2]
    assert packed.image_camera_ids.tolist() == [0, 1, 0, 0, 1, 0]
    assert torch.equal(packed.images[2], samples[1]["top"][0])
    assert torch.equal(packed.images[4], samples[1]["wrist"])
    assert packed.tasks == ("lift block 0", "lift block 0", "lift block 1")


def test_packed_samples_go_to_devices_and_through_loaders(mixed: Lake) -> None:
    window = open_window(mixed)
    collate = functools.partial(
        collate_packed, cameras=("top",), state="state", state_size=8, action_size=8
    )
    loader = DataLoader(window, batch_size=4, collate_fn=collate)
    batches: list[PackedSamples] = [batch.to("cpu") for batch in loader]
    assert [len(batch.tasks) for batch in batches] == [4, 4, 3]
    assert {batch.state.shape[1] for batch in batches} == {8}
    lengths = [4, 4, 4, 3, 2, 1, 4, 4, 3, 2, 1]  # what is left of each episode at each step
    assert sum(int(batch.cu_seqlens_action[-1]) for batch in batches) == sum(lengths)


def test_packing_says_what_it_lacks(mixed: Lake) -> None:
    window = open_window(mixed, delta_steps={})
    with pytest.raises(BatchError, match="packing needs deltas for action"):
        collate_packed([window[0]], cameras=("top",), state="state")
    window = open_window(mixed)
    with pytest.raises(BatchError, match=r"needs observation\.state in every episode"):
        collate_packed([window[0]], cameras=("top",))
    with pytest.raises(BatchError, match="action has 5 elements, 4 are too few"):
        collate_packed([window[7]], cameras=("top",), state="state", action_size=4)


def test_states_and_actions_of_any_shape_are_flattened() -> None:
    """Single numbers (a gripper) and matrices (a pose), alone and with deltas."""
    grip = torch.arange(3.0)
    pad = torch.tensor([False, False, True])
    pose = torch.arange(12.0).reshape(2, 3, 2)
    sample = {
        "grip": torch.tensor(5.0),
        "grips": grip,
        "grips_is_pad": pad,
        "pose": pose[0],
        "poses": pose,
        "poses_is_pad": torch.tensor([True, False]),
        "task": "",
    }
    for state, action, states, actions in (
        ("grip", "grips", [[5.0]], [[0.0], [1.0]]),
        ("pose", "poses", [list(range(6))], [list(range(6, 12))]),
        ("poses", "grips", [list(range(6, 12))], [[0.0], [1.0]]),
    ):
        packed = collate_packed([sample], cameras=(), state=state, action=action)
        assert packed.state.tolist() == states
        assert packed.actions.tolist() == actions
    with pytest.raises(BatchError, match="needs deltas for grip"):
        collate_packed([sample], cameras=(), state="pose", action="grip")

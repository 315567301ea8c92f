import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from lake import Lake
from loader.pack_loader import PackLoader
from packing.errors import LayoutError
from packing.known_layouts import KNOWN_LAYOUTS, choose_prompt
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.tokenizer import UTF8_BYTES, Utf8Bytes
from packing.window_spans import WindowSpans
from tests.packing.small_tokenizers import gemma_like, llama_like, write
from tests.training.batches import TINY, policy_spec
from tests.training.plans import train_config
from training.errors import CheckpointError, ConfigError
from training.loop import train
from training.models.film.model import FilmPolicy
from training.observation import observation_batch
from training.policy import Policy, load_model
from training.policy_spec import PolicySpec

Planned = tuple[Lake, Plan]
RNG = np.random.default_rng(0)


def model_with_tokenizer(**changes: Any) -> FilmPolicy:
    spec = dataclasses.replace(
        policy_spec(), tokenizer_fingerprint=Utf8Bytes().fingerprint, **changes
    )
    torch.manual_seed(0)
    return FilmPolicy(TINY, spec)


def pictures(*cameras: str, size: int = 16) -> dict[str, np.ndarray]:
    return {name: RNG.integers(0, 256, (size, size, 3), dtype=np.uint8) for name in cameras}


@pytest.mark.parametrize("layout", ["compact", "pi0", "pi0.5", "gr00t-n1.5", "gr00t-n1.7"])
def test_an_observation_is_laid_out_as_the_loader_lays_out_a_span(
    planned_cameras: Planned, layout: str
) -> None:
    lake, _ = planned_cameras
    encoder = choose_prompt(
        dataclasses.replace(KNOWN_LAYOUTS[layout].layout, image_tokens=4), UTF8_BYTES
    )
    plan = make_plan(
        lake,
        spans=WindowSpans(horizon=5),
        layout=encoder.layout,
        budget_tokens=1024,
        slots_per_step=3,
    )
    spec = PolicySpec.from_plan(plan.header, image_size=None)
    with PackLoader(lake, plan, process="inline") as loader:
        batch = next(iter(loader))
    assert batch.num_spans > 2
    texts = plan.texts["text"].take(plan.packs["text"][0].values).to_pylist()
    for span in range(batch.num_spans):
        first, stop = batch.cu_seqlens[span : span + 2].tolist()
        tokens = slice(first, stop)
        mine = batch.image_span_ids == span
        seen = {
            spec.cameras[camera]: pixels.permute(1, 2, 0).numpy()
            for camera, pixels in zip(
                batch.image_camera_ids[mine].tolist(), batch.images[0][mine], strict=True
            )
        }
        assert set(seen) == {"front", "wrist"}
        observed = observation_batch(
            spec,
            images=dict(reversed(seen.items())),
            state=batch.state[span].numpy(),
            prompt=encoder.encode(texts[span]),
            ids=encoder.ids,
            stats_id=int(batch.stats_ids[span]),
            embodiment_id=int(batch.embodiment_ids[span]),
            seed=0,
        )
        for name in ("input_ids", "position_ids", "token_modality"):
            assert torch.equal(getattr(observed, name), getattr(batch, name)[tokens]), name
        assert torch.equal(observed.images[0], batch.images[0][mine])
        assert torch.equal(observed.image_camera_ids, batch.image_camera_ids[mine])
        assert torch.equal(observed.state[0], batch.state[span])
        states = slice(span * spec.layout.state_tokens, (span + 1) * spec.layout.state_tokens)
        assert torch.equal(observed.state_token_index + first, batch.state_token_index[states])
        starts = batch.cu_image_tokens[:-1][mine].long()
        index = batch.image_token_index[(starts[:, None] + torch.arange(4)).flatten()]
        assert torch.equal(observed.image_token_index + first, index)


def test_a_trained_policy_acts_from_its_checkpoint_alone(
    planned_cameras: Planned, tmp_path: Path
) -> None:
    lake, plan = planned_cameras
    result = train(lake, plan, tmp_path / "run", train_config(steps=2))
    folder = tmp_path / "moved"
    result.checkpoint.rename(folder)
    policy = Policy.load(folder)
    actions = policy.act(pictures("front", "wrist", size=32), np.zeros(4, np.float32), "lift")
    assert actions.shape == (5, 3)
    assert actions.dtype == np.float32
    assert bool(np.isfinite(actions).all())


def test_a_policy_whose_state_is_text_acts_with_the_tokenizer_of_its_plan(
    planned_cameras: Planned, tmp_path: Path
) -> None:
    lake, _ = planned_cameras
    file = write(tmp_path, "gemma.model", gemma_like())
    plan = make_plan(
        lake,
        spans=WindowSpans(horizon=5),
        layout=dataclasses.replace(KNOWN_LAYOUTS["pi0.5"].layout, image_tokens=4),
        tokenizer=file,
        budget_tokens=512,
        slots_per_step=2,
    )
    save_plan(lake, plan)
    result = train(lake, plan, tmp_path / "run", train_config(steps=2))
    with pytest.raises(LayoutError, match=r"'gemma.model' is neither a file.*--tokenizer FILE"):
        Policy.load(result.checkpoint)
    with pytest.raises(
        CheckpointError, match=r"other.json \(\w{12}\) has other ids than gemma.model \("
    ):
        Policy.load(result.checkpoint, tokenizer=write(tmp_path, "other.json", llama_like()))
    policy = Policy.load(result.checkpoint, tokenizer=file)
    seen = pictures("front", "wrist", size=32)

    def act(state: float) -> list[float]:
        policy.reset(0)
        actions = policy.act(seen, np.full(4, state, np.float32), "lift")
        return [float(value) for value in actions.ravel()]

    assert len(act(0.0)) == 5 * 3
    assert act(0.0) == act(0.0) != act(1.0), "it reads its state"


def test_a_rollout_repeats_from_its_seed() -> None:
    policy = Policy(model_with_tokenizer(), embodiment="arm", spec_id="spec-a")
    seen, state = pictures("front"), np.ones(5, np.float32)
    policy.reset(3)
    first = [policy.act(seen, state, "go") for _ in range(2)]
    policy.reset(3)
    again = [policy.act(seen, state, "go") for _ in range(2)]
    policy.reset(2**70 + 4)
    other = policy.act(seen, state, "go")
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other)


@pytest.mark.parametrize("change", ["camera", "picture", "state", "text"])
def test_all_that_is_seen_matters(change: str) -> None:
    policy = Policy(model_with_tokenizer(), embodiment="arm", spec_id="spec-a")
    seen, state, text = pictures("front"), np.ones(5, np.float32), "go"
    policy.reset(0)
    before = policy.act(seen, state, text)
    if change == "camera":
        seen = {"wrist": seen["front"]}
    elif change == "picture":
        seen = pictures("front")
    elif change == "state":
        state = np.zeros(5, np.float32)
    else:
        text = "og"
    policy.reset(0)
    assert not np.array_equal(before, policy.act(seen, state, text))


def test_actions_come_in_the_recorded_unit_and_size() -> None:
    """A network that predicts zero velocity returns its noise: mean and std of the statistics."""
    model = model_with_tokenizer(horizon=4000)
    torch.nn.init.zeros_(model.action_out.weight)
    arm = Policy(model, embodiment="arm", spec_id="spec-a").act({}, np.zeros(5, np.float32), "go")
    cart = Policy(model, embodiment="cart", spec_id="spec-b").act({}, np.zeros(3, np.float32), "")
    assert arm.shape == (4000, 4)
    assert cart.shape == (4000, 2)
    assert arm.mean(axis=0) == pytest.approx([0.0, 0.1, 0.2, 0.3], abs=0.25)
    assert arm.std(axis=0) == pytest.approx([1.0, 2.0, 3.0, 4.0], rel=0.05)


@pytest.mark.parametrize(
    ("seen", "state", "message"),
    [
        (pictures("side"), np.zeros(5, np.float32), "no camera 'side'; .*front, wrist"),
        (pictures("front", size=24), np.zeros(5, np.float32), "24x24, .*trained on 16x16"),
        ({"front": np.zeros((16, 16), np.uint8)}, np.zeros(5, np.float32), r"uint8\[16, 16\]"),
        (
            {"front": np.zeros((16, 16, 3), np.float32)},
            np.zeros(5, np.float32),
            r"float32\[16, 16, 3\]",
        ),
        ({}, np.zeros(4, np.float32), r"state has shape \[4\], the policy expects \[5\]"),
        ({}, np.array([0, np.nan, 0, np.inf, 0], np.float32), r"not finite at elements \[1, 3\]"),
    ],
)
def test_wrong_observations_are_named(
    seen: dict[str, np.ndarray], state: np.ndarray, message: str
) -> None:
    policy = Policy(model_with_tokenizer(), embodiment="arm", spec_id="spec-a")
    with pytest.raises(ConfigError, match=message):
        policy.act(seen, state, "go")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"spec_id": "spec-a"}, "choose the embodiment .*arm, cart"),
        ({"embodiment": "dog", "spec_id": "spec-a"}, "no embodiment 'dog'"),
        ({"embodiment": "arm", "spec_id": "x"}, "no spec 'x'"),
    ],
)
def test_ambiguous_or_unknown_names_are_refused(names: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Policy(model_with_tokenizer(), **names)


def test_a_policy_that_one_observation_does_not_suit_is_refused() -> None:
    with pytest.raises(ConfigError, match="observes 3 steps"):
        Policy(model_with_tokenizer(history=3), embodiment="arm", spec_id="spec-a")
    with pytest.raises(ConfigError, match="train on a plan of windows"):
        Policy(model_with_tokenizer(span_kind="trajectory"), embodiment="arm", spec_id="spec-a")
    with pytest.raises(CheckpointError, match="other ids"):
        Policy(FilmPolicy(TINY, policy_spec()), embodiment="arm", spec_id="spec-a")


def test_what_is_no_policy_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="neither a checkpoint nor a run"):
        load_model(tmp_path)
    (tmp_path / "policy.json").write_text('{"version": 7}')
    with pytest.raises(CheckpointError, match="version 7"):
        load_model(tmp_path)
    (tmp_path / "policy.json").write_text('{"version": 1, "model": {}, "spec": {}}')
    with pytest.raises(CheckpointError, match=r"not a whole checkpoint: .*checksums\.json"):
        load_model(tmp_path)


def test_the_spec_survives_json() -> None:
    spec = policy_spec()
    assert PolicySpec.from_json(spec.to_json()) == spec


def test_a_plan_without_actions_trains_no_policy(planned: Planned) -> None:
    _, plan = planned
    layout = dataclasses.replace(plan.header.layout, action_tokens=0)
    with pytest.raises(ConfigError, match="no action queries"):
        PolicySpec.from_plan(dataclasses.replace(plan.header, layout=layout), image_size=None)


@pytest.mark.parametrize(("tail", "whole"), [("short", False), ("drop", True), ("pad", False)])
def test_the_spec_tells_whether_chunks_are_whole(
    planned: Planned, tail: Literal["short", "drop", "pad"], *, whole: bool
) -> None:
    lake, _ = planned
    plan = make_plan(
        lake, spans=WindowSpans(horizon=5, tail=tail), budget_tokens=512, slots_per_step=1
    )
    spec = PolicySpec.from_plan(plan.header, image_size=None)
    assert spec.whole_chunks is whole
    assert PolicySpec.from_json(spec.to_json()) == spec


def test_statistics_are_those_of_the_plan(planned: Planned) -> None:
    _, plan = planned
    spec = PolicySpec.from_plan(plan.header, image_size=None)
    stats = plan.header.stats_of(plan.header.specs[0].spec_id, "state")
    assert spec.state[0].mean == stats.mean
    assert spec.state[0].std == stats.std
    assert (spec.state_dim, spec.action_dim, spec.horizon, spec.history) == (4, 3, 5, 1)

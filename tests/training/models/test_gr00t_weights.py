"""Public weights of GR00T N1.5 arrive: every tensor where it belongs, and faults are named."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from packing.layout import TokenLayout
from tests.training.batches import make_spans, policy_spec
from tests.training.models.gr00t_model import FUTURE, SMALL, groot_pack, small_policy
from tests.training.models.published_gr00t import (
    EMBED,
    HEAD,
    PublishedGroot,
    pooling_head,
    published_shapes,
)
from training.errors import CheckpointError, ConfigError
from training.models.gr00t.model import GrootPolicy
from training.models.gr00t.weights import EMBODIMENT_SLOTS, load_public_weights

SLOTS = {"arm": EMBODIMENT_SLOTS["gr1"], "cart": 2}


def policy() -> GrootPolicy:
    return small_policy(action_mask="full")


def public_tensors(*, vocab_size: int = 264) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = published_shapes(SMALL, vocab_size=vocab_size, patch=8, future=FUTURE)
    tensors = {n: torch.randn(shape, generator=generator) * 0.3 for n, shape in shapes.items()}
    tensors[HEAD] = tensors[EMBED].clone()  # tied
    return tensors


def saved(folder: Path, tensors: dict[str, Tensor]) -> Path:
    save_file(tensors, folder / "model.safetensors")
    return folder / "model.safetensors"


def test_every_parameter_is_filled_from_the_public_names(tmp_path: Path) -> None:
    model = policy()
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, float("nan"))
    tensors = public_tensors()
    fresh = load_public_weights(model, saved(tmp_path, tensors))
    assert fresh == []
    assert not any(bool(parameter.isnan().any()) for parameter in model.parameters())
    assert torch.equal(model.embed.weight, tensors[EMBED])


def test_the_velocity_is_that_of_the_published_network(tmp_path: Path) -> None:
    model, tensors = policy(), public_tensors()
    load_public_weights(model, saved(tmp_path, tensors), slots=SLOTS)
    published = PublishedGroot(tensors, SMALL)
    spans = [span for span in make_spans(20, seed=4) if len(span.images) == 2][:4]
    assert {span.kind for span in spans} == {0, 1}
    batch = groot_pack(spans, pad=3)
    noised = torch.randn(batch.actions.shape) * batch.action_dim_mask
    times = torch.rand(batch.span_ids.shape)
    with torch.no_grad():
        velocity = model.velocity(batch, model.encode(batch), noised, times)
        states = model.normalise_state(batch.state, batch.stats_ids[: len(spans)].long())
    states = states * batch.state_dim_mask
    for row, span in enumerate(spans):
        first, stop = batch.cu_seqlens[row], batch.cu_seqlens[row + 1] - 1 - FUTURE
        queries = slice(*batch.cu_seqlens_action[row : row + 2].tolist())
        want = published.velocity(
            batch.images[0][batch.image_span_ids == row].float() / 127.5 - 1.0,
            batch.input_ids[first:stop],
            batch.token_modality[first:stop] == 1,
            torch.nn.functional.pad(states[row : row + 1], (0, SMALL.state_dim - states.shape[1])),
            torch.nn.functional.pad(noised[queries], (0, SMALL.action_dim - noised.shape[1])),
            float(times[row]),
            SLOTS[("arm", "cart")[span.kind]],
        )
        torch.testing.assert_close(
            velocity[queries], want[:, : noised.shape[1]], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("source", ["lerobot", "head_only", "embed_only", "flat_tower", "shards"])
def test_the_ways_of_saving_are_told_apart(tmp_path: Path, source: str) -> None:
    tensors = public_tensors()
    want = policy()
    load_public_weights(want, saved(tmp_path, tensors))
    tensors |= {name: torch.zeros(shape) for name, shape in pooling_head(SMALL).items()}
    if source == "lerobot":
        tensors = {f"_groot_model.{name}": tensor for name, tensor in tensors.items()}
    elif source == "head_only":
        del tensors[EMBED]
    elif source == "embed_only":
        del tensors[HEAD]
    elif source == "flat_tower":
        tensors = {n.replace("vision_model.vision_model.", "vision_model."): t
                   for n, t in tensors.items()}  # fmt: skip
    path = saved(tmp_path, tensors)
    if source == "shards":
        path.unlink()
        names = sorted(tensors)
        halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
        for file, mine in halves.items():
            save_file({name: tensors[name] for name in mine}, tmp_path / file)
        weight_map = {name: file for file, mine in halves.items() for name in mine}
        index = tmp_path / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": weight_map}))
        path = tmp_path
    model = policy()
    load_public_weights(model, path)
    for name, parameter in want.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name)), name


def test_an_embodiment_begins_from_its_slot_and_others_from_the_new_one(tmp_path: Path) -> None:
    model, tensors = policy(), public_tensors()
    load_public_weights(model, saved(tmp_path, tensors), slots=SLOTS)
    public = tensors["action_head.action_encoder.W2.W"]
    assert torch.equal(model.action_in.layer_2.weight, public[[24, 2, 31]])
    for slots in ({"elsewhere": 3}, {"arm": -1}):
        with pytest.raises(ConfigError, match=r"of embodiments (elsewhere|arm): the plan"):
            load_public_weights(model, tmp_path / "model.safetensors", slots=slots)


def test_a_plan_without_pictures_state_and_future_tokens_needs_none(tmp_path: Path) -> None:
    bare = replace(policy_spec(), layout=TokenLayout(image_tokens=0, state_tokens=0))
    path = saved(tmp_path, public_tensors())
    assert load_public_weights(small_policy(bare), path) == []


def test_faults_are_named_and_nothing_is_loaded(tmp_path: Path) -> None:
    tensors = public_tensors()
    del tensors["action_head.vlln.bias"]
    tensors["action_head.extra.weight"] = torch.zeros(1)
    tensors["action_head.state_encoder.layer1.W"] = torch.zeros(20, 8, 20)
    tensors["action_head.future_tokens.weight"] = torch.zeros(4, 24)
    model, before = policy(), policy()
    with pytest.raises(CheckpointError) as caught:
        load_public_weights(model, saved(tmp_path, tensors))
    for said in (
        "1 missing: action_head.vlln.bias",
        "1 unknown: action_head.extra.weight",
        "action_head.future_tokens.weight [4, 24], expected [3, 24]",
        "action_head.state_encoder.layer1.W [20, 8, 20], expected [at least 32, 8, 20]",
    ):
        assert said in str(caught.value)
    assert all(torch.equal(p, before.get_parameter(n)) for n, p in model.named_parameters())


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    tensors = public_tensors(vocab_size=264 + 65)
    with pytest.raises(CheckpointError, match=r"misshapen: .*embed_tokens.weight \[329, 32\]"):
        load_public_weights(policy(), saved(tmp_path, tensors))

"""Public weights arrive: every tensor where it belongs, and faults in a file are named."""

import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from packing.layout import TokenLayout
from tests.training.batches import IMAGE_TOKENS, make_spans, pack, policy_spec
from tests.training.models.pi05_model import SMALL, small_policy
from tests.training.models.published_pi05 import HEAD, PALIGEMMA, PublishedPi05, published_shapes
from training.errors import CheckpointError
from training.models.pi05.model import Pi05Policy
from training.models.pi05.weights import load_public_weights
from training.policy_spec import PolicySpec

EMBED = f"{PALIGEMMA}language_model.embed_tokens.weight"


def spec(*, state_tokens: int = 0) -> PolicySpec:
    layout = TokenLayout(image_tokens=IMAGE_TOKENS, state_tokens=state_tokens)
    return replace(policy_spec(), layout=layout)


def policy(**changes: Any) -> Pi05Policy:
    return small_policy(changes.pop("spec", spec()), action_mask="full", **changes)


def public_tensors(*, vocab_size: int = 264, seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = published_shapes(SMALL, vocab_size=vocab_size, patch=8)
    return {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}


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
    assert torch.equal(model.embed.weight, tensors[HEAD])


def test_the_velocity_is_that_of_the_published_network(tmp_path: Path) -> None:
    """Time and direction too: the published network counts from the actions to the noise."""
    model, tensors = policy(), public_tensors()
    load_public_weights(model, saved(tmp_path, tensors))
    published = PublishedPi05(tensors, SMALL)
    spans = [span for span in make_spans(12, seed=4) if len(span.images) == 2][:3]
    batch = pack(spans, pad=3)
    noised = torch.randn(batch.actions.shape)
    times = torch.rand(batch.span_ids.shape)
    with torch.no_grad():
        velocity = model.velocity(batch, model.encode(batch), noised, times)
    for row in range(len(spans)):
        first, stop = batch.cu_seqlens[row : row + 2].tolist()
        queries = slice(*batch.cu_seqlens_action[row : row + 2].tolist())
        pictures = batch.images[0][batch.image_span_ids == row].float() / 127.5 - 1.0
        ids = batch.input_ids[first + len(pictures) * IMAGE_TOKENS : stop]
        padded = torch.zeros(len(noised[queries]), SMALL.action_dim)
        padded[:, : noised.shape[1]] = noised[queries]
        want = published.velocity(pictures, ids, padded, 1.0 - float(times[row]))
        torch.testing.assert_close(
            velocity[queries], -want[:, : noised.shape[1]], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("source", ["lerobot", "embed_tokens", "flat_tower", "shards"])
def test_the_ways_of_saving_are_told_apart(tmp_path: Path, source: str) -> None:
    tensors = public_tensors()
    want = policy()
    load_public_weights(want, saved(tmp_path, tensors))
    if source == "lerobot":
        tensors = {f"model.{name}": tensor for name, tensor in tensors.items()}
    elif source == "embed_tokens":
        tensors[EMBED] = tensors.pop(HEAD)
    elif source == "flat_tower":
        tensors = {name.replace("vision_model.", ""): t for name, t in tensors.items()}
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


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_paligemma_alone_fills_trunk_and_tower(tmp_path: Path, prefix: str) -> None:
    outer = "model." if prefix.startswith("model.") else ""
    tensors = {}
    for name, tensor in public_tensors(vocab_size=264 + 56).items():
        if name == HEAD:
            tensors[f"{prefix}embed_tokens.weight"] = tensor
        elif name.startswith(f"{PALIGEMMA}language_model."):
            tensors[prefix + name.removeprefix(f"{PALIGEMMA}language_model.")] = tensor
        elif name.startswith(PALIGEMMA):
            tensors[outer + name.removeprefix(PALIGEMMA)] = tensor
    model, before = policy(), policy()
    fresh = load_public_weights(model, saved(tmp_path, tensors), source="paligemma")
    assert {name.split(".")[0] for name in fresh} == {
        "expert", "norm_out", "time_in", "time_out", "action_in", "action_out",
    }  # fmt: skip
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before.get_parameter(name)) is (name in fresh), name
    assert torch.equal(model.embed.weight, tensors[f"{prefix}embed_tokens.weight"][:264])


def test_what_is_not_public_is_said_to_stay_fresh(tmp_path: Path) -> None:
    model = policy(spec=spec(state_tokens=1))
    fresh = load_public_weights(model, saved(tmp_path, public_tensors()))
    assert fresh == ["state_in.weight", "state_in.bias"]


def test_a_plan_without_pictures_needs_no_tower(tmp_path: Path) -> None:
    blind = replace(policy_spec(), layout=TokenLayout(image_tokens=0, state_tokens=0))
    assert load_public_weights(policy(spec=blind), saved(tmp_path, public_tensors())) == []


def test_faults_are_named_and_nothing_is_loaded(tmp_path: Path) -> None:
    tensors = public_tensors()
    del tensors["time_mlp_in.bias"]
    tensors["paligemma_with_expert.extra.weight"] = torch.zeros(1)
    tensors["action_in_proj.weight"] = torch.zeros(24, 7)
    model, before = policy(), policy()
    with pytest.raises(CheckpointError) as caught:
        load_public_weights(model, saved(tmp_path, tensors))
    assert "1 missing: time_mlp_in.bias" in str(caught.value)
    assert "1 unknown: paligemma_with_expert.extra.weight" in str(caught.value)
    assert "1 misshapen: action_in_proj.weight [24, 7], expected [24, 6]" in str(caught.value)
    assert all(torch.equal(p, before.get_parameter(n)) for n, p in model.named_parameters())


def test_long_lists_of_faults_are_cut(tmp_path: Path) -> None:
    tensors = {name: t for name, t in public_tensors().items() if "gemma_expert" not in name}
    with pytest.raises(CheckpointError, match=r"24 missing: gemma_expert\..*, \.\.\.$"):
        load_public_weights(policy(), saved(tmp_path, tensors))


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    tensors = public_tensors(vocab_size=264 + 65)
    with pytest.raises(CheckpointError, match=r"misshapen: .*lm_head.weight \[329, 32\]"):
        load_public_weights(policy(), saved(tmp_path, tensors))


def test_the_same_weights_twice_are_refused(tmp_path: Path) -> None:
    tensors = public_tensors()
    tensors["model.time_mlp_in.bias"] = tensors["time_mlp_in.bias"].clone()
    with pytest.raises(CheckpointError, match="are the same weights"):
        load_public_weights(policy(), saved(tmp_path, tensors))


@pytest.mark.parametrize("damage", ["none", "cut", "index"])
def test_files_that_cannot_be_read_are_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "model.safetensors"
    if damage == "cut":
        whole = saved(tmp_path, public_tensors()).read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "index":
        (tmp_path / "model.safetensors.index.json").write_text("{}")
        path = tmp_path
    with pytest.raises(CheckpointError, match="cannot read the weights in"):
        load_public_weights(policy(), path)


def test_one_public_tensor_is_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path, public_tensors())
    handed: list[weakref.ref[Tensor]] = []

    class Slice:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def get_shape(self) -> list[int]:
            shape: list[int] = self.inner.get_shape()
            return shape

        def __getitem__(self, rows: slice) -> Tensor:
            assert all(ref() is None for ref in handed)
            tensor: Tensor = self.inner[rows]
            handed.append(weakref.ref(tensor))
            return tensor

    class File:
        def __init__(self, *args: Any, **named: Any) -> None:
            self.inner: Any = safe_open(*args, **named)

        def __enter__(self) -> Self:
            self.inner.__enter__()
            return self

        def __exit__(self, *caught: object) -> None:
            self.inner.__exit__(*caught)

        def keys(self) -> list[str]:
            names: list[str] = self.inner.keys()
            return names

        def get_slice(self, name: str) -> Slice:
            return Slice(self.inner.get_slice(name))

    monkeypatch.setattr("training.models.parts.public_weights.safe_open", File)
    load_public_weights(policy(), path)
    assert len(handed) > 50

"""A trained policy, for rollouts: loaded from a checkpoint folder alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from packing.known_layouts import choose_prompt
from training.checkpoints.checksums import require_checksums
from training.checkpoints.folder import CHECKPOINT_VERSION, latest_checkpoint
from training.errors import CheckpointError, ConfigError
from training.models.kinds import ModelConfig, build_model
from training.models.policy_model import PolicyModel
from training.observation import observation_batch
from training.policy_spec import PolicySpec
from training.precision.quantise import read_weights, weights_file
from training.settings import Settings, build


@dataclass(frozen=True, kw_only=True)
class _Saved(Settings):
    model: ModelConfig


class Policy:
    """Acts on one observation at a time.

    Args:
        model: trained.
        embodiment: whose projections to use; may be left out where the model has one.
        spec_id: whose normalisation to use; may be left out where the model has one.
        tokenizer: file of the tokenizer that the plan was made with, where it is not built in.

    Raises:
        ConfigError: a name is unknown, missing, or the policy needs a history of observations.
    """

    def __init__(
        self,
        model: PolicyModel,
        *,
        embodiment: str | None = None,
        spec_id: str | None = None,
        tokenizer: Path | None = None,
    ) -> None:
        spec = model.spec
        if spec.span_kind != "window":
            raise ConfigError(
                f"the policy was trained on {spec.span_kind} spans, whose actions see observations"
                " of later steps: to act, train on a plan of windows"
            )
        if spec.history != 1:
            raise ConfigError(
                f"the policy observes {spec.history} steps; acting on one observation needs a plan"
                " of windows with history 1"
            )
        self.model = model.eval()
        self.spec = spec
        self._embodiment = _choose("embodiment", embodiment, spec.embodiments)
        self._stats = _choose("spec", spec_id, spec.spec_ids)
        self._prompt = choose_prompt(spec.layout, tokenizer)
        if self._prompt.tokenizer.fingerprint != spec.tokenizer_fingerprint:
            given = self._prompt.tokenizer
            raise CheckpointError(
                f"tokenizer {given.name} ({given.fingerprint[:12]}) has other ids than"
                f" {spec.layout.tokenizer} ({spec.tokenizer_fingerprint[:12]}) had at training"
                " time; use the file that the plan was made with, or the Headrace that the policy"
                " was trained with"
            )
        self._seed = 0

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        embodiment: str | None = None,
        spec_id: str | None = None,
        tokenizer: Path | None = None,
    ) -> "Policy":
        """Load a policy.

        Args:
            path: a checkpoint's folder, one that `headrace quantise` wrote, or the folder of a run
                (its latest checkpoint).
            embodiment: see the class.
            spec_id: see the class.
            tokenizer: see the class.

        Raises:
            CheckpointError: there is no usable checkpoint.
            ConfigError: see the class.
        """
        return cls(load_model(path), embodiment=embodiment, spec_id=spec_id, tokenizer=tokenizer)

    def reset(self, seed: int = 0) -> None:
        """Start a new rollout: the same seed and observations give the same actions."""
        self._seed = (seed & 0x7FFF_FFFF) << 32  # leaves room to count, and fits an int64

    def act(
        self,
        images: Mapping[str, NDArray[np.uint8]],
        state: NDArray[np.float32],
        instruction: str,
    ) -> NDArray[np.float32]:
        """Actions for the next steps.

        Args:
            images: camera name -> [h, w, 3] uint8 RGB, at the size the policy was trained on.
            state: [Ds] in the recorded unit.
            instruction: task in words.

        Returns:
            [H, Da] float32 in the recorded unit.

        Raises:
            ConfigError: an unknown camera, or a state or picture of the wrong shape.
        """
        self._seed += 1
        batch = observation_batch(
            self.spec,
            images=images,
            state=state,
            prompt=self._prompt.encode(instruction),
            ids=self._prompt.ids,
            stats_id=self._stats,
            embodiment_id=self._embodiment,
            seed=self._seed,
        )
        device = next(self.model.parameters()).device
        size = len(self.spec.action[self._stats].mean)
        actions: NDArray[np.float32] = self.model.sample(batch.to(device))[:, :size].cpu().numpy()
        return actions


def load_model(path: Path) -> PolicyModel:
    """The model of a checkpoint's folder, or of a run's latest checkpoint, on the CPU.

    Reads JSON and safetensors only: nothing in a checkpoint is executed.

    Raises:
        CheckpointError: there is no usable checkpoint.
    """
    folder = find_checkpoint(path)
    try:
        raw: dict[str, Any] = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
        if raw["version"] != CHECKPOINT_VERSION:
            raise CheckpointError(
                f"{folder} is a checkpoint of version {raw['version']}, this Headrace reads"
                f" {CHECKPOINT_VERSION}"
            )
        weights = weights_file(folder)
        require_checksums(folder, ("policy.json", weights))
        config = build(_Saved, {"model": raw["model"]}).model
        spec = PolicySpec.from_json(json.dumps(raw["spec"]))
        model = build_model(config, spec)
        model.load_state_dict(read_weights(folder / weights))
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"cannot load the policy in {folder}: {error}") from error
    return model


def find_checkpoint(path: Path) -> Path:
    """The folder itself if it is a checkpoint, or the latest checkpoint of a run's folder.

    Raises:
        CheckpointError: it is neither.
    """
    if (path / "policy.json").exists():
        return path
    latest = latest_checkpoint(path / "checkpoints")
    if latest is None:
        raise CheckpointError(f"{path} is neither a checkpoint nor a run that has one")
    return latest


def _choose(kind: str, name: str | None, names: tuple[str, ...]) -> int:
    if name is None and len(names) == 1:
        return 0
    if name not in names:
        known = ", ".join(names)
        raise ConfigError(
            f"choose the {kind} the policy acts as, one of: {known}"
            if name is None
            else f"the policy knows no {kind} {name!r}; there are: {known}"
        )
    return names.index(name)

"""What a training run is told: frozen, keyword-only, checked, from a YAML file and overrides."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from training.errors import ConfigError, require_positive
from training.models.film.config import FilmConfig
from training.models.kinds import PRESETS, ModelConfig
from training.precision.config import PrecisionConfig
from training.settings import Settings, build, merge, nested, read_yaml


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Settings):
    """AdamW with warm-up and decay.

    Attributes:
        lr: peak learning rate.
        warmup_steps: steps of linear rise from 0.
        schedule: how the rate falls from its peak to the last step.
        final_lr_share: learning rate at the last step over the peak; `constant` has none.
        weight_decay: on matrices; vectors (norms, biases) have none.
        betas: AdamW's moment decays.
        clip_norm: gradient norm at which gradients are scaled down.
        ema_decay: decay of the averaged weights that rollouts use; 0 keeps no average.
    """

    lr: float = 1e-3
    warmup_steps: int = 50
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    final_lr_share: float = 0.0
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.95)
    clip_norm: float = 1.0
    ema_decay: float = 0.0

    def __post_init__(self) -> None:
        require_positive("optimizer.lr", self.lr)
        require_positive("optimizer.clip_norm", self.clip_norm)
        if self.warmup_steps < 0:
            raise ConfigError(f"optimizer.warmup_steps cannot be negative: {self.warmup_steps}")
        if not self.weight_decay >= 0:
            raise ConfigError(f"optimizer.weight_decay cannot be negative: {self.weight_decay}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"optimizer.betas must lie in [0, 1), not {self.betas}")
        if not (0 <= self.final_lr_share <= 1 and 0 <= self.ema_decay < 1):
            raise ConfigError(
                "optimizer.final_lr_share must lie in [0, 1] and optimizer.ema_decay in [0, 1)"
            )


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig(Settings):
    """When to write checkpoints and how many to keep.

    Attributes:
        every_steps: a checkpoint after this many steps (and one at the end).
        keep: newest checkpoints that stay; older ones are deleted.
        asynchronous: write beside the training, which goes on once weights and moments are copied
            to the host's memory.
    """

    every_steps: int = 500
    keep: int = 3
    asynchronous: bool = True

    def __post_init__(self) -> None:
        require_positive("checkpoint.every_steps", self.every_steps)
        require_positive("checkpoint.keep", self.keep)


@dataclass(frozen=True, kw_only=True)
class LoaderConfig(Settings):
    """How batches are fed.

    Attributes:
        process: `child` decodes in a process of its own, `inline` in the trainer's.
        buffer_mb: bound of the prefetch buffers of one rank, in MiB.
        image_size: height and width in pixels to which pictures are resized on decode; None
            keeps each camera's own size.
        materialized: name of a set of materialised packs to read (`copy`, or as `headrace plan
            materialize` named it); None reads episodes.
        cache_dir: folder on a local disk that all ranks of the node share as a cache of what they
            read from the lake; None for no cache.
        cache_gb: what that cache may take, in GB.
        max_bad_share: the most spans damaged in the lake that a rank trains on as padding without
            loss, as a share of the plan's spans; one more ends the run.
    """

    process: Literal["child", "inline"] = "child"
    buffer_mb: int = 512
    image_size: int | None = None
    materialized: str | None = None
    cache_dir: str | None = None
    cache_gb: float = 100.0
    max_bad_share: float = 1e-4

    def __post_init__(self) -> None:
        require_positive("loader.buffer_mb", self.buffer_mb)
        require_positive("loader.cache_gb", self.cache_gb)
        if self.image_size is not None:
            require_positive("loader.image_size", self.image_size)


@dataclass(frozen=True, kw_only=True)
class DistributedConfig(Settings):
    """How the ranks of a run share its weights.

    Attributes:
        strategy: `ddp`: every rank holds all; `fsdp2`: each holds a part of weights, gradients and
            optimizer, and gathers a block's weights when it computes it; `hsdp`: the same inside
            groups of `shard_size` ranks, which hold copies of each other.
        shard_size: ranks of a group of `hsdp`, a divisor of the world size; None for the ranks of
            a node.
        activation_checkpointing: `blocks` keeps the inputs of blocks alone and computes the rest
            again for the backward pass.
        compile: compile the blocks with torch.compile.
    """

    strategy: Literal["ddp", "fsdp2", "hsdp"] = "ddp"
    shard_size: int | None = None
    activation_checkpointing: Literal["none", "blocks"] = "none"
    compile: bool = False

    def __post_init__(self) -> None:
        if self.shard_size is not None:
            require_positive("distributed.shard_size", self.shard_size)
            if self.strategy != "hsdp":
                raise ConfigError("distributed.shard_size is of strategy hsdp alone")


@dataclass(frozen=True, kw_only=True)
class ObserveConfig(Settings):
    """What a run shows beside `metrics.jsonl`.

    Attributes:
        tensorboard: write `tensorboard/` too.
        profile_every: profile one step in so many, into `profile/`; 0 profiles none.
    """

    tensorboard: bool = False
    profile_every: int = 0

    def __post_init__(self) -> None:
        if self.profile_every < 0:
            raise ConfigError(f"observe.profile_every cannot be negative: {self.profile_every}")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Settings):
    """A whole training run.

    Attributes:
        model: sizes of the policy.
        optimizer: AdamW and its schedule.
        checkpoint: when to write one.
        loader: how batches are fed.
        observe: what it shows.
        steps: optimizer steps; None trains to the end of the plan.
        padded: give the model the spans of each pack padded to the longest of them, to see what
            packing saves: the same batches, loss and gradients, more tokens.
        precision: number formats.
        distributed: how ranks share the weights.
        attention: name of a backend (see `training.attention.varlen`), or `auto` to measure those
            that can run at the start.
        deterministic: every operation gives the same bits every time, on a GPU too, or is refused;
            slower there.
        seed: of the initial weights. Noise and time of flow matching come from the plan instead.
        log_every: steps between two lines of metrics.
        threads: CPU threads of torch; 0 leaves its default.
    """

    model: ModelConfig = field(default_factory=FilmConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    steps: int | None = None
    padded: bool = False
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    distributed: DistributedConfig = field(default_factory=DistributedConfig)
    observe: ObserveConfig = field(default_factory=ObserveConfig)
    attention: str = "auto"
    deterministic: bool = False
    seed: int = 0
    log_every: int = 10
    threads: int = 1

    def __post_init__(self) -> None:
        if self.steps is not None:
            require_positive("steps", self.steps)
        require_positive("log_every", self.log_every)
        if self.padded and self.distributed.compile:
            raise ConfigError(
                "padded packs differ in size from step to step, and distributed.compile would"
                " compile again and again: leave one of the two away"
            )
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed must lie in [0, 2**63), not {self.seed}")
        if self.threads < 0:
            raise ConfigError(f"threads cannot be negative: {self.threads}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, as JSON and YAML take them: tuples are lists."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`; what is missing takes its default.

        Raises:
            ConfigError: an unknown name, or a value of the wrong type.
        """
        return build(cls, values)

    @classmethod
    def load(
        cls, path: Path | None = None, *, preset: str = "tiny", overrides: Mapping[str, Any]
    ) -> Self:
        """Resolve a configuration: preset, then the YAML file, then overrides.

        Args:
            path: YAML file with any part of the configuration, or None.
            preset: name in `PRESETS`, the model the file and the overrides start from.
            overrides: dotted name -> value (`optimizer.lr`); values may be strings.

        Raises:
            ConfigError: the file or a name or value in it is wrong.
        """
        if preset not in PRESETS:
            raise ConfigError(f"no preset called {preset!r}; there are: {', '.join(PRESETS)}")
        values: dict[str, Any] = {"model": dataclasses.asdict(PRESETS[preset])}
        if path is not None:
            merge(values, read_yaml(path))
        for name, value in overrides.items():
            merge(values, nested(name, value))
        return cls.from_dict(values)

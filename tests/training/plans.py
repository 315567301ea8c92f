"""A small lake with a plan to train on, and a model that trains in milliseconds."""

from pathlib import Path
from typing import Literal

import numpy as np

from lake import Lake, create_lake
from lake.video_encode import encode_frames
from lake.writer import EpisodeWriter
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.window_spans import WindowSpans
from tests.episodes import make_episode
from training.config import (
    CheckpointConfig,
    DistributedConfig,
    LoaderConfig,
    OptimizerConfig,
    TrainConfig,
)
from training.models.film.config import FilmConfig

SMALLEST = FilmConfig(
    width=16, expert_width=16, layers=2, heads=2, head_dim=8, conv_channels=(8, 8), flow_steps=2
)


def make_lake(folder: Path, *, episodes: int = 6, cameras: bool = False) -> Lake:
    """Episodes of 10, 13, 16, ... steps; with `cameras`, two pictures per step.

    The first action of a window follows from its state.
    """
    lake = create_lake(folder)
    rng = np.random.default_rng(0)
    with EpisodeWriter(lake) as writer:
        for number in range(episodes):
            steps = 10 + 3 * number
            videos = {
                name: encode_frames(
                    [rng.integers(0, 256, (32, 32, 3), dtype=np.uint8) for _ in range(steps)],
                    fps=10,
                    step_to_frame=np.arange(steps, dtype=np.int32),
                )
                for name in (("front", "wrist") if cameras else ())
            }
            state = rng.standard_normal((steps, 4)).astype(np.float32)
            signals = {
                "state": state,
                "action": np.repeat(np.sin(state[:, :1]), 3, axis=1),
                "note": np.array(["none"] * steps, dtype=object),
            }
            writer.add(make_episode(number, steps=steps, cameras=videos, features=signals))
    return lake


def plan_windows(lake: Lake, *, slots: int = 3, epochs: int = 3) -> Plan:
    """Windows of horizon 5 in packs of 384 tokens, with at least one partly empty step."""
    return make_plan(
        lake,
        spans=WindowSpans(horizon=5),
        layout=TokenLayout(image_tokens=4),
        budget_tokens=384,
        slots_per_step=slots,
        epochs=epochs,
        seed=3,
    )


def train_config(
    *,
    every: int = 2,
    process: str = "inline",
    steps: int | None = None,
    ema: float = 0.5,
    strategy: Literal["ddp", "fsdp2"] = "ddp",
) -> TrainConfig:
    """Checkpoints often, logs each step."""
    return TrainConfig(
        model=SMALLEST,
        optimizer=OptimizerConfig(warmup_steps=2, ema_decay=ema),
        checkpoint=CheckpointConfig(every_steps=every, keep=2),
        loader=LoaderConfig(process="child" if process == "child" else "inline", buffer_mb=64),
        distributed=DistributedConfig(strategy=strategy),
        steps=steps,
        log_every=1,
    )

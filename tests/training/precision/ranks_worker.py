"""A rank of a training in FP8, in a process that starts in milliseconds."""

import os
from dataclasses import replace
from pathlib import Path

from lake import open_lake
from packing.plan_store import load_plan
from tests.training.plans import train_config
from training.config import DistributedConfig
from training.loop import train
from training.precision.config import PrecisionConfig


def run(rank: int, world_size: int, port: int, lake: str, out: str) -> None:
    """Two steps in FP8 and BF16, weights in shards."""
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    opened = open_lake(lake)
    config = replace(
        train_config(steps=2),
        precision=PrecisionConfig(dtype="bf16", fp8="emulate"),
        distributed=DistributedConfig(strategy="fsdp2", activation_checkpointing="blocks"),
    )
    train(opened, load_plan(opened, "windows"), Path(out), config)

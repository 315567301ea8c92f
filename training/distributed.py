"""The process group: one process alone, or what torchrun started."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist

from training.errors import ConfigError, RankLostError

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Who this process is.

    Attributes:
        rank: from 0.
        world_size: processes of the run.
        device: on which this process computes.
        local_world_size: ranks of this node.
    """

    rank: int
    world_size: int
    device: torch.device
    local_world_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes what is written once."""
        return self.rank == 0


@contextmanager
def process_group() -> Iterator[Ranks]:
    """Join the run that torchrun's environment describes; a plain process is a world of one.

    NCCL on GPUs, gloo on CPUs.

    Raises:
        ConfigError: the environment names a world but not this process's place in it, or not
            where to meet.
        RankLostError: another process vanished while this one waited for it.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    if not 0 <= rank < world_size:
        raise ConfigError(f"RANK={rank} is not in a world of WORLD_SIZE={world_size}")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    ranks = Ranks(
        rank=rank,
        world_size=world_size,
        device=device,
        local_world_size=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    )
    if world_size == 1:
        yield ranks
        return
    try:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    except ValueError as error:
        raise ConfigError(
            f"WORLD_SIZE is {world_size}, but {str(error).splitlines()[0]}: start with torchrun, or"
            " unset WORLD_SIZE"
        ) from error
    try:
        yield ranks
    except RuntimeError as error:
        # Gloo raises plain RuntimeErrors, NCCL a DistError, when the other side is gone.
        if not isinstance(error, dist.DistError) and "gloo" not in str(error).lower():
            raise
        raise RankLostError(
            f"rank {rank} lost another of {world_size} ranks ({str(error).splitlines()[0]}): see"
            " what that one said; the same command goes on from the last checkpoint"
        ) from error
    finally:
        dist.destroy_process_group()


def said_by_first(value: T, ranks: Ranks) -> T:
    """What the first rank's value is; every rank calls this."""
    if ranks.world_size == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


def barrier() -> None:
    """Wait for all ranks."""
    if dist.is_initialized():
        dist.barrier()

"""How the ranks of a run share a model: replicas, shards, or groups of shards that are replicas.

Whatever the strategy, the gradients that the last pack of a step leaves are the mean over ranks of
the sums over their packs, so that `training.loss.scale_gradients` is the same for all.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from training.config import DistributedConfig
from training.distributed import Ranks
from training.errors import ConfigError
from training.models.policy_model import PolicyModel

_REPLICATE: Final = "replicate"
_SHARD: Final = "shard"


@dataclass(frozen=True, kw_only=True, eq=False)
class Shared:
    """A model as the ranks share it.

    Attributes:
        model: whose parameters are optimized and saved; sharded ones are DTensors.
        call: what a step calls in its place.
    """

    model: nn.Module
    call: nn.Module

    def pack(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of a pack: only a step's last one talks to other ranks."""
        if isinstance(self.call, FSDPModule):
            # Weights are gathered anew for each pack; gradients, whole until then, are reduced at
            # the step's end.
            self.call.set_requires_gradient_sync(is_last)
            return nullcontext()
        if isinstance(self.call, DistributedDataParallel) and not is_last:
            no_sync: AbstractContextManager[None] = self.call.no_sync()
            return no_sync
        return nullcontext()


def share(
    model: nn.Module, config: DistributedConfig, ranks: Ranks, dtype: torch.dtype = torch.float32
) -> Shared:
    """Checkpoint, compile and spread a model, in place where torch does so; every rank calls this.

    Before the optimizer is made: sharding replaces parameters.

    Args:
        model: on the device of `ranks`, with equal weights on all of them.
        config: how.
        ranks: of this process.
        dtype: of products; shards are gathered in it.

    Raises:
        ConfigError: the strategy does not go with this model or world.
    """
    for block in blocks_of(model, config):
        if config.activation_checkpointing == "blocks":
            _keep_inputs_only(block)
        if config.compile:
            block.compile(dynamic=True)
    if ranks.world_size == 1:
        return Shared(model=model, call=model)
    if config.strategy == "ddp":
        on_gpu = [ranks.device.index] if ranks.device.type == "cuda" else None
        call = DistributedDataParallel(
            model,
            device_ids=on_gpu,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,  # they are the plan's statistics, alike on all ranks
        )
        return Shared(model=model, call=call)
    mesh = device_mesh(config, ranks)
    policy = MixedPrecisionPolicy(
        param_dtype=None if dtype == torch.float32 else dtype,
        reduce_dtype=torch.float32,
        # A batch is no activation: FSDP would round all its fields that are not whole numbers.
        cast_forward_inputs=False,
    )
    for block in blocks_of(model, config):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(
        model, mesh=mesh, mp_policy=policy
    )  # what is in no block; the class changes in place
    return Shared(model=model, call=model)


def device_mesh(config: DistributedConfig, ranks: Ranks) -> DeviceMesh:
    """The ranks as a line, or for `hsdp` as rows of ranks that share shards.

    Raises:
        ConfigError: the world is no multiple of `shard_size`.
    """
    if config.strategy != "hsdp":
        return init_device_mesh(ranks.device.type, (ranks.world_size,), mesh_dim_names=(_SHARD,))
    size = config.shard_size or ranks.local_world_size
    if ranks.world_size % size:
        raise ConfigError(
            f"distributed.shard_size={size} does not divide a world of {ranks.world_size} ranks"
        )
    return init_device_mesh(
        ranks.device.type,
        (ranks.world_size // size, size),
        mesh_dim_names=(_REPLICATE, _SHARD),
    )


def blocks_of(model: nn.Module, config: DistributedConfig) -> Iterator[nn.Module]:
    """The repeating modules, one by one; none for a model of the user's own.

    Raises:
        ConfigError: the configuration asks something of the blocks of a model that names none.
    """
    if isinstance(model, PolicyModel):
        for name in model.blocks:
            yield from getattr(model, name)
    elif config.activation_checkpointing != "none" or config.compile:
        raise ConfigError(
            "distributed.activation_checkpointing and distributed.compile work on blocks, and"
            f" {type(model).__name__} names none: derive it from PolicyModel"
        )


def whole(values: Mapping[str, Tensor], *, keep: bool = True) -> dict[str, Tensor]:
    """Tensors on the host, shards of them gathered one after the other; every rank calls this.

    Args:
        values: name -> tensor, maybe sharded.
        keep: False on a rank that only helps to gather; it gets an empty mapping.
    """
    found = {}
    for name, tensor in values.items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if keep:
            found[name] = full.detach().cpu().contiguous()
    return found


def _keep_inputs_only(block: nn.Module) -> None:
    """Compute the block again in the backward pass, with the same dropout."""
    forward: Any = block.forward
    block.forward = partial(checkpoint, forward, use_reentrant=False)

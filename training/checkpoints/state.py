"""What a checkpoint holds of a training, and a copy of it that the training no longer changes."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict

from training.distributed import Ranks
from training.trained import Trained


def state_of(trained: Trained, ranks: Ranks) -> dict[str, Any]:
    """Weights, moments, averages and this rank's generators; tensors are shared, not copied."""
    model, optimizer = get_state_dict(trained.model, trained.optimizer)
    state: dict[str, Any] = {
        "model": model,
        "optimizer": optimizer,
        rng_key(ranks): _generators(ranks),
    }
    if trained.ema is not None:
        state["ema"] = trained.ema.state_dict()
    return state


def staged(state: dict[str, Any]) -> dict[str, Any]:
    """A copy on the host."""
    stager = DefaultStager(
        StagingOptions(
            use_pinned_memory=False,
            use_shared_memory=False,
            use_async_staging=False,
            use_non_blocking_copy=False,
        )
    )
    try:
        copied: dict[str, Any] = stager.stage(state)  # type: ignore[assignment]  # asynchronously else
    finally:
        stager.close()
    return copied


def set_generators(saved: dict[str, Tensor], ranks: Ranks) -> None:
    """Put this rank's generators back."""
    torch.set_rng_state(saved["cpu"])
    if ranks.device.type == "cuda":
        torch.cuda.set_rng_state(saved["cuda"], ranks.device)


def rng_key(ranks: Ranks) -> str:
    """Under which a rank's generators are saved."""
    return f"rng.{ranks.rank}"


def _generators(ranks: Ranks) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if ranks.device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(ranks.device)
    return states

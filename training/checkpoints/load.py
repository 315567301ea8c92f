"""Going on from a checkpoint, on as many ranks as there are now."""

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Final

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed

from training.checkpoints.checksums import require_checksums
from training.checkpoints.folder import Progress, read_progress
from training.checkpoints.state import rng_key, set_generators, state_of
from training.checkpoints.writer import first_line
from training.distributed import Ranks
from training.errors import CheckpointError
from training.trained import Trained

_TOLD: Final = ("weight_decay", "betas", "eps")


def load_checkpoint(path: Path, trained: Trained, ranks: Ranks) -> None:
    """Put a checkpoint's weights, moments and generator state in place; every rank calls this.

    Shards are cut anew for the ranks that are there. The generators' state is kept per rank; a rank
    that the writing run did not have keeps its own.

    Raises:
        CheckpointError: the folder is damaged or of another model.
    """
    progress = read_progress(path)
    require_checksums(path)
    state = state_of(trained, ranks)
    if ranks.rank >= progress.world_size:
        del state[rng_key(ranks)]
    try:
        with warnings.catch_warnings():
            # One process alone is what we mean then.
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            load_distributed(state, checkpoint_id=path)
    except (OSError, RuntimeError, ValueError, CheckpointException) as error:
        raise CheckpointError(
            f"cannot load the checkpoint {path}: {_differences(trained, progress)}"
            f"{first_line(error)}; train with the model it was made with, or use another --out"
        ) from error
    told = [{name: group[name] for name in _TOLD} for group in trained.optimizer.param_groups]
    set_state_dict(
        trained.model,
        trained.optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    for group, now in zip(trained.optimizer.param_groups, told, strict=True):
        group.update(now)  # what the run is told now holds, not what it was told then
    if trained.ema is not None:
        trained.ema.load_state_dict(state["ema"])
    if rng_key(ranks) in state:
        set_generators(state[rng_key(ranks)], ranks)


def _differences(trained: Trained, progress: Progress) -> str:
    there = progress.config["model"]
    return "".join(
        f"model.{name} is {there[name]} there and {value} here; "
        for name, value in json.loads(json.dumps(asdict(trained.config))).items()
        if there.get(name, value) != value
    )

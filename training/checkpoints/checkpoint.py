"""Checkpoints: written whole or not at all, and enough to go on as if nothing had happened.

A checkpoint is a folder `step-00000100` with

    .metadata, *.distcp    torch DCP: weights and their average, optimizer moments, generators
    trainer.json           position in the plan, plan hash, lake versions, configuration
    policy.json            sizes and `PolicySpec`: with the next file, all that a rollout needs
    policy.safetensors     the weights a rollout uses (averaged ones where an average is kept)
    checksums.json         of all of these

It is written beside its final name, synced and renamed; then the file `latest` is replaced. A
process killed anywhere leaves the checkpoint before it as the latest.
"""

import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

from training.checkpoints.checksums import CHECKSUMS, file_checksums, require_checksums
from training.distributed import Ranks, barrier
from training.errors import CheckpointError
from training.trained import Trained

CHECKPOINT_VERSION: Final = 1
_LATEST = "latest"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands; the `trainer.json` of a checkpoint.

    Attributes:
        step: optimizer steps done, and the plan's next step.
        world_size: ranks that wrote it.
        run_id: of the run, unchanged over resumes.
        plan_hash: of the plan.
        versions: table -> version of the lake that the plan pins.
        loader: `PackLoader.state_dict()`.
        config: `TrainConfig.to_dict()`.
    """

    step: int
    world_size: int
    run_id: str
    plan_hash: str
    versions: Mapping[str, int]
    loader: Mapping[str, Any]
    config: Mapping[str, Any]


def save_checkpoint(
    folder: Path, trained: Trained, progress: Progress, ranks: Ranks, *, keep: int
) -> Path:
    """Write a checkpoint; every rank calls this.

    Args:
        folder: that holds the run's checkpoints.
        trained: what to save.
        progress: where the run stands.
        ranks: of this process.
        keep: newest checkpoints that stay.

    Returns:
        The checkpoint's folder.

    Raises:
        CheckpointError: it could not be written (a full disk); the one before it is untouched.
    """
    final = folder / f"step-{progress.step:08d}"
    partial = folder / f".partial-{final.name}"
    try:
        if ranks.is_first:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        barrier()
        with _quiet_alone():
            save_distributed(_state(trained, ranks), checkpoint_id=partial)
        if ranks.is_first:
            _write_sidecars(partial, trained, progress)
            _publish(partial, final)
            _prune(folder, keep)
        barrier()
    except (OSError, CheckpointException) as error:
        last = latest_checkpoint(folder)
        free_mib = _free_mib(folder)
        if ranks.is_first:
            shutil.rmtree(partial, ignore_errors=True)  # on a full disk it would fill the rest
        raise CheckpointError(
            f"cannot write the checkpoint {final} ({free_mib} MiB were free): {_first_line(error)};"
            f" {f'the last good one is {last}' if last else 'there is none before it'}"
        ) from error
    return final


def load_checkpoint(path: Path, trained: Trained, ranks: Ranks) -> None:
    """Put a checkpoint's weights, moments and generator state in place; every rank calls this.

    The generator's state is kept per rank; a rank that the writing run did not have keeps its own.

    Raises:
        CheckpointError: the folder is damaged or of another model.
    """
    progress = read_progress(path)
    require_checksums(path)
    state = _state(trained, ranks)
    if ranks.rank >= progress.world_size:
        del state[_rng_key(ranks)]
    try:
        with _quiet_alone():
            load_distributed(state, checkpoint_id=path)
    except (OSError, RuntimeError, ValueError, CheckpointException) as error:
        raise CheckpointError(
            f"cannot load the checkpoint {path}: {_differences(trained, progress)}"
            f"{_first_line(error)}; train with the model it was made with, or use another --out"
        ) from error
    set_state_dict(
        trained.model,
        trained.optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    if trained.ema is not None:
        trained.ema.load_state_dict(state["ema"])
    if _rng_key(ranks) in state:
        torch.set_rng_state(state[_rng_key(ranks)])


def read_progress(path: Path) -> Progress:
    """The `trainer.json` of a checkpoint.

    Raises:
        CheckpointError: missing, damaged, or of another version.
    """
    try:
        raw = json.loads((path / "trainer.json").read_text(encoding="utf-8"))
        version = raw.pop("version")
        if version == CHECKPOINT_VERSION:
            return Progress(**raw)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is not a checkpoint: {error}") from error
    raise CheckpointError(
        f"{path} is a checkpoint of version {version}, this Headrace reads {CHECKPOINT_VERSION}"
    )


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint of a run, None before the first.

    Raises:
        CheckpointError: the one that `latest` names is gone.
    """
    pointer = folder / _LATEST
    if not pointer.exists():
        return None
    path = folder / pointer.read_text(encoding="utf-8").strip()
    if not (path / "trainer.json").exists():
        raise CheckpointError(
            f"{pointer} names {path.name}, which is not there: write the name of another"
            " checkpoint into it, or delete it to start again"
        )
    return path


def _state(trained: Trained, ranks: Ranks) -> dict[str, Any]:
    model, optimizer = get_state_dict(trained.model, trained.optimizer)
    state: dict[str, Any] = {
        "model": model,
        "optimizer": optimizer,
        _rng_key(ranks): torch.get_rng_state(),
    }
    if trained.ema is not None:
        state["ema"] = trained.ema.state_dict()
    return state


def _rng_key(ranks: Ranks) -> str:
    return f"rng.{ranks.rank}"


def _write_sidecars(folder: Path, trained: Trained, progress: Progress) -> None:
    _write(folder / "trainer.json", {"version": CHECKPOINT_VERSION, **asdict(progress)})
    _write(
        folder / "policy.json",
        {
            "version": CHECKPOINT_VERSION,
            "model": asdict(trained.config),
            "spec": json.loads(trained.spec.to_json()),
        },
    )
    weights = trained.ema.weights if trained.ema is not None else trained.model.state_dict()
    on_host = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    _sync(folder / "policy.safetensors", save(on_host))
    _write(folder / CHECKSUMS, file_checksums(folder))


def _write(path: Path, values: Mapping[str, Any]) -> None:
    _sync(path, (json.dumps(values, indent=2) + "\n").encode())


def _sync(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _publish(partial: Path, final: Path) -> None:
    """Rename, then point `latest` at it, each step durable before the next."""
    _sync_folder(partial)
    if final.exists():
        # Left by an attempt killed before it moved `latest`: nothing refers to it.
        shutil.rmtree(final)
    partial.rename(final)
    _sync_folder(final.parent)
    pointer = final.parent / f".partial-{_LATEST}"
    _sync(pointer, (final.name + "\n").encode())
    pointer.replace(final.parent / _LATEST)
    _sync_folder(final.parent)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _prune(folder: Path, keep: int) -> None:
    # By age, not by number: after a resume from an older checkpoint, the newest has a lower one.
    by_age = sorted(folder.glob("step-*"), key=lambda path: path.stat().st_mtime_ns)
    cut_short = folder.glob(".partial-step-*")  # by kills; another interval does not come by again
    for old in (*by_age[:-keep], *cut_short):
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _quiet_alone() -> Iterator[None]:
    """DCP warns when there is no process group; one process alone is what we mean then."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _differences(trained: Trained, progress: Progress) -> str:
    there = progress.config["model"]
    return "".join(
        f"model.{name} is {there[name]} there and {value} here; "
        for name, value in json.loads(json.dumps(asdict(trained.config))).items()
        if there.get(name, value) != value
    )


def _free_mib(folder: Path) -> int:
    return shutil.disk_usage(folder if folder.exists() else folder.parent).free >> 20


def _first_line(error: BaseException) -> str:
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return (str(error).splitlines() or [type(error).__name__])[0]

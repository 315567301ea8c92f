"""The folder of a run's checkpoints: each whole or not there at all, the newest known by name.

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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from training.errors import CheckpointError

CHECKPOINT_VERSION: Final = 1
_LATEST: Final = "latest"


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


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies once it is whole."""
    return folder / f"step-{step:08d}"


def begin(final: Path) -> Path:
    """An empty folder to write a checkpoint into, beside where it will lie."""
    partial = partial_path(final)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def partial_path(final: Path) -> Path:
    """Where a checkpoint lies until it is whole."""
    return final.parent / f".partial-{final.name}"


def publish(partial: Path, final: Path) -> None:
    """Rename, then point `latest` at it, each step durable before the next."""
    _sync_folder(partial)
    if final.exists():
        # Left by an attempt killed before it moved `latest`: nothing refers to it.
        shutil.rmtree(final)
    partial.rename(final)
    _sync_folder(final.parent)
    pointer = final.parent / f".partial-{_LATEST}"
    write_synced(pointer, (final.name + "\n").encode())
    pointer.replace(final.parent / _LATEST)
    _sync_folder(final.parent)


def prune(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep`, and what kills have left."""
    # By age, not by number: after a resume from an older checkpoint, the newest has a lower one.
    by_age = sorted(folder.glob("step-*"), key=lambda path: path.stat().st_mtime_ns)
    cut_short = folder.glob(".partial-step-*")  # another interval does not come by again
    for old in (*by_age[:-keep], *cut_short):
        shutil.rmtree(old, ignore_errors=True)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write and sync."""
    write_synced(path, (json.dumps(values, indent=2) + "\n").encode())


def write_synced(path: Path, data: bytes) -> None:
    """Write; on the disk when this returns."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def free_mib(folder: Path) -> int:
    """Space that is left where a folder is or will be."""
    return shutil.disk_usage(folder if folder.exists() else folder.parent).free >> 20


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

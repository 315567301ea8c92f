"""Writing checkpoints, beside the training or before it goes on."""

import json
import shutil
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import torch
import torch.distributed as dist
from safetensors.torch import save
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

from training.checkpoints.checksums import CHECKSUMS, file_checksums
from training.checkpoints.folder import (
    CHECKPOINT_VERSION,
    Progress,
    begin,
    checkpoint_path,
    free_mib,
    latest_checkpoint,
    partial_path,
    prune,
    publish,
    write_json,
    write_synced,
)
from training.checkpoints.state import staged, state_of
from training.distributed import Ranks
from training.errors import CheckpointError
from training.parallel import whole
from training.trained import Trained

_GIVE_UP_S: Final = 60.0


class CheckpointWriter:
    """Writes the checkpoints of a run, one at a time; every rank has one and calls the same.

    Asynchronous writing costs a copy of weights and moments in the host's memory, and the training
    goes on once it is made. What goes wrong meanwhile is raised by the next call. Leaving the
    `with` block waits for the last one; with an error on its way for a minute at most, after which
    the checkpoint before it stays the latest.

    Args:
        folder: that holds the run's checkpoints.
        ranks: of this process.
        keep: newest checkpoints that stay.
        asynchronous: write beside the training.
    """

    def __init__(self, folder: Path, ranks: Ranks, *, keep: int, asynchronous: bool) -> None:
        self._folder, self._ranks, self._keep = folder, ranks, keep
        self._asynchronous = asynchronous
        # Of its own, since its collectives run beside those of the training, and on the host.
        self._group = dist.new_group(backend="gloo") if ranks.world_size > 1 else None
        self._writing: threading.Thread | None = None
        self._failed: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.wait()
        elif self._writing is not None:
            self._writing.join(_GIVE_UP_S)

    def save(self, trained: Trained, progress: Progress) -> Path:
        """Write a checkpoint; the one before it is finished first.

        Returns:
            Where it lies, once it is whole.

        Raises:
            CheckpointError: this one or the one before could not be written (a full disk); the last
                good one is untouched.
        """
        self.wait()
        final = checkpoint_path(self._folder, progress.step)
        self._guarded(final, lambda: self._begin(final))
        state = state_of(trained, self._ranks)
        weights = trained.ema.weights if trained.ema is not None else trained.model.state_dict()
        policy = whole(weights, keep=self._ranks.is_first)
        about = {
            "model": asdict(trained.config),
            "spec": json.loads(trained.spec.to_json()),
        }
        if self._asynchronous:
            state = staged(state)
            policy = {name: tensor.clone() for name, tensor in policy.items()}

        def write() -> None:
            self._write(final, state, progress, about, policy)

        if not self._asynchronous:
            self._guarded(final, write)
            return final

        def in_thread() -> None:
            try:
                self._guarded(final, write)
            except BaseException as error:  # noqa: BLE001  # raised by the next call
                self._failed = error

        self._writing = threading.Thread(target=in_thread, name="headrace checkpoint", daemon=True)
        self._writing.start()
        return final

    def wait(self) -> None:
        """Wait for the checkpoint that is being written.

        Raises:
            CheckpointError: it could not be written.
        """
        if self._writing is not None:
            self._writing.join()
            self._writing = None
        if self._failed is not None:
            error, self._failed = self._failed, None
            raise error

    def _begin(self, final: Path) -> None:
        failed: OSError | None = None
        if self._ranks.is_first:
            try:
                begin(final)
            except OSError as error:
                failed = error
        self._agree(failed)

    def _write(
        self,
        final: Path,
        state: dict[str, Any],
        progress: Progress,
        about: Mapping[str, Any],
        policy: Mapping[str, Tensor],
    ) -> None:
        partial = partial_path(final)
        with warnings.catch_warnings():
            # One process alone is what we mean then.
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            save_distributed(state, checkpoint_id=partial, process_group=self._group)
        failed: OSError | None = None
        if self._ranks.is_first:
            try:
                _write_sidecars(partial, progress, about, policy)
                publish(partial, final)
                prune(self._folder, self._keep)
            except OSError as error:
                failed = error
        self._agree(failed)

    def _agree(self, failed: OSError | None) -> None:
        """What only the first rank does, all of them learn of."""
        if self._group is not None:
            said = torch.tensor([failed is not None], dtype=torch.int32)
            dist.broadcast(said, src=0, group=self._group)
            if said.item() and failed is None:
                raise OSError("the first rank could not write it (see its error)")
        if failed is not None:
            raise failed

    def _guarded(self, final: Path, write: Callable[[], None]) -> None:
        try:
            write()
        except (OSError, CheckpointException) as error:
            last = latest_checkpoint(self._folder)
            free = free_mib(self._folder)
            if self._ranks.is_first:
                # On a full disk it would fill the rest.
                shutil.rmtree(partial_path(final), ignore_errors=True)
            raise CheckpointError(
                f"cannot write the checkpoint {final} ({free} MiB were free):"
                f" {first_line(error)};"
                f" {f'the last good one is {last}' if last else 'there is none before it'}"
            ) from error


def _write_sidecars(
    folder: Path, progress: Progress, about: Mapping[str, Any], policy: Mapping[str, Tensor]
) -> None:
    write_json(folder / "trainer.json", {"version": CHECKPOINT_VERSION, **asdict(progress)})
    write_json(folder / "policy.json", {"version": CHECKPOINT_VERSION, **about})
    write_synced(folder / "policy.safetensors", save(dict(policy)))
    write_json(folder / CHECKSUMS, file_checksums(folder))


def first_line(error: BaseException) -> str:
    """What an error says, without its stack; of a rank's where several report."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return (str(error).splitlines() or [type(error).__name__])[0]

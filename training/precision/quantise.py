"""A trained policy with its matrices in FP8, a quarter of the bytes, from a checkpoint.

Weights alone, after training: float8_e4m3fn with a float32 scale for each 128 x 128 block, in a
folder that `Policy.load` and `headrace assess` take as they take a checkpoint:

    policy.json, trainer.json      those of the checkpoint
    policy-fp8.safetensors         matrices in FP8, `NAME.fp8_scale` with the scales of `NAME`, and
                                   all other weights as they were
    quantisation.json              format, block, and which checkpoint
    checksums.json                 of all of these

Products are computed in float32 on a CPU, so the numbers are put back when the file is read.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from training.checkpoints.checksums import CHECKSUMS, file_checksums, require_checksums
from training.checkpoints.folder import begin, partial_path, write_json, write_synced
from training.errors import CheckpointError
from training.precision.blocks import Block, dequantise, largest_of_blocks, quantise

PLAIN_WEIGHTS: Final = "policy.safetensors"
FP8_WEIGHTS: Final = "policy-fp8.safetensors"
_BLOCK: Final[Block] = (128, 128)
_SCALE: Final = ".fp8_scale"
_TINY: Final = 1e-30
_COPIED: Final = ("policy.json", "trainer.json")


@dataclass(frozen=True, kw_only=True)
class WeightError:
    """What FP8 changed of one matrix.

    Attributes:
        shape: of the weight.
        relative: norm of the difference over the norm of the matrix.
        largest: largest difference over the largest value of its block; 1/28 at most, half of
            FP8's last step.
    """

    shape: tuple[int, ...]
    relative: float
    largest: float


@dataclass(frozen=True, kw_only=True)
class Quantised:
    """What `quantise_checkpoint` wrote.

    Attributes:
        folder: where.
        errors: of each matrix in FP8.
        plain_bytes, fp8_bytes: sizes of the files of weights.
    """

    folder: Path
    errors: Mapping[str, WeightError]
    plain_bytes: int
    fp8_bytes: int


def quantise_checkpoint(checkpoint: Path, out: Path) -> Quantised:
    """Write a checkpoint's policy with its matrices in FP8; whole or not at all.

    Args:
        checkpoint: folder of a checkpoint.
        out: folder to make.

    Raises:
        CheckpointError: the checkpoint is damaged, in FP8 already, or has no matrix that is large
            enough; `out` is there already, or cannot be written.
    """
    if out.exists():
        raise CheckpointError(f"{out} is there already: give another folder, or remove it")
    if weights_file(checkpoint) != PLAIN_WEIGHTS:
        raise CheckpointError(f"{checkpoint} is in FP8 already")
    require_checksums(checkpoint, (*_COPIED, PLAIN_WEIGHTS))
    weights = load_file(checkpoint / PLAIN_WEIGHTS)
    rounded = in_fp8(weights)
    errors = _errors(weights, rounded)
    if not errors:
        raise CheckpointError(
            f"{checkpoint} has no matrix of {_BLOCK[0]} rows and columns or more: nothing to gain"
        )
    try:
        partial = begin(out)
        for name in _COPIED:
            write_synced(partial / name, (checkpoint / name).read_bytes())
        write_synced(partial / FP8_WEIGHTS, save(rounded))
        write_json(
            partial / "quantisation.json",
            {
                "format": "float8_e4m3fn",
                "block": list(_BLOCK),
                "checkpoint": checkpoint.name,
                "matrices": list(errors),
            },
        )
        write_json(partial / CHECKSUMS, file_checksums(partial))
        partial.rename(out)
    except OSError as error:
        shutil.rmtree(partial_path(out), ignore_errors=True)
        raise CheckpointError(f"cannot write {out}: {error}") from error
    return Quantised(
        folder=out,
        errors=errors,
        plain_bytes=(checkpoint / PLAIN_WEIGHTS).stat().st_size,
        fp8_bytes=(out / FP8_WEIGHTS).stat().st_size,
    )


def weights_file(folder: Path) -> str:
    """Name of the file of weights in a policy's folder."""
    return FP8_WEIGHTS if (folder / FP8_WEIGHTS).exists() else PLAIN_WEIGHTS


def read_weights(path: Path) -> dict[str, Tensor]:
    """Weights by name, those in FP8 put back to float32.

    Raises:
        SafetensorError, OSError: it cannot be read.
        CheckpointError: scales and matrices do not go together.
    """
    tensors = load_file(path)
    try:
        return out_of_fp8(tensors)
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path}: scales and matrices do not fit: {error}") from error


def in_fp8(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices with the rows and columns of a block or more in FP8, with scales; the rest as it is.

    Smaller ones are little to save, and among them are those that touch states and actions.
    """
    tensors: dict[str, Tensor] = {}
    for name, weight in weights.items():
        matrix = _matrix(weight)
        if matrix is None:
            tensors[name] = weight
            continue
        rounded, scale = quantise(matrix, torch.float8_e4m3fn, _BLOCK)
        tensors[name] = rounded.reshape(weight.shape)
        tensors[name + _SCALE] = scale
    return tensors


def out_of_fp8(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Inverse of `in_fp8`, but for the rounding."""
    weights = {}
    for name, tensor in tensors.items():
        if tensor.dtype == torch.float8_e4m3fn:
            # Reshaping does not know FP8 everywhere: its bytes do.
            matrix = tensor.view(torch.uint8).flatten(1).view(tensor.dtype)
            weights[name] = dequantise(matrix, tensors[name + _SCALE], _BLOCK).reshape(tensor.shape)
        elif not name.endswith(_SCALE):
            weights[name] = tensor
    return weights


def _matrix(weight: Tensor) -> Tensor | None:
    """[out, all else] of a weight that goes into FP8, None of one that does not."""
    if weight.ndim < 2 or not weight.is_floating_point():
        return None
    matrix = weight.flatten(1)
    large = matrix.shape[0] >= _BLOCK[0] and matrix.shape[1] >= _BLOCK[1]
    return matrix if large else None


def _errors(weights: Mapping[str, Tensor], rounded: Mapping[str, Tensor]) -> dict[str, WeightError]:
    errors = {}
    for name, kept in out_of_fp8(rounded).items():
        if name + _SCALE not in rounded:
            continue
        before = weights[name].flatten(1)
        difference = kept.flatten(1) - before
        largest = largest_of_blocks(before, _BLOCK).clamp(min=_TINY)
        errors[name] = WeightError(
            shape=tuple(kept.shape),
            relative=float(difference.norm() / before.norm().clamp(min=_TINY)),
            largest=float((largest_of_blocks(difference, _BLOCK) / largest).max()),
        )
    return errors

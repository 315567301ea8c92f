"""Numbers in FP8 with a scale for each block of a matrix."""

import math

import torch
from torch import Tensor

Block = tuple[int, int]
"""Rows and columns that share a scale."""


def quantise(
    matrix: Tensor, dtype: torch.dtype, block: Block, *, power_of_two: bool = False
) -> tuple[Tensor, Tensor]:
    """Round a matrix to FP8, each block scaled so that its largest value is the largest of FP8.

    Args:
        matrix: [R, C].
        dtype: `torch.float8_e4m3fn` or `torch.float8_e5m2`.
        block: rows and columns of a block; those at the edges are smaller.
        power_of_two: round scales up to powers of two.

    Returns:
        [R, C] in `dtype`, and float32 [ceil(R / block rows), ceil(C / block columns)] to multiply
        by. Where a block holds a NaN or an infinity, its scale is NaN.
    """
    most = torch.finfo(dtype).max
    blocks = _as_blocks(matrix.float(), block)
    largest = blocks.abs().amax(dim=(1, 3))
    scale = largest / most
    if power_of_two:
        scale = _up_to_power_of_two(scale)
    scale = scale.where(scale > 0, 1.0).where(largest.isfinite(), math.nan)
    # Clamped: the cast does not saturate, and rounding the scale may take a value past the end.
    rounded = (blocks / scale[:, None, :, None]).clamp(-most, most).to(dtype)
    # Not all operations know FP8: its bytes are moved instead.
    return _as_matrix(rounded.view(torch.uint8), matrix.shape).view(dtype), scale


def largest_of_blocks(matrix: Tensor, block: Block) -> Tensor:
    """[R, C] -> largest magnitude in each block, [ceil(R / rows), ceil(C / columns)]."""
    return _as_blocks(matrix, block).abs().amax(dim=(1, 3))


def dequantise(rounded: Tensor, scale: Tensor, block: Block) -> Tensor:
    """The numbers that `quantise` kept, float32 [R, C].

    Raises:
        ValueError: not one scale for each block.
    """
    blocks = _as_blocks(rounded.float(), block)
    if scale.shape != (blocks.shape[0], blocks.shape[2]):
        raise ValueError(
            f"scales {list(scale.shape)} for {blocks.shape[0]} x {blocks.shape[2]} blocks"
        )
    return _as_matrix(blocks * scale[:, None, :, None], rounded.shape)


def rounded_to_fp8(
    matrix: Tensor, dtype: torch.dtype, block: Block, *, power_of_two: bool
) -> Tensor:
    """What is left of a matrix after FP8, float32 [R, C]."""
    return dequantise(*quantise(matrix, dtype, block, power_of_two=power_of_two), block)


def _as_blocks(matrix: Tensor, block: Block) -> Tensor:
    """[R, C] -> [blocks down, block rows, blocks across, block columns], edges filled with 0."""
    (rows, columns), (high, wide) = matrix.shape, block
    down, across = -(-rows // high), -(-columns // wide)
    if (more := (down * high - rows, across * wide - columns)) != (0, 0):
        matrix = torch.nn.functional.pad(matrix, (0, more[1], 0, more[0]))
    return matrix.reshape(down, high, across, wide)


def _as_matrix(blocks: Tensor, shape: torch.Size) -> Tensor:
    down, high, across, wide = blocks.shape
    return blocks.reshape(down * high, across * wide)[: shape[0], : shape[1]].contiguous()


def _up_to_power_of_two(scale: Tensor) -> Tensor:
    mantissa, exponent = torch.frexp(scale)  # the mantissa lies in [0.5, 1)
    return torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 0.5).int())

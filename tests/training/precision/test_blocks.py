import math

import pytest
import torch
from torch import Tensor

from training.precision.blocks import Block, dequantise, quantise, rounded_to_fp8

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def matrix(rows: int, columns: int, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator) * 0.02


@pytest.mark.parametrize("block", [(128, 128), (1, 128), (300, 200), (7, 9)])
@pytest.mark.parametrize("power_of_two", [False, True])
@pytest.mark.parametrize(("dtype", "bits"), [(E4M3, 3), (E5M2, 2)])
def test_rounding_errs_by_half_a_step_of_the_format_at_most(
    block: Block, dtype: torch.dtype, bits: int, *, power_of_two: bool
) -> None:
    values = matrix(300, 200)
    rounded, scale = quantise(values, dtype, block, power_of_two=power_of_two)
    assert rounded.dtype == dtype
    assert rounded.shape == (300, 200)
    assert scale.shape == (math.ceil(300 / block[0]), math.ceil(200 / block[1]))
    error = (dequantise(rounded, scale, block) - values).abs()
    steps = scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:300, :200]
    # Half a step of a normal number, or half of the smallest step there is.
    half_step = (values.abs() * 2.0 ** -(bits + 1)).maximum(
        steps * torch.finfo(dtype).smallest_normal * 2.0 ** -(bits + 1)
    )
    assert bool((error <= half_step * (1 + 1e-5)).all())
    largest = values.abs().max()
    if not power_of_two:
        assert float(error.max()) <= float(largest) * 2.0 ** -(bits + 1)


def test_every_block_uses_the_whole_range_of_the_format() -> None:
    values = matrix(256, 256)
    values[:128] *= 1000
    rounded, scale = quantise(values, E4M3, (128, 128))
    for down in (0, 1):
        for across in (0, 1):
            block = rounded[down * 128 :, across * 128 :][:128, :128]
            assert float(block.float().abs().max()) == 448.0
    assert float(scale[0].min() / scale[1].max()) > 500


def test_scales_that_are_powers_of_two_are_rounded_up() -> None:
    values = torch.tensor([[448.0, 3.0], [449.0, 3.0], [224.0, 0.0]])
    _, scale = quantise(values, E4M3, (1, 2), power_of_two=True)
    assert scale[:, 0].tolist() == [1.0, 2.0, 0.5]


def test_values_that_fp8_has_are_kept_exactly() -> None:
    values = torch.arange(256, dtype=torch.uint8).view(E4M3).float()
    values = values[values.isfinite()].reshape(2, -1)
    assert torch.equal(rounded_to_fp8(values, E4M3, (2, 512), power_of_two=False), values)


def test_a_block_of_zeros_and_a_matrix_without_rows_stay_so() -> None:
    assert not rounded_to_fp8(torch.zeros(3, 5), E4M3, (2, 2), power_of_two=True).any()
    rounded, scale = quantise(torch.zeros(0, 5), E4M3, (1, 4))
    assert rounded.shape == (0, 5)
    assert scale.shape == (0, 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("power_of_two", [False, True])
def test_what_is_not_finite_does_not_become_a_number(bad: float, *, power_of_two: bool) -> None:
    values = matrix(4, 8)
    values[1, 2] = bad
    kept = rounded_to_fp8(values, E4M3, (2, 4), power_of_two=power_of_two)
    assert not bool(kept[1, 2].isfinite())
    assert bool(kept[2:].isfinite().all())

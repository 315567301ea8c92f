"""Scaling pictures on any device as FFmpeg's area scaler does on the CPU.

A smaller picture's pixel is the mean of the area it covers; a larger one's is interpolated between
the two nearest. Both are separable, so a picture is multiplied by a matrix from each side. Source:
libswscale, `initFilter`, for SWS_AREA.
"""

import functools

import torch


def scaled(pictures: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Scale pictures.

    Args:
        pictures: uint8 [n, 3, h, w].
        size: (height, width).

    Returns:
        uint8 [n, 3, height, width] on the same device.
    """
    before, device = (pictures.shape[-2], pictures.shape[-1]), str(pictures.device)
    if before == size:
        return pictures
    down = _weights(before[0], size[0], device)
    across = _weights(before[1], size[1], device)
    return (down @ pictures.float() @ across.T).round_().clamp_(0, 255).to(torch.uint8)


@functools.lru_cache(maxsize=64)
def _weights(before: int, after: int, device: str) -> torch.Tensor:
    """float32 [after, before]: what each pixel takes of those before; every row sums to 1."""
    target = torch.arange(after, dtype=torch.float64)[:, None]
    source = torch.arange(before, dtype=torch.float64)[None]
    step = before / after
    if step > 1:
        stop = torch.minimum((target + 1) * step, source + 1)
        weights = (stop - torch.maximum(target * step, source)).clamp(min=0) / step
    else:
        middle = ((target + 0.5) * step - 0.5).clamp(0, before - 1)
        weights = (1 - (middle - source).abs()).clamp(min=0)
    return weights.float().to(device)

"""What `headrace bench cost` times: packs of given span lengths through a stack of layers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from tools.bench.cost_fit import CostSample
from training.attention.segments import Segments
from training.models.film.config import FilmConfig
from training.models.film.layers import TrunkLayer
from training.models.film.vision import ImageEncoder
from training.models.parts.rotary import Rotary

SHORTEST: Final = 16
_IMAGE_TOKENS: Final = 16


@dataclass(frozen=True, kw_only=True)
class TimedPack:
    """A pack by the lengths of its spans and the number of its images."""

    lengths: tuple[int, ...]
    images: int = 0

    def sample(self, seconds: float) -> CostSample:
        """With the time it took."""
        return CostSample(
            tokens=sum(self.lengths),
            sum_sq=sum(length**2 for length in self.lengths),
            images=self.images,
            spans=len(self.lengths),
            seconds=seconds,
        )


def even_packs(most: int) -> dict[str, TimedPack]:
    """Packs of a quarter, a half and all of the tokens, in spans of about one length each.

    The lengths differ a little, as those of trajectories do: a backend may take spans of equal
    length together.
    """
    means = sorted({max(most // part, SHORTEST) for part in (32, 16, 4, 1)})
    return {
        f"{tokens} tokens, {tokens // mean} x {mean}": TimedPack(lengths=_about(mean, tokens))
        for tokens in (most // 4, most // 2, most)
        for mean in means
        if mean <= tokens
    }


def image_packs(most: int) -> dict[str, TimedPack]:
    """Packs that are alike but for their images."""
    tokens, mean = most // 4, max(most // 16, SHORTEST)
    return {
        f"{tokens} tokens, {tokens // mean} x {mean}, {images} images": TimedPack(
            lengths=_about(mean, tokens), images=images
        )
        for images in (4, 16)
    }


def mixed_packs(most: int) -> dict[str, TimedPack]:
    """Packs of lognormal lengths, as trajectories have."""
    packs = {}
    for seed, (tokens, mean) in enumerate(
        ((most, most // 8), (most, most // 24), (most // 2, most // 16))
    ):
        rng = np.random.default_rng(seed)
        lengths: list[int] = []
        while sum(lengths) < tokens:
            drawn = int(rng.lognormal(np.log(mean), 0.8))
            lengths.append(min(max(drawn, SHORTEST), tokens - sum(lengths)))
        packs[f"{tokens} tokens, {len(lengths)} mixed spans"] = TimedPack(lengths=tuple(lengths))
    return packs


def _about(mean: int, tokens: int) -> tuple[int, ...]:
    """Spans of half to one and a half of the mean, in any order, `tokens` in all."""
    drawn = np.random.default_rng(mean).uniform(0.5, 1.5, tokens // mean)
    ends = np.rint(np.cumsum(drawn) / drawn.sum() * tokens).astype(int)
    return tuple(np.diff(ends, prepend=0).tolist())


class TimedStack:
    """Transformer layers as training has them and, where images are timed, its vision encoder."""

    def __init__(self, config: FilmConfig, device: torch.device, *, image_size: int) -> None:
        self._config, self._device, self._image_size = config, device, image_size
        self._half = device.type == "cuda"
        torch.manual_seed(0)
        self._layers = nn.ModuleList(TrunkLayer(config) for _ in range(config.layers))
        self._vision = ImageEncoder(config, image_tokens=_IMAGE_TOKENS, cameras=1)
        self._layers.to(device)
        self._vision.to(device)

    @property
    def dtype(self) -> torch.dtype:
        """In which linear layers and attention run: bfloat16 on a GPU, by autocast."""
        return torch.bfloat16 if self._half else torch.float32

    def step(self, pack: TimedPack) -> Callable[[], None]:
        """A call that runs forward and backward of a pack and waits for the device."""
        tokens = sum(pack.lengths)
        cu_seqlens = torch.tensor([0, *np.cumsum(pack.lengths).tolist()], dtype=torch.int32)
        positions = torch.cat([torch.arange(length) for length in pack.lengths])
        size = self._image_size
        images = torch.randint(0, 256, (pack.images, 3, size, size), dtype=torch.uint8)
        return partial(
            self._run,
            x=torch.randn(tokens, self._config.width, device=self._device, requires_grad=True),
            rotary=Rotary.of(positions.to(self._device), self._config.head_dim),
            cu_seqlens=cu_seqlens.to(self._device),
            longest=max(pack.lengths),
            images=images.to(self._device),
        )

    def _run(
        self, *, x: Tensor, rotary: Rotary, cu_seqlens: Tensor, longest: int, images: Tensor
    ) -> None:
        # Made anew in each step, as in training: grouping the spans is part of the cost.
        segments = Segments(
            cu_seqlens_q=cu_seqlens,
            cu_seqlens_k=cu_seqlens,
            max_seqlen_q=longest,
            max_seqlen_k=longest,
        )
        x.grad = None
        self._layers.zero_grad()
        self._vision.zero_grad()
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._half):
            hidden = x
            for layer in self._layers:
                hidden, _, _ = layer(hidden, rotary, segments)
            total = hidden.float().square().mean()
            if len(images):
                text = x.new_zeros(len(images), self._config.width)
                cameras = torch.zeros(len(images), dtype=torch.int64, device=self._device)
                total = total + self._vision(images, text, cameras).float().square().mean()
        torch.autograd.backward(total)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

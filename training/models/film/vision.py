"""Image encoder: a picture to a fixed number of tokens, modulated by the instruction."""

import math

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor, nn

from training.errors import ConfigError
from training.models.film.config import FilmConfig


def token_grid(tokens: int, height: int, width: int) -> tuple[int, int]:
    """Rows and columns with rows * columns = tokens, of a shape closest to the picture's."""
    want = math.log(height / width)
    rows = min(
        (r for r in range(1, tokens + 1) if tokens % r == 0),
        key=lambda r: abs(math.log(r * r / tokens) - want),
    )
    return rows, tokens // rows


class FilmStage(nn.Module):
    """Convolution, then scale and shift per channel from the text."""

    def __init__(
        self, channels_in: int, channels_out: int, text_width: int, *, kernel: int, stride: int
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2)
        self.film = nn.Linear(text_width, 2 * channels_out) if text_width else None

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """[I, C, h, w] and [I, W] -> [I, C', h / stride, w / stride]."""
        # No normalisation: the absolute level of a channel is what tells colours apart.
        x = self.conv(x)
        if self.film is not None:
            scale, shift = self.film(text)[:, :, None, None].chunk(2, dim=1)
            x = x * (1.0 + scale) + shift
        seen: Tensor = F.gelu(x)
        return seen


class ImageEncoder(nn.Module):
    """Convolutions to a map, and from the map to points: where each channel's feature lies.

    The map is cut into a grid of `image_tokens` cells. In each cell every channel gives the
    expected position under a softmax over its pixels (a spatial softmax: Finn et al.,
    arXiv:1509.06113), so a token speaks of places, to a fraction of a pixel. On a hundred
    demonstrations that learns where a grid of averaged features does not.
    """

    def __init__(self, config: FilmConfig, *, image_tokens: int, cameras: int) -> None:
        super().__init__()
        self.image_tokens = image_tokens
        channels = (3, *config.conv_channels)
        text_width = config.width if config.film else 0
        self.stages = nn.ModuleList(
            FilmStage(channels[i], channels[i + 1], text_width, kernel=5 if i == 0 else 3, stride=2)
            for i in range(len(config.conv_channels))
        )
        # One more at full map size, linear, so that the softmax sees the sign of its features.
        self.to_points = nn.Conv2d(channels[-1], channels[-1], 3, padding=1)
        self.sharpness = nn.Parameter(torch.ones(1))
        self.project = nn.Linear(2 * channels[-1], config.width)
        self.position = nn.Parameter(0.02 * torch.randn(image_tokens, config.width))
        self.camera = nn.Embedding(max(cameras, 1), config.width)
        nn.init.normal_(self.camera.weight, std=0.02)

    def convolutions(self) -> list[nn.Conv2d]:
        """The convolutions, first to last."""
        return [*(s.conv for s in self.stages if isinstance(s, FilmStage)), self.to_points]

    @property
    def enough_pixels(self) -> int:
        """Height and width of a picture that no number of stages and tokens finds too small."""
        return (2 << len(self.stages)) * self.image_tokens

    def forward(self, images: Tensor, text: Tensor, camera_ids: Tensor) -> Tensor:
        """Encode pictures of one size.

        Args:
            images: [I, 3, h, w] uint8 RGB.
            text: [I, W] pooled instruction of each picture's span.
            camera_ids: [I] int64.

        Returns:
            [I, image_tokens, W].

        Raises:
            ConfigError: the pictures are too small for the stages and the number of tokens.
        """
        height, width = images.shape[2:]
        rows, columns = token_grid(self.image_tokens, height, width)
        scale = 2 ** len(self.stages)
        if height < 2 * scale * rows or width < 2 * scale * columns:
            raise ConfigError(
                f"a picture of {width}x{height} pixels is too small for {len(self.stages)} image"
                f" stages and {rows} x {columns} tokens: use fewer model.conv_channels, fewer"
                " image tokens in the plan's layout, or larger pictures"
            )
        x = images.to(self.project.weight.dtype) / 127.5 - 1.0
        for stage in self.stages:
            x = stage(x, text)
        points = _points(self.to_points(x), rows, columns, self.sharpness.exp())
        tokens: Tensor = self.project(points) + self.position
        where: Tensor = self.camera(camera_ids)
        return tokens + where[:, None]


def _points(x: Tensor, rows: int, columns: int, sharpness: Tensor) -> Tensor:
    """[I, C, h, w] -> [I, rows * columns, 2 C]: x and y, from -1 to 1, in each cell."""
    count, channels, height, width = x.shape
    high, wide = height // rows, width // columns
    x = F.adaptive_avg_pool2d(x, (rows * high, columns * wide))  # nothing to do where it divides
    cells = x.reshape(count, channels, rows, high, columns, wide).permute(0, 2, 4, 1, 3, 5)
    flat = cells.reshape(count, rows * columns, channels, high * wide)
    down = torch.linspace(-1.0, 1.0, high, device=x.device, dtype=x.dtype)
    across = torch.linspace(-1.0, 1.0, wide, device=x.device, dtype=x.dtype)
    grid = torch.stack((across.repeat(high), down.repeat_interleave(wide)), dim=1)
    expected = torch.softmax(flat * sharpness, dim=-1) @ grid
    return expected.reshape(count, rows * columns, 2 * channels)

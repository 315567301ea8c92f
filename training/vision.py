"""Image encoder: a picture to a fixed number of tokens, modulated by the instruction."""

import math

import torch
import torch.nn.functional as F  # noqa: N812  (the name the whole field uses)
from torch import Tensor, nn

from training.config import ModelConfig
from training.errors import ConfigError


def token_grid(tokens: int, height: int, width: int) -> tuple[int, int]:
    """Rows and columns with rows * columns = tokens, of a shape closest to the picture's."""
    want = math.log(height / width)
    rows = min(
        (r for r in range(1, tokens + 1) if tokens % r == 0),
        key=lambda r: abs(math.log(r * r / tokens) - want),
    )
    return rows, tokens // rows


class FilmStage(nn.Module):
    """Convolution that halves the picture, then scale and shift per channel from the text."""

    def __init__(self, channels_in: int, channels_out: int, text_width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(8, channels_out)
        self.film = nn.Linear(text_width, 2 * channels_out) if text_width else None

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """[I, C, h, w] and [I, W] -> [I, C', h/2, w/2]."""
        x = self.norm(self.conv(x))
        if self.film is not None:
            scale, shift = self.film(text)[:, :, None, None].chunk(2, dim=1)
            x = x * (1.0 + scale) + shift
        halved: Tensor = F.silu(x)
        return halved


class ImageEncoder(nn.Module):
    """Strided convolutions to a grid of tokens.

    Two coordinate channels join the picture (CoordConv, arXiv:1807.03247), so that a token can
    say where it saw something. Each grid cell keeps 2 x 2 features of the last stage apart.
    """

    def __init__(self, config: ModelConfig, *, image_tokens: int, cameras: int) -> None:
        super().__init__()
        self.image_tokens = image_tokens
        channels = (5, *config.conv_channels)
        text_width = config.width if config.film else 0
        self.stages = nn.ModuleList(
            FilmStage(channels[i], channels[i + 1], text_width)
            for i in range(len(config.conv_channels))
        )
        self.project = nn.Linear(4 * channels[-1], config.width)
        self.position = nn.Parameter(0.02 * torch.randn(image_tokens, config.width))
        self.camera = nn.Embedding(max(cameras, 1), config.width)
        nn.init.normal_(self.camera.weight, std=0.02)

    def convolutions(self) -> list[nn.Conv2d]:
        """The convolutions, first to last."""
        return [stage.conv for stage in self.stages if isinstance(stage, FilmStage)]

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
        count, _, height, width = images.shape
        rows, columns = token_grid(self.image_tokens, height, width)
        scale = 2 ** len(self.stages)
        if height < scale * rows or width < scale * columns:
            raise ConfigError(
                f"a picture of {width}x{height} pixels is too small for {len(self.stages)} image"
                f" stages and {rows} x {columns} tokens: use fewer model.conv_channels, fewer"
                " image tokens in the plan's layout, or larger pictures"
            )
        x = images.to(self.project.weight.dtype) / 127.5 - 1.0
        x = torch.cat((x, _coordinates(x).expand(count, -1, -1, -1)), dim=1)
        for stage in self.stages:
            x = stage(x, text)
        x = F.adaptive_avg_pool2d(x, (2 * rows, 2 * columns))
        # [I, C, 2 rows, 2 columns] -> [I, rows * columns, 4 C]; every size is named, since a batch
        # without pictures leaves nothing to infer.
        cells = x.reshape(count, x.shape[1], rows, 2, columns, 2).permute(0, 2, 4, 1, 3, 5)
        flat = cells.reshape(count, rows * columns, 4 * x.shape[1])
        tokens: Tensor = self.project(flat) + self.position
        where: Tensor = self.camera(camera_ids)
        return tokens + where[:, None]


def _coordinates(x: Tensor) -> Tensor:
    """[1, 2, h, w]: row and column from -1 to 1."""
    rows = torch.linspace(-1.0, 1.0, x.shape[2], device=x.device, dtype=x.dtype)
    columns = torch.linspace(-1.0, 1.0, x.shape[3], device=x.device, dtype=x.dtype)
    return torch.stack(
        (rows[:, None].expand(x.shape[2:]), columns[None].expand(x.shape[2:]))
    ).unsqueeze(0)

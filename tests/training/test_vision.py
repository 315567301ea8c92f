import pytest
import torch

from tests.training.batches import TINY
from training.errors import ConfigError
from training.models.film.config import FilmConfig
from training.models.film.vision import ImageEncoder, token_grid


@pytest.mark.parametrize(
    ("tokens", "height", "width", "grid"),
    [
        (16, 64, 64, (4, 4)),
        (1, 48, 64, (1, 1)),
        (12, 48, 64, (3, 4)),
        (12, 64, 48, (4, 3)),
        (8, 64, 64, (2, 4)),
        (7, 64, 64, (1, 7)),
    ],
)
def test_the_grid_has_the_pictures_shape(
    tokens: int, height: int, width: int, grid: tuple[int, int]
) -> None:
    rows, columns = token_grid(tokens, height, width)
    assert rows * columns == tokens
    assert sorted((rows, columns)) == sorted(grid)
    if height != width:
        assert (rows, columns) == grid


def encoder(config: FilmConfig = TINY, tokens: int = 4) -> ImageEncoder:
    torch.manual_seed(0)
    return ImageEncoder(config, image_tokens=tokens, cameras=2)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (32, 48), (50, 34)])
def test_pictures_of_any_size_give_the_same_tokens(height: int, width: int) -> None:
    images = torch.randint(0, 256, (3, 3, height, width), dtype=torch.uint8)
    text = torch.randn(3, TINY.width)
    assert encoder()(images, text, torch.tensor([0, 1, 0])).shape == (3, 4, TINY.width)


@pytest.mark.parametrize("count", [1, 4, 300])
def test_no_picture_gives_no_token_and_zero_gradients(count: int) -> None:
    model = encoder(tokens=count)
    tokens = model(
        torch.empty(0, 3, model.enough_pixels, model.enough_pixels, dtype=torch.uint8),
        torch.empty(0, TINY.width),
        torch.empty(0).long(),
    )
    assert tokens.shape == (0, count, TINY.width)
    torch.autograd.backward(tokens.sum())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().sum()) == 0.0, name


def test_the_instruction_and_the_camera_change_what_is_seen() -> None:
    model = encoder()
    image = torch.randint(0, 256, (1, 3, 16, 16), dtype=torch.uint8)
    text, camera = torch.randn(1, TINY.width), torch.tensor([0])
    seen = model(image, text, camera)
    assert not torch.equal(seen, model(image, -text, camera))
    assert not torch.equal(seen, model(image, text, torch.tensor([1])))


def test_a_picture_too_small_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"8x8 pixels is too small .*fewer model\.conv"):
        encoder(tokens=16)(
            torch.zeros(1, 3, 8, 8, dtype=torch.uint8),
            torch.zeros(1, TINY.width),
            torch.zeros(1).long(),
        )

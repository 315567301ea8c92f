"""Positions of the multimodal rotary embedding (M-RoPE), as Qwen-VL models count them."""

from typing import Any

from loader.batch import A, PackedBatch
from loader.errors import BatchError
from loader.padded import zeros


def mrope_position_ids(batch: PackedBatch[A], grid: tuple[int, int]) -> A:
    """Position of each prefix token in time, height and width.

    A text token has the same position in all three. The tokens of an image of `grid` rows and
    columns share the time at which it begins, and count rows and columns on from there; what
    follows goes on one past the largest position of the image. Positions begin at 0 in each span.

    From `get_rope_index` of `Qwen3VLModel` in Hugging Face transformers (GR00T N1.7's backbone).

    Args:
        batch: of numpy or torch arrays, on any device.
        grid: rows and columns of the tokens of every image, 8 x 8 for GR00T N1.7.

    Returns:
        int64 [3, T].

    Raises:
        BatchError: the images have another number of tokens.
    """
    this: Any = batch
    rows, columns = grid
    per_image = rows * columns
    if this.image_token_index.shape[0] != per_image * this.image_span_ids.shape[0]:
        raise BatchError(
            f"{this.image_token_index.shape[0]} tokens of {this.image_span_ids.shape[0]} images are"
            f" no grids of {rows} x {columns}: give the grid of the layout's image_tokens"
        )
    tokens = this.position_ids.shape[0]
    index = this.image_token_index.reshape(-1, per_image)
    # An image takes max(rows, columns) positions; its tokens beyond that do not count behind it.
    skipped = zeros(this.position_ids, (tokens + 1,))
    skipped[index[:, -1] + 1] = per_image - max(rows, columns)
    skipped = skipped.cumsum(0)[:tokens]
    place = (zeros(this.position_ids, (tokens,)) + 1).cumsum(0) - 1
    position = this.position_ids - skipped + skipped[place - this.position_ids]
    nth = zeros(position, (tokens,))  # of an image token inside its image
    nth[index.reshape(-1)] = (index - index[:, :1]).reshape(-1)
    out = zeros(position, (3, tokens))
    out[:] = position - nth
    out[1] += nth // columns
    out[2] += nth % columns
    result: A = out
    return result

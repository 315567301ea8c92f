"""What a model computes that pads every sample: the row to measure packing against."""

import numpy as np

from packing.layout import TokenLayout
from packing.spans import Int32s, Spans


def padded_row(spans: Spans, layout: TokenLayout, num_cameras: int) -> tuple[int, int]:
    """Tokens and images of the row into which any span fits.

    It has the layout's camera slots, text length and horizon (`PaddedRow`), or, where the layout
    says none or a span needs more, what the spans need: nothing is cut to look better.

    Args:
        spans: of the plan.
        layout: of the plan.
        num_cameras: cameras that the plan uses.
    """
    padded = layout.padded
    observed = int(spans.observed.max())
    images = observed * max(num_cameras, padded.cameras or 0) if layout.image_tokens else 0
    longest = max(int(text_tokens(spans, layout).max()), padded.text_tokens or 0)
    row = [np.array([value], np.int32) for value in (longest, images, observed)]
    queries = layout.action_tokens * (padded.horizon or 0)
    suffix = max(int(spans.action_tokens.max()), queries)
    return int(layout.prefix_tokens(*row)[0]) + suffix, images


def text_tokens(spans: Spans, layout: TokenLayout) -> Int32s:
    """int32 [n]: tokens planned for the text of each span, a state as text at its longest."""
    return (
        spans.prefix_tokens
        - layout.extra_tokens
        - layout.tokens_per_image * spans.images
        - layout.state_tokens * spans.observed
    )

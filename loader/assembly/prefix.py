"""The prefix stream of a pack: which token stands where, with which id and kind."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loader.assembly.segments import ranges, starts_of
from loader.assembly.span_texts import SpanTexts
from loader.batch import Modality
from packing.layout import TokenLayout
from packing.prompt_ids import PromptIds


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """The prefix tokens of n spans, end to end, without padding.

    Attributes:
        lengths: int32 [n], tokens of each span.
        input_ids, modality: int64 and uint8 [sum of lengths]; see `PackedBatch`.
        image_first: int64 [I], position of the first token of each image.
        state_tokens: int64 [M], positions of the state tokens.
    """

    lengths: NDArray[np.int32]
    input_ids: NDArray[np.int64]
    modality: NDArray[np.uint8]
    image_first: NDArray[np.int64]
    state_tokens: NDArray[np.int64]


def lay_out_prefix(
    texts: SpanTexts,
    *,
    image_span: NDArray[np.int32],
    image_nth: NDArray[np.int32],
    observed: NDArray[np.int32],
    layout: TokenLayout,
    ids: PromptIds,
) -> Prefix:
    """Lay out the prefixes of n spans (order: see `PackedBatch`).

    Args:
        texts: of the spans.
        image_span: int32 [I], span of each image.
        image_nth: int32 [I], its number inside the span.
        observed: int32 [n], observed steps of each span.
        layout: of the plan.
        ids: of the plan.
    """
    spans = np.arange(len(observed))
    image_block = np.bincount(image_span, minlength=len(spans)) * layout.tokens_per_image
    state_count = observed.astype(np.int64) * layout.state_tokens
    lengths = texts.lengths + image_block + state_count + layout.extra_tokens
    starts = starts_of(lengths)
    text_span = np.repeat(spans, texts.lengths)
    nth = np.arange(len(text_span)) - starts_of(texts.lengths)[text_span]
    behind = (nth >= texts.images_at[text_span]) * image_block[text_span]
    first = starts[image_span] + texts.images_at[image_span] + image_nth * layout.tokens_per_image
    before = len(ids.frames[0].before)
    image_first = first + before
    state_span = np.repeat(spans, state_count)
    state_nth = np.arange(len(state_span)) - starts_of(state_count)[state_span]
    state_tokens = (starts + texts.lengths + image_block)[state_span] + state_nth

    input_ids = np.full(int(lengths.sum()), ids.pad, np.int64)
    modality = np.full(len(input_ids), Modality.EXTRA, np.uint8)
    slots = ranges(image_first, layout.image_tokens)
    for index, values, kind in (
        (starts[text_span] + nth + behind, texts.ids, Modality.TEXT),
        (slots, ids.image, Modality.IMAGE),
        (state_tokens, ids.state, Modality.STATE),
    ):
        input_ids[index] = values
        modality[index] = kind
    if layout.frame_tokens:
        number = image_nth if len(ids.frames) > 1 else np.zeros_like(image_nth)
        for at, part in (
            (first, np.array([frame.before for frame in ids.frames], np.int64)),
            (image_first + layout.image_tokens, np.array([f.after for f in ids.frames], np.int64)),
        ):
            index = ranges(at, part.shape[1])
            input_ids[index] = part[number].reshape(-1)
            modality[index] = Modality.TEXT
    return Prefix(
        lengths=lengths.astype(np.int32),
        input_ids=input_ids,
        modality=modality,
        image_first=image_first,
        state_tokens=state_tokens,
    )

"""The token layout of `headrace pack`, and what it says of the texts."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packing.layout import TokenLayout
    from packing.plan import Plan


def chosen_layout(name: str, tokens: Mapping[str, int | None]) -> "TokenLayout":
    """The layout of this name or file, with the numbers that were given in place of its own."""
    from dataclasses import replace

    from packing.known_layouts import find_layout

    given = {field: value for field, value in tokens.items() if value is not None}
    layout = find_layout(name)
    return replace(
        layout,
        image_tokens=given.get("image_tokens", layout.image_tokens),
        state_tokens=given.get("state_tokens", layout.state_tokens),
        action_tokens=given.get("action_tokens", layout.action_tokens),
        extra_tokens=given.get("extra_tokens", layout.extra_tokens),
    )


def untold_note(plan: "Plan") -> str | None:
    """What to know where a prompt is written around no instruction."""
    import numpy as np

    from packing.planned_spans import source_spans

    layout = plan.header.layout
    untold = [not layout.prompt.clean(text) for text in plan.texts["text"].to_pylist()]
    if layout.prompt.is_empty("") or not any(untold):
        return None
    texts = source_spans(plan).text
    return (
        f"{np.isin(texts, np.flatnonzero(untold)).sum()} of {len(texts)} spans have no instruction:"
        f" {layout.name} writes its prompt around an empty one; label them with `headrace label`,"
        " or leave them out: \"trim(coalesce(instruction, task)) <> ''\""
    )


def long_texts_note(plan: "Plan") -> str | None:
    """What to know where texts are longer than the model's own padding has room for."""
    from packing.padded_rows import text_tokens
    from packing.planned_spans import source_spans
    from packing.tokenizer import UTF8_BYTES

    layout = plan.header.layout
    room = layout.padded.text_tokens
    if room is None:
        return None
    lengths = text_tokens(source_spans(plan), layout)
    over = int((lengths > room).sum())
    if not over:
        return None
    return (
        f"{over} of {len(lengths)} spans can have up to {int(lengths.max())} text tokens:"
        f" {layout.name} by itself pads to {room} and cuts what is longer; this plan cuts nothing"
        + (" (bytes: the model's own tokenizer makes fewer)" * (layout.tokenizer == UTF8_BYTES))
    )

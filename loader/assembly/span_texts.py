"""The texts of the spans of a pack, with the state written out where the prompt has it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loader.fetch.plan_rows import PackRow, PlanRows
from packing.state_text import state_bins


@dataclass(frozen=True, kw_only=True)
class SpanTexts:
    """Texts of n spans, end to end.

    Attributes:
        ids: int64 [sum of lengths].
        lengths: int32 [n].
        images_at: int32 [n], how many ids of a span stand before its images.
    """

    ids: NDArray[np.int64]
    lengths: NDArray[np.int32]
    images_at: NDArray[np.int32]


def span_texts(row: PackRow, rows: PlanRows, state: NDArray[np.float32]) -> SpanTexts:
    """The texts of a pack.

    Args:
        row: its spans.
        rows: the plan's tables.
        state: float32 [S, Ds], their observed states. The one written is the last of a span: where
            the robot is when it acts.
    """
    texts = [rows.text_ids(text) for text in row.text.tolist()]
    if rows.plan.header.prompt_ids.state_text is not None:
        written = _written_states(row, rows, state)
        cuts = rows.state_at[row.text].tolist()
        texts = [
            np.concatenate([ids[:at], number, ids[at:]])
            for ids, at, number in zip(texts, cuts, written, strict=True)
        ]
    return SpanTexts(
        ids=np.concatenate([np.empty(0, np.int64), *texts]),
        lengths=np.array([len(ids) for ids in texts], np.int32),
        images_at=rows.images_at[row.text],
    )


def _written_states(
    row: PackRow, rows: PlanRows, state: NDArray[np.float32]
) -> list[NDArray[np.int64]]:
    header = rows.plan.header
    text = header.prompt_ids.state_text
    assert text is not None
    spec = rows.spec[row.episode]
    sizes = [header.specs[number].state_size for number in spec.tolist()]
    last = np.cumsum(row.observed, dtype=np.int64) - 1
    q01, q99 = rows.state_quantiles
    bins = state_bins(state[last], q01[spec], q99[spec])
    return [
        np.fromiter(text.ids(values[:size]), np.int64)
        for values, size in zip(bins.tolist(), sizes, strict=True)
    ]

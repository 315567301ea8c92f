"""From plan rows, signals and a picture table to the arrays of a batch: a pure function.

Everything but the pixels is computed here; pictures are decoded into the batch's buffer later, at
the bucket and row that `Assembled.bucket` and `Assembled.bucket_row` name.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.assembly.prefix import Prefix, lay_out_prefix
from loader.assembly.segments import (
    joint_index,
    padded,
    padded_sums,
    ranges,
    segment_bounds,
    starts_of,
)
from loader.assembly.shape import BatchShape
from loader.assembly.signals import PackSignals, action_queries, without_spans
from loader.assembly.span_texts import span_texts
from loader.batch import IGNORED_LABEL, Modality
from loader.errors import LoaderError
from loader.fetch.images import ImageTable
from loader.fetch.plan_rows import PackRow, PlanRows


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """All of a batch but its pixels.

    Attributes:
        arrays: the batch's array fields, images left out.
        scalars: its other fields.
        image_shapes: shape of each bucket.
        bucket, bucket_row: int32 [I], where the i-th picture of the pack's table goes.
    """

    arrays: Mapping[str, NDArray[Any]]
    scalars: Mapping[str, Any]
    image_shapes: tuple[tuple[int, ...], ...]
    bucket: NDArray[np.int32]
    bucket_row: NDArray[np.int32]


def assemble(
    row: PackRow,
    images: ImageTable,
    signals: PackSignals,
    rows: PlanRows,
    shape: BatchShape,
    bad: Collection[int] = (),
) -> Assembled:
    """Lay out one pack.

    A bad span keeps its place and its tokens, but its states and actions are 0, its states masked,
    and nothing of it counts in a loss.

    Args:
        row: the spans.
        images: their pictures.
        signals: their states and actions.
        rows: the plan's tables.
        shape: sizes of the plan's batches.
        bad: rows of the spans that are damaged in the lake.
    """
    header = rows.plan.header
    num_spans = len(row)
    observed = row.observed
    if bad:
        signals = without_spans(signals, row, header.layout, bad)
    prefix = _prefix(row, images, signals, rows)
    cu_seqlens = segment_bounds(
        prefix.lengths,
        tokens=shape.tokens,
        segments=shape.segments,
        longest=shape.max_seqlen,
    )
    order, bucket, bucket_row, shapes = _buckets(images, shape)
    queries = action_queries(row, header.layout)
    cu_action = padded_sums(queries, shape.segments)
    query_span = np.repeat(np.arange(num_spans), queries)
    query_nth = np.arange(len(query_span)) - cu_action[query_span]
    sound = np.ones(num_spans, np.bool_)
    sound[list(bad)] = False
    weights = _action_weights(row, rows, queries) * sound[query_span]
    state_steps = _state_steps(row)
    spec = rows.spec[row.episode]
    action_mask = _dim_masks([s.action_size for s in header.specs], shape.action_size)[spec]
    state_mask = _dim_masks([s.state_size for s in header.specs], shape.state_size)[spec]
    arrays = {
        **_tokens(prefix, shape, cu_seqlens, header.prompt_ids.pad),
        "cu_seqlens": cu_seqlens,
        "image_span_ids": images.span[order],
        "image_camera_ids": images.camera[order].astype(np.int16),
        "image_step_index": images.step[order],
        "image_token_index": ranges(prefix.image_first[order], header.layout.image_tokens),
        "cu_image_tokens": np.arange(len(images) + 1, dtype=np.int32) * header.layout.image_tokens,
        "state": signals.state,
        "state_dim_mask": np.repeat(state_mask, observed, axis=0)
        & (_state_known(row, rows, state_steps) & np.repeat(sound, observed))[:, None],
        "state_step_index": state_steps,
        "state_token_index": prefix.state_tokens,
        "cu_seqlens_state": padded_sums(observed, shape.segments),
        "actions": signals.action,
        "action_dim_mask": action_mask[query_span],
        "action_position_ids": query_nth.astype(np.int64),
        "action_loss_weights": weights,
        "cu_seqlens_action": cu_action,
        "kv_index": joint_index(cu_seqlens, cu_action, num_spans),
        "cu_seqlens_kv": cu_seqlens + cu_action,
        "embodiment_ids": padded(rows.embodiment[row.episode], shape.segments, np.int32),
        "dataset_ids": padded(rows.dataset[row.episode], shape.segments, np.int32),
        "stats_ids": padded(spec, shape.segments, np.int32),
        "span_ids": padded(row.span_id, shape.segments, np.int64),
        "occurrence_ids": padded(row.occurrence, shape.segments, np.int32),
        "episode_ids": padded(row.episode, shape.segments, np.int64),
        "step_index": padded(row.action_start, shape.segments, np.int32),
        "sample_weights": np.concatenate([sound, np.zeros(shape.segments - num_spans)]).astype(
            np.float32
        ),
    }
    sizes = np.asarray([s.action_size for s in header.specs], np.int64)[spec]
    scalars = {
        "image_format": shape.image_format,
        "max_seqlen": shape.max_seqlen,
        "max_seqlen_action": shape.max_seqlen_action,
        "max_seqlen_kv": shape.max_seqlen_kv,
        "num_spans": num_spans,
        "num_items_in_batch": int((arrays["labels"] != IGNORED_LABEL).sum()),
        "num_action_items": int(sizes[query_span][weights > 0].sum()),
        "pack": row.pack,
        "step": row.place.step,
        "slot": row.place.slot,
        "epoch": row.epoch,
        "plan_hash": header.planned_by(row.place.step),
    }
    return Assembled(
        arrays=arrays, scalars=scalars, image_shapes=shapes, bucket=bucket, bucket_row=bucket_row
    )


def _prefix(row: PackRow, images: ImageTable, signals: PackSignals, rows: PlanRows) -> Prefix:
    """The prefixes of the spans at their real lengths.

    A state written as text was planned at its longest: what it leaves is padding behind the spans.

    Raises:
        LoaderError: a span is longer than planned, or shorter by more than its state can be.
    """
    header = rows.plan.header
    prefix = lay_out_prefix(
        span_texts(row, rows, signals.state),
        image_span=images.span,
        image_nth=images.nth,
        observed=row.observed,
        layout=header.layout,
        ids=header.prompt_ids,
    )
    most = header.prompt_ids.most_state_text([spec.state_size for spec in header.specs])
    unused = row.prefix_tokens - prefix.lengths
    wrong = np.flatnonzero((unused < 0) | (unused > most[rows.spec[row.episode]]))
    if wrong.size:
        span = int(wrong[0])
        raise LoaderError(
            f"plan {rows.plan.plan_hash}: span {row.span_id[span]} has {prefix.lengths[span]}"
            f" prefix tokens, the plan counted {row.prefix_tokens[span]}; make the plan again"
        )
    return prefix


def _tokens(
    prefix: Prefix, shape: BatchShape, cu_seqlens: NDArray[np.int32], pad_id: int
) -> dict[str, NDArray[Any]]:
    """The [T] arrays."""
    segment = np.repeat(np.arange(shape.segments, dtype=np.int32), np.diff(cu_seqlens))
    used = len(prefix.input_ids)
    input_ids = np.full(shape.tokens, pad_id, np.int64)
    input_ids[:used] = prefix.input_ids
    modality = np.full(shape.tokens, Modality.PAD, np.uint8)
    modality[:used] = prefix.modality
    position = np.arange(shape.tokens, dtype=np.int64) - cu_seqlens[segment]
    segment[used:] = shape.segments
    return {
        "input_ids": input_ids,
        "position_ids": position,
        "segment_ids": segment,
        "token_modality": modality,
        "labels": np.full(shape.tokens, IGNORED_LABEL, np.int64),
        "loss_weights": np.zeros(shape.tokens, np.float32),
    }


def _buckets(
    images: ImageTable, shape: BatchShape
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], tuple[tuple[int, ...], ...]]:
    """Order of pictures by bucket, and the bucket and row of each in the table's order."""
    count = len(images)
    if shape.image_size is not None:
        row = np.arange(count, dtype=np.int32)
        one = shape.bucket_shape(count, *shape.image_size)
        return np.arange(count), np.zeros(count, np.int32), row, (one,)
    sizes = [(stream.index.height, stream.index.width) for stream in images.streams]
    known = sorted({sizes[stream] for stream in np.unique(images.stream).tolist()})
    bucket_of = np.asarray([known.index(s) if s in known else -1 for s in sizes], np.int32)
    bucket = bucket_of[images.stream]
    order = np.argsort(bucket, kind="stable")
    counts = np.bincount(bucket, minlength=len(known))
    row = np.empty(count, np.int32)
    row[order] = np.arange(count) - starts_of(counts)[bucket[order]]
    shapes = tuple(shape.bucket_shape(int(n), *size) for n, size in zip(counts, known, strict=True))
    return order, bucket, row, shapes


def _state_steps(row: PackRow) -> NDArray[np.int32]:
    observed = row.observed
    span = np.repeat(np.arange(len(row)), observed)
    nth = np.arange(len(span)) - starts_of(observed)[span]
    return (row.start[span] + nth * row.stride[span]).astype(np.int32)


def _state_known(row: PackRow, rows: PlanRows, steps: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Bool [S]: False at observed steps whose state is invalid, which the span only crosses."""
    known = np.ones(len(steps), np.bool_)
    at = 0
    for episode, count in zip(row.episode.tolist(), row.observed.tolist(), strict=True):
        invalid = rows.invalid_state_steps(episode)
        if len(invalid):
            known[at : at + count] = ~np.isin(steps[at : at + count], invalid)
        at += count
    return known


def _action_weights(
    row: PackRow, rows: PlanRows, queries: NDArray[np.int32]
) -> NDArray[np.float32]:
    """float32 [Q]: 1, and 0 at steps whose action is invalid or that lie past the episode's end."""
    weights = np.ones(int(queries.sum()), np.float32)
    at = 0
    for episode, start, count in zip(
        row.episode.tolist(), row.action_start.tolist(), queries.tolist(), strict=True
    ):
        invalid = rows.invalid_action_steps(episode)
        if len(invalid):
            inside = invalid[(invalid >= start) & (invalid < start + count)]
            weights[at + inside - start] = 0
        weights[at + int(rows.num_steps[episode]) - start : at + count] = 0
        at += count
    return weights


def _dim_masks(sizes: Sequence[int], size: int) -> NDArray[np.bool_]:
    """Bool [specs, size]: dimensions that each spec has."""
    return np.arange(size)[None, :] < np.asarray(sizes, np.int64).reshape(-1, 1)

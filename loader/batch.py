"""PackedBatch: what a training step eats.

One batch is one pack: spans of several episodes laid end to end, without padding between them.
The worker holds numpy arrays, the consumer torch tensors, in the same dataclass. Names follow
flash-attn, Hugging Face and Transformer Engine.

Letters in shapes: T budget tokens, N segments (a constant of the plan), I images, K tokens of all
images, S observed steps, M state tokens, Q action queries, Ds and Da the plan's largest state and
action dimensions.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, TypeVar, get_type_hints

from numpy.typing import NDArray

from loader.errors import BatchError

if TYPE_CHECKING:
    from torch import Tensor
    from torch import device as Device  # noqa: N812  # a type

    from loader.padded import PaddedBatch

A = TypeVar("A")

IGNORED_LABEL: Final = -100
ImageFormat = Literal["rgb", "yuv"]
Stream = Literal["prefix", "action", "cross"]


class Modality(IntEnum):
    """Values of `token_modality`."""

    PAD = 0
    IMAGE = 1
    TEXT = 2
    STATE = 3
    EXTRA = 4


@dataclass(frozen=True)
class Axes:
    """Dtype (numpy name) and axes of a field; the axes are separated by spaces."""

    dtype: str
    shape: str


@dataclass(frozen=True, kw_only=True)
class PackedBatch(Generic[A]):
    """One pack as arrays; `A` is a numpy array or a torch tensor.

    Prefix stream. The prefix tokens of a span stand in this order: the text, and where its prompt
    has the images (by default before it), for each observed step, for each camera present at it,
    that picture's tokens in their frame; then the state tokens of each observed step (where the
    layout has them); then the layout's extra tokens.

    Attributes:
        input_ids: text token ids, those of a state written as text among them; at image, state and
            pad tokens the ids in the plan header's `prompt_ids` (extra tokens hold the pad id).
        position_ids: position in the span, from 0 (M-RoPE: `loader.mrope`); pads: in their segment.
        segment_ids: row of the span in the [N] arrays; N at pad tokens.
        token_modality: see `Modality`.
        labels: next-token targets, -100 where there is none.
        loss_weights: weight of a label, 0 where there is none.
        cu_seqlens: starts of the segments and T, repeated. The first `num_spans` segments are
            spans; pad tokens follow as segments of their own of at most `max_seqlen` tokens.
        max_seqlen: the longest segment of any pack of the plan (a constant: compiled code sees
            one value, and no device sync is needed to learn it).
        images: per picture size one uint8 array: `rgb` [I_b, 3, h, w], `yuv` [I_b, 3h/2, w] (I420:
            h rows of Y, then the rows of U and of V side by side as they lie in memory). Buckets
            ascend by (h, w); image i of the [I] arrays is the i-th over all buckets in order.
        image_format: `rgb` or `yuv`.
        image_span_ids, image_camera_ids, image_step_index: span row, camera (index into the
            plan's cameras) and step of the episode of each image.
        image_token_index: positions in [T] of the tokens of image 0, image 1, ...
        cu_image_tokens: image i owns image_token_index[cu_image_tokens[i]:cu_image_tokens[i+1]].
        state, state_dim_mask: observed states in the recorded unit, not normalised; dimensions
            that an embodiment lacks are 0 and False, and so are all of a step whose state is
            invalid and which the span was told to cross.
        state_step_index: step of the episode of each row of `state`.
        state_token_index: positions in [T] of the state tokens, M/S consecutive ones per row of
            `state`; empty where the layout has no state tokens.
        cu_seqlens_state: rows of `state` of each span.
        actions, action_dim_mask: the steps of the action chunk, not normalised; they end with the
            episode, unless the plan pads tails: then zeros follow, never repeated values.
        action_position_ids: position inside the span's chunk, from 0.
        action_loss_weights: 1, or 0 at a step whose action is invalid (marked so, or not finite)
            or that lies past the end of its episode.
        cu_seqlens_action, max_seqlen_action: action queries of each span.
        kv_index: gathers the keys and values of the action stream from the concatenation
            [prefix tokens; action queries]: per span its prefix, then its actions; pads last.
        cu_seqlens_kv, max_seqlen_kv: segments of the gathered keys and values.
        embodiment_ids, dataset_ids, stats_ids: indices into the plan header's `embodiments`,
            `datasets` and `specs` (statistics are per spec); -1 past num_spans.
        span_ids, episode_ids: the plan's span ids and indices of its episodes; -1 past num_spans.
        occurrence_ids: how often each span has occurred in its epoch before (more than 0 only in
            mixtures); with `epoch` and `span_ids` it names an occurrence; -1 past num_spans.
        step_index: step of the episode at which the span's action chunk starts; -1 likewise.
        sample_weights: weight of each span in the loss; 0 in bad spans and past num_spans.
        num_spans: spans in this batch.
        num_items_in_batch: labels that count (to be all-reduced, as in Hugging Face).
        num_action_items: action values (query x real dimension) with a weight above 0; sum the
            loss over them and divide by the all-reduced count for a global mean.
        pack, step, slot, epoch, plan_hash: which row of which plan this is; where a rank has no
            slot left in a step, the batch has no spans, pack -1, and a slot past the plan's.
    """

    input_ids: Annotated[A, Axes("int64", "T")]
    position_ids: Annotated[A, Axes("int64", "T")]
    segment_ids: Annotated[A, Axes("int32", "T")]
    token_modality: Annotated[A, Axes("uint8", "T")]
    labels: Annotated[A, Axes("int64", "T")]
    loss_weights: Annotated[A, Axes("float32", "T")]
    cu_seqlens: Annotated[A, Axes("int32", "N+1")]
    images: tuple[A, ...]
    image_format: ImageFormat
    image_span_ids: Annotated[A, Axes("int32", "I")]
    image_camera_ids: Annotated[A, Axes("int16", "I")]
    image_step_index: Annotated[A, Axes("int32", "I")]
    image_token_index: Annotated[A, Axes("int64", "K")]
    cu_image_tokens: Annotated[A, Axes("int32", "I+1")]
    state: Annotated[A, Axes("float32", "S Ds")]
    state_dim_mask: Annotated[A, Axes("bool", "S Ds")]
    state_step_index: Annotated[A, Axes("int32", "S")]
    state_token_index: Annotated[A, Axes("int64", "M")]
    cu_seqlens_state: Annotated[A, Axes("int32", "N+1")]
    actions: Annotated[A, Axes("float32", "Q Da")]
    action_dim_mask: Annotated[A, Axes("bool", "Q Da")]
    action_position_ids: Annotated[A, Axes("int64", "Q")]
    action_loss_weights: Annotated[A, Axes("float32", "Q")]
    cu_seqlens_action: Annotated[A, Axes("int32", "N+1")]
    kv_index: Annotated[A, Axes("int64", "T+Q")]
    cu_seqlens_kv: Annotated[A, Axes("int32", "N+1")]
    embodiment_ids: Annotated[A, Axes("int32", "N")]
    dataset_ids: Annotated[A, Axes("int32", "N")]
    stats_ids: Annotated[A, Axes("int32", "N")]
    span_ids: Annotated[A, Axes("int64", "N")]
    occurrence_ids: Annotated[A, Axes("int32", "N")]
    episode_ids: Annotated[A, Axes("int64", "N")]
    step_index: Annotated[A, Axes("int32", "N")]
    sample_weights: Annotated[A, Axes("float32", "N")]
    max_seqlen: int
    max_seqlen_action: int
    max_seqlen_kv: int
    num_spans: int
    num_items_in_batch: int
    num_action_items: int
    pack: int
    step: int
    slot: int
    epoch: int
    plan_hash: str

    def __post_init__(self) -> None:
        state: Any = self.state
        actions: Any = self.actions
        sizes = {
            "T": _length(self.input_ids),
            "N": _length(self.span_ids),
            "I": _length(self.image_span_ids),
            "K": _length(self.image_token_index),
            "S": _length(self.state),
            "M": _length(self.state_token_index),
            "Q": _length(self.actions),
            "Ds": int(state.shape[-1]),
            "Da": int(actions.shape[-1]),
            "1": 1,
        }
        for name, dims in _DIMS.items():
            array: Any = getattr(self, name)
            want = tuple([sum([sizes[term] for term in terms]) for terms in dims])
            axes = ARRAY_FIELDS[name]
            if array.shape != want or dtype_name(array) != axes.dtype:
                raise BatchError(
                    f"{name} is {dtype_name(array)}{list(array.shape)}, expected"
                    f" {axes.dtype}{list(want)} ([{axes.shape}])"
                )
        self._check_images(sizes["I"])
        for tokens, owners in (("K", "I"), ("M", "S")):
            if sizes[tokens] % max(sizes[owners], 1):
                raise BatchError(
                    f"{sizes[tokens]} {tokens}-tokens for {sizes[owners]} rows of {owners}"
                )
        if not 0 <= self.num_spans <= sizes["N"]:
            raise BatchError(f"{self.num_spans} spans in {sizes['N']} segments")

    def _check_images(self, count: int) -> None:
        rank = 4 if self.image_format == "rgb" else 3
        for bucket in self.images:
            array: Any = bucket
            shape = tuple(array.shape)
            if dtype_name(array) != "uint8" or len(shape) != rank or (rank == 4 and shape[1] != 3):
                raise BatchError(
                    f"a bucket of {self.image_format} images is {dtype_name(array)}{list(shape)}"
                )
        held = sum(_length(bucket) for bucket in self.images)
        if held != count:
            raise BatchError(f"{held} images in buckets, {count} described")

    def arrays(self) -> Iterator[tuple[str, A]]:
        """Name and array of every array field, images as `images.0`, `images.1`, ..."""
        for name in ARRAY_FIELDS:
            yield name, getattr(self, name)
        for number, bucket in enumerate(self.images):
            yield f"images.{number}", bucket

    def scalars(self) -> dict[str, int | str]:
        """The fields that are not arrays."""
        return {name: getattr(self, name) for name in SCALAR_FIELDS}

    def with_arrays(self, arrays: Mapping[str, Any]) -> "PackedBatch[Any]":
        """The same batch with every array replaced, named as `arrays()` names them."""
        named = {name: arrays[name] for name in ARRAY_FIELDS}
        images = tuple(arrays[f"images.{number}"] for number in range(len(self.images)))
        return replace(self, **named, images=images)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays: Any = self.arrays()
        return sum(int(array.nbytes) for _, array in arrays)

    @property
    def num_tokens(self) -> int:
        """Prefix tokens that belong to spans; the rest of T is padding.

        Reads one element of `cu_seqlens`: on a GPU this waits for the device.
        """
        cu_seqlens: Any = self.cu_seqlens
        return int(cu_seqlens[self.num_spans])

    def to(
        self: "PackedBatch[Tensor]", device: "Device | str", *, non_blocking: bool = False
    ) -> "PackedBatch[Tensor]":
        """The batch on a device; `non_blocking` overlaps where it is in pinned memory."""
        return self.with_arrays(
            {name: t.to(device, non_blocking=non_blocking) for name, t in self.arrays()}
        )

    def pin_memory(self: "PackedBatch[Tensor]") -> "PackedBatch[Tensor]":
        """A copy in page-locked memory (called by torch's DataLoader with `pin_memory=True`)."""
        return self.with_arrays({name: t.pin_memory() for name, t in self.arrays()})

    def trimmed(self, multiple: int = 1) -> "PackedBatch[A]":
        """Drop trailing pad tokens, for trainers that run eagerly and pay for every token.

        T becomes the span tokens rounded up to `multiple` (at least one multiple, so that a
        pack without spans still runs every module). N stays; segments past the end are empty.

        Raises:
            BatchError: `multiple` is below 1.
        """
        if multiple < 1:
            raise BatchError(f"trimmed(multiple={multiple}): must be at least 1")
        before = _length(self.input_ids)
        rounded = -(-self.num_tokens // multiple) * multiple
        after = min(before, max(rounded, multiple))
        queries = _length(self.actions)
        this: Any = self
        kv_index = this.kv_index[: after + queries]
        kv_index = kv_index - (kv_index >= before) * (before - after)
        short = {
            name: getattr(this, name)[:after]
            for name, axes in ARRAY_FIELDS.items()
            if axes.shape == "T"
        }
        return replace(
            self,
            **short,
            kv_index=kv_index,
            cu_seqlens=this.cu_seqlens.clip(max=after),
            cu_seqlens_kv=this.cu_seqlens_kv.clip(max=after + queries),
        )

    def padded(
        self,
        *,
        max_text: int,
        num_cameras: int,
        horizon: int,
        dim: int,
        num_observed: int = 1,
    ) -> "PaddedBatch[A]":
        """The padded layout of openpi and LeRobot, see `loader.padded.padded`."""
        from loader.padded import padded  # noqa: PLC0415  # it needs this module

        return padded(
            self,
            max_text=max_text,
            num_cameras=num_cameras,
            horizon=horizon,
            dim=dim,
            num_observed=num_observed,
        )

    def _segments(self, stream: Stream) -> tuple[A, int, A, int]:
        """Query and key segments with their longest lengths, of one attention call."""
        if stream == "prefix":
            return self.cu_seqlens, self.max_seqlen, self.cu_seqlens, self.max_seqlen
        if stream == "action":
            query, longest = self.cu_seqlens_action, self.max_seqlen_action
            return query, longest, self.cu_seqlens_kv, self.max_seqlen_kv
        if stream == "cross":
            query, longest = self.cu_seqlens_action, self.max_seqlen_action
            return query, longest, self.cu_seqlens, self.max_seqlen
        raise BatchError(f"unknown stream {stream!r}: use prefix, action or cross")

    def flash(self, stream: Stream = "prefix") -> dict[str, Any]:
        """Keyword arguments of flash-attn's `flash_attn_varlen_func`.

        Args:
            stream: `prefix` (prefix to prefix), `action` (actions to prefix and actions, keys
                gathered by `kv_index`) or `cross` (actions to prefix).
        """
        query, longest_query, key, longest_key = self._segments(stream)
        return {
            "cu_seqlens_q": query,
            "cu_seqlens_k": key,
            "max_seqlen_q": longest_query,
            "max_seqlen_k": longest_key,
        }

    def hf(self) -> dict[str, Any]:
        """Keyword arguments of a Hugging Face model's forward in its padding-free form.

        `input_ids`, `position_ids` and `labels` are [1, T].
        """
        this: Any = self
        return {
            "input_ids": this.input_ids[None],
            "position_ids": this.position_ids[None],
            "labels": this.labels[None],
            "cu_seq_lens_q": self.cu_seqlens,
            "cu_seq_lens_k": self.cu_seqlens,
            "max_length_q": self.max_seqlen,
            "max_length_k": self.max_seqlen,
            "num_items_in_batch": self.num_items_in_batch,
        }

    def te(self, stream: Stream = "prefix") -> dict[str, Any]:
        """Keyword arguments of Transformer Engine's `DotProductAttention` (streams: `flash`)."""
        query, longest_query, key, longest_key = self._segments(stream)
        return {
            "qkv_format": "thd",
            "attn_mask_type": "padding",
            "cu_seqlens_q": query,
            "cu_seqlens_kv": key,
            "max_seqlen_q": longest_query,
            "max_seqlen_kv": longest_key,
        }

    def torch(self, stream: Stream = "prefix") -> dict[str, Any]:
        """Keyword arguments of `torch.nn.attention.varlen.varlen_attn` (streams: `flash`)."""
        query, longest_query, key, longest_key = self._segments(stream)
        return {
            "cu_seq_q": query,
            "cu_seq_k": key,
            "max_q": longest_query,
            "max_k": longest_key,
        }


def dtype_name(array: Any) -> str:  # noqa: ANN401  # numpy or torch, known only at run time
    """Numpy's name of the dtype of a numpy array or a torch tensor."""
    return _name(array.dtype)


@functools.cache
def _name(dtype: Any) -> str:  # noqa: ANN401  # of numpy or of torch
    return str(dtype).removeprefix("torch.")


def _length(array: Any) -> int:  # noqa: ANN401  # numpy or torch, known only at run time
    return int(array.shape[0])


def _array_fields() -> dict[str, Axes]:
    hints = get_type_hints(PackedBatch, include_extras=True)
    return {
        field.name: hint.__metadata__[0]
        for field in fields(PackedBatch)
        if hasattr(hint := hints[field.name], "__metadata__")
    }


ARRAY_FIELDS: Final[Mapping[str, Axes]] = _array_fields()
# The axes of each field as sums of sizes: "N+1 Ds" is (("N", "1"), ("Ds",)).
_DIMS: Final = {
    name: tuple(tuple(axis.split("+")) for axis in axes.shape.split())
    for name, axes in ARRAY_FIELDS.items()
}
SCALAR_FIELDS: Final = tuple(
    f.name for f in fields(PackedBatch) if f.name not in ARRAY_FIELDS and f.name != "images"
)
NumpyBatch = PackedBatch[NDArray[Any]]

"""Batches of samples: padded to one shape with masks, or packed end to end without padding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import torch
from torch.utils.data import default_collate

from loader.errors import BatchError
from loader.windows.padded_keys import MASK_SUFFIX, PaddedKey
from loader.windows.reader import PAD_SUFFIX

Sample = Mapping[str, Any]

_STATE: Final = "observation.state"
_ACTION: Final = "action"


def collate_padded(samples: Sequence[Sample], *, keys: Mapping[str, PaddedKey]) -> dict[str, Any]:
    """A batch of samples of any embodiments and camera sets, always of the same keys and shapes.

    What a sample lacks is 0 and False in `<key>_mask`, which pictures always have and values where
    episodes differ; a flag `<key>_is_pad` that it lacks is True. Texts are a list, None where a
    sample has none. Use it as `DataLoader(window, collate_fn=functools.partial(collate_padded,
    keys=window.padded_keys()))`.

    Args:
        samples: of one `Window`.
        keys: see `Window.padded_keys`.

    Returns:
        Key -> tensor [B, *shape], or a list of B texts.

    Raises:
        BatchError: a sample has a key that is not in `keys`, or more than it has room for.
    """
    batch: dict[str, Any] = default_collate([_filled(sample, keys) for sample in samples])
    for key, form in keys.items():
        if form.kind == "text":
            batch[key] = [sample.get(key) for sample in samples]
    return batch


def _filled(sample: Sample, keys: Mapping[str, PaddedKey]) -> dict[str, torch.Tensor]:
    if unknown := sample.keys() - keys.keys():
        raise BatchError(
            f"samples have {', '.join(sorted(unknown))}, the keys of the batch do not: take those"
            " of the same Window"
        )
    filled: dict[str, torch.Tensor] = {}
    for key, form in keys.items():
        if form.kind == "text":
            continue
        value: torch.Tensor | None = sample.get(key)
        if form.kind == "flag":
            filled[key] = torch.ones(form.shape, dtype=torch.bool) if value is None else value
            continue
        room = None
        if value is None or tuple(value.shape) != form.shape:
            room = torch.zeros(form.shape, dtype=getattr(torch, form.dtype))
            if value is not None:
                _put(key, value, room)
        filled[key] = value if room is None else room  # type: ignore[assignment]  # one is there
        if form.masked:
            filled[key + MASK_SUFFIX] = _mask(value, form)
    return filled


def _put(key: str, value: torch.Tensor, room: torch.Tensor) -> None:
    fits = value.ndim == room.ndim and value.shape[:-1] == room.shape[:-1]
    if not fits or value.shape[-1] > room.shape[-1]:
        raise BatchError(
            f"{key} is {list(value.shape)} in a sample, the batch has room for {list(room.shape)}"
        )
    room[..., : value.shape[-1]] = value


def _mask(value: torch.Tensor | None, form: PaddedKey) -> torch.Tensor:
    if form.kind == "picture" or not form.shape:
        return torch.tensor(value is not None)
    mask = torch.zeros(form.shape[-1], dtype=torch.bool)
    if value is not None:
        mask[: value.shape[-1]] = True
    return mask


@dataclass(frozen=True, kw_only=True)
class PackedSamples:
    """B samples end to end: real steps and pictures only, under the names of `PackedBatch`.

    Attributes:
        state: float32 [S, Ds], the observed steps of sample 0, of sample 1, ...
        state_dim_mask: bool [S, Ds], False right of what an embodiment has.
        cu_seqlens_state: int32 [B+1], rows of `state` of each sample.
        actions: float32 [Q, Da], the steps of the chunks that lie inside their episodes.
        action_dim_mask: bool [Q, Da].
        cu_seqlens_action: int32 [B+1].
        max_seqlen_action: the horizon, an int that is the same for all batches.
        images: [I, 3, h, w], those of sample 0 by camera and time, then of sample 1, ...
        image_span_ids, image_camera_ids: int64 [I], sample and camera (index into `cameras`).
        cameras: their keys.
        tasks: B texts.
    """

    state: torch.Tensor
    state_dim_mask: torch.Tensor
    cu_seqlens_state: torch.Tensor
    actions: torch.Tensor
    action_dim_mask: torch.Tensor
    cu_seqlens_action: torch.Tensor
    max_seqlen_action: int
    images: torch.Tensor
    image_span_ids: torch.Tensor
    image_camera_ids: torch.Tensor
    cameras: tuple[str, ...]
    tasks: tuple[str, ...]

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "PackedSamples":
        """On a device; `non_blocking` overlaps where it is in pinned memory."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "PackedSamples":
        """A copy in page-locked memory (called by torch's DataLoader with `pin_memory=True`)."""
        return self._each(torch.Tensor.pin_memory)

    def _each(self, change: Any) -> "PackedSamples":  # noqa: ANN401  # tensor -> tensor
        tensors = {
            f.name: change(value)
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), torch.Tensor)
        }
        return replace(self, **tensors)


def collate_packed(
    samples: Sequence[Sample],
    *,
    cameras: Sequence[str],
    state: str = _STATE,
    action: str = _ACTION,
    state_size: int | None = None,
    action_size: int | None = None,
) -> PackedSamples:
    """Lay samples end to end, for models that attend by `cu_seqlens`; what is padding is left out.

    Args:
        samples: of one `Window`, with deltas for `action`.
        cameras: keys of pictures, see `WindowMeta.camera_keys`; a sample may lack some.
        state: key of the state.
        action: key of the actions.
        state_size: Ds, the largest of the batch where None.
        action_size: Da, likewise.

    Raises:
        BatchError: a sample has no state or no action chunk, pictures differ in size, or vectors
            are larger than asked for.
    """
    states = [_real_steps(sample, state, chunk=False) for sample in samples]
    actions = [_real_steps(sample, action, chunk=True) for sample in samples]
    pictures = [
        (span, camera, _real_pictures(sample, key))
        for span, sample in enumerate(samples)
        for camera, key in enumerate(cameras)
        if key in sample
    ]
    sizes = {tuple(each.shape[1:]) for _, _, each in pictures}
    if len(sizes) > 1:
        raise BatchError(f"pictures of sizes {sorted(sizes)}: give the Window an image_size")
    blank = torch.empty((0, *(sizes.pop() if sizes else (3, 0, 0))), dtype=torch.uint8)
    counts = torch.tensor([len(each) for _, _, each in pictures], dtype=torch.int64)
    state_rows, state_mask = _side_by_side(state, states, state_size)
    action_rows, action_mask = _side_by_side(action, actions, action_size)
    return PackedSamples(
        state=state_rows,
        state_dim_mask=state_mask,
        cu_seqlens_state=_cu_seqlens(states),
        actions=action_rows,
        action_dim_mask=action_mask,
        cu_seqlens_action=_cu_seqlens(actions),
        max_seqlen_action=max(len(sample[action]) for sample in samples),
        images=torch.cat([each for _, _, each in pictures]) if pictures else blank,
        image_span_ids=_repeated([span for span, _, _ in pictures], counts),
        image_camera_ids=_repeated([camera for _, camera, _ in pictures], counts),
        cameras=tuple(cameras),
        tasks=tuple(sample["task"] for sample in samples),
    )


def _real_steps(sample: Sample, key: str, *, chunk: bool) -> torch.Tensor:
    """[n, D]: the steps of a key that are no padding, their elements flattened."""
    value, pad = sample.get(key), sample.get(key + PAD_SUFFIX)
    if value is None or (chunk and (pad is None or value.shape[:1] != pad.shape)):
        need = f"deltas for {key}" if chunk else f"{key} in every episode"
        raise BatchError(f"packing needs {need}; samples have {', '.join(sample)}")
    rows: torch.Tensor = value.reshape(1 if pad is None else len(pad), -1)
    return rows if pad is None else rows[~pad]


def _real_pictures(sample: Sample, key: str) -> torch.Tensor:
    """[n, 3, h, w]: the pictures of a key that are no padding."""
    value, pad = sample[key], sample.get(key + PAD_SUFFIX)
    pictures: torch.Tensor = value if value.ndim == 4 else value[None]
    return pictures if pad is None else pictures[~pad]


def _side_by_side(
    key: str, parts: Sequence[torch.Tensor], size: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 and bool [sum, size]: rows below each other, zeros to the right, and what is real."""
    largest = max(part.shape[-1] for part in parts)
    if size is not None and largest > size:
        raise BatchError(f"{key} has {largest} elements, {size} are too few")
    rows = torch.zeros((sum(len(part) for part in parts), size or largest))
    mask = torch.zeros(rows.shape, dtype=torch.bool)
    at = 0
    for part in parts:
        rows[at : at + len(part), : part.shape[-1]] = part
        mask[at : at + len(part), : part.shape[-1]] = True
        at += len(part)
    return rows, mask


def _cu_seqlens(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    lengths = torch.tensor([0, *(len(part) for part in parts)])
    return lengths.cumsum(0).to(torch.int32)


def _repeated(numbers: Sequence[int], counts: torch.Tensor) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64).repeat_interleave(counts)

"""What a padded batch of samples holds, the same for every batch however its episodes differ."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from loader.errors import LoaderError
from loader.windows.index import WindowIndex
from loader.windows.keys import COUNTERS, SpecKeys, delivered_dtype, picture_sizes
from loader.windows.reader import PAD_SUFFIX, WindowSpec

MASK_SUFFIX: Final = "_mask"

Kind = Literal["picture", "value", "flag", "text"]


@dataclass(frozen=True, kw_only=True)
class PaddedKey:
    """One key of a padded batch.

    Attributes:
        kind: a picture, numbers, a `_is_pad` flag, or text.
        shape: of one sample.
        dtype: torch's name.
        masked: whether the batch has `<key>_mask`: bool [B] for pictures and single numbers,
            [B, D] over the last axis of other values, True where there is something real.
    """

    kind: Kind
    shape: tuple[int, ...] = ()
    dtype: str = "bool"
    masked: bool = False


def padded_keys(
    index: WindowIndex, spec: WindowSpec, *, image_dtype: str, dims: Mapping[str, int] | None
) -> dict[str, PaddedKey]:
    """The keys of all samples of an index.

    Args:
        index: the samples.
        spec: what they hold.
        image_dtype: of the pictures.
        dims: key -> elements to pad its vectors to; the largest of the episodes where not given.

    Raises:
        LoaderError: pictures of a camera differ in size, values in more than their last axis, or
            `dims` names a key that has no vectors, or too few elements for one.
    """
    steps = {key: len(s) for deltas in spec.deltas.values() for key, s in deltas.items()}
    room = dict(dims or {})
    found: dict[str, PaddedKey] = {}
    for key in dict.fromkeys(key for keys in spec.keys for key in keys.cameras):
        size = _picture_size(index, spec, key)
        time = (steps[key],) if steps.get(key, 1) > 1 else ()
        found[key] = PaddedKey(
            kind="picture", shape=(*time, 3, *size), dtype=image_dtype, masked=True
        )
    for key in dict.fromkeys(key for keys in spec.keys for key in keys.features):
        found[key] = _value(spec.keys, key, steps.get(key), room.pop(key, None))
    if room:
        raise LoaderError(f"dims: samples have no vectors called {', '.join(sorted(room))}")
    for key in COUNTERS:
        time = (steps[key],) if key in steps else ()
        dtype = "float32" if key == "timestamp" else "int64"
        found.setdefault(key, PaddedKey(kind="value", shape=time, dtype=dtype))
    for key in list(found):
        if key in steps or (spec.missing == "pad" and key not in COUNTERS):
            found[key + PAD_SUFFIX] = PaddedKey(kind="flag", shape=(steps.get(key, 1),))
    found["task"] = PaddedKey(kind="text")
    return found


def _value(specs: Sequence[SpecKeys], key: str, steps: int | None, room: int | None) -> PaddedKey:
    having = [keys.features[key] for keys in specs if key in keys.features]
    dtypes = {delivered_dtype(feature) for feature in having}
    if len(dtypes) > 1:
        raise LoaderError(f"{key} is {' and '.join(sorted(dtypes))} in different episodes")
    (dtype,) = dtypes
    if dtype == "string":
        return PaddedKey(kind="text")
    outer = {feature.shape[:-1] for feature in having}
    scalar = {not feature.shape for feature in having}
    if len(outer) > 1 or len(scalar) > 1:
        shapes = sorted({feature.shape for feature in having})
        raise LoaderError(f"{key} has shapes {shapes} in different episodes: not one batch")
    time = () if steps is None else (steps,)
    if scalar == {True}:
        if room is not None:
            raise LoaderError(f"dims: {key} is a single number, not a vector")
        return PaddedKey(kind="value", shape=time, dtype=dtype, masked=_lacking(specs, key))
    sizes = {feature.shape[-1] for feature in having}
    largest = max(sizes) if room is None else room
    if largest < max(sizes):
        raise LoaderError(f"dims: {key} has {max(sizes)} elements, {room} are too few")
    return PaddedKey(
        kind="value",
        shape=(*time, *outer.pop(), largest),
        dtype=dtype,
        masked=_lacking(specs, key) or sizes != {largest},
    )


def _lacking(specs: Iterable[SpecKeys], key: str) -> bool:
    return any(key not in keys.features or key in keys.partial for keys in specs)


def _picture_size(index: WindowIndex, spec: WindowSpec, key: str) -> tuple[int, int]:
    if spec.image_size is not None:
        return spec.image_size
    sizes = picture_sizes(index, spec.keys, key)
    if len(sizes) > 1:
        named = ", ".join(f"{height}x{width}" for height, width in sorted(sizes))
        raise LoaderError(f"pictures of {key} have sizes {named}: give an image_size")
    return sizes.pop()

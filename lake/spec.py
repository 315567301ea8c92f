"""What the numbers of an episode mean: features, cameras, conventions.

A spec is shared by all episodes of one recording set-up and identified by a hash of its content,
so two datasets recorded alike share one row of the `specs` table.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, Self

import numpy as np

from lake.errors import SpecError

Role = Literal["state", "action", "reward", "done", "success", "language", "other"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")

# Columns every row of `trajectories` has: a feature called like one of them gets a suffixed column.
RESERVED_COLUMNS: Final = frozenset(
    (
        *("episode_id", "ingest_key", "commit_id", "source", "dataset", "embodiment", "spec_id"),
        *("num_steps", "fps", "timestamps_ns", "timestamps_checksum", "duration_ns"),
        *("features", "feature_checksums", "cameras", "camera_bytes", "camera_codecs"),
        *("camera_widths", "camera_heights", "camera_frames", "camera_key_frames"),
        *("camera_missing_steps", "video_indexes", "video_index_checksums", "video"),
        *("content_sha256", "facts_checksum", "format", "source_files", "locator", "reader"),
        *("alignment", "findings"),
    )
)

DTYPES: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "string"),
)
"""What a feature can be made of."""


def canonical_name(source_name: str) -> str:
    """Turn a source's stream name into the name used in the lake.

    `observation.state` -> `state`, `observation.images.top` -> `top`, any other name in lower
    case with every run of foreign characters as one underscore (`next.reward` -> `next_reward`).
    """
    name = source_name.lower()
    for prefix in ("observation.images.", "observation.image.", "observation.", "obs/"):
        if name.startswith(prefix) and len(name) > len(prefix):
            name = name[len(prefix) :]
            break
    name = re.sub(r"[^a-z0-9]+", "_", name).strip("_")
    return name if name and name[0].isalpha() else f"f_{name}"


@dataclass(frozen=True, kw_only=True)
class FeatureSpec:
    """One numeric or text signal with a value per step.

    Attributes:
        name: canonical name, lower case `[a-z][a-z0-9_]*`.
        source_name: the name in the recording.
        dtype: numpy dtype name as recorded (`float32`, `float64`, `int64`, `bool`, ...) or
            `string`; it is never changed on the way into the lake.
        shape: shape of one step; `()` for a scalar.
        names: names of the flattened elements, or None where the source has none.
        units: units of the flattened elements (`rad`, `m`), or None where the source does not say.
        role: what the signal is for.
    """

    name: str
    source_name: str
    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    role: Role = "other"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SpecError(f"feature name {self.name!r}: use lower-case letters, digits and _")
        if self.dtype not in DTYPES:
            raise SpecError(
                f"feature {self.name}: dtype {self.dtype!r} cannot be stored; use one of"
                f" {', '.join(DTYPES)} in native byte order"
            )
        for what, given in (("element names", self.names), ("units", self.units)):
            if given is not None and len(given) != self.size:
                raise SpecError(
                    f"feature {self.name}: {len(given)} {what} for {self.size} elements"
                )

    @property
    def size(self) -> int:
        """Number of elements of one step."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def column(self) -> str:
        """Column of the `trajectories` table that holds this feature.

        The plain name for float32; other dtypes carry a suffix (`state:float64`), since datasets
        of one lake may record the same feature in different types and no value is ever cast.
        Names of the table's own columns carry it always (`fps:float32`).
        """
        plain = self.dtype == "float32" and self.name not in RESERVED_COLUMNS
        return self.name if plain else f"{self.name}:{self.dtype}"


@dataclass(frozen=True, kw_only=True)
class CameraSpec:
    """One camera: names and nominal picture size in pixels (0 where the source does not say)."""

    name: str
    source_name: str
    height: int
    width: int
    is_depth: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SpecError(f"camera name {self.name!r}: use lower-case letters, digits and _")


@dataclass(frozen=True, kw_only=True)
class FeatureSlice:
    """A named part of a flat feature, elements [start, stop), as in GR00T's `modality.json`."""

    name: str
    feature: str
    start: int
    stop: int
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Features, cameras and conventions of one recording set-up.

    Attributes:
        features: signals with a value per step; unique names.
        cameras: cameras *declared* by the source (an episode may lack some of them).
        slices: named parts of features.
        conventions: facts such as `gripper`, `color_order`, `image_origin`, as the source (or
            its format) states them; never applied to the data.
    """

    features: tuple[FeatureSpec, ...]
    cameras: tuple[CameraSpec, ...] = ()
    slices: tuple[FeatureSlice, ...] = ()
    conventions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, names in (
            ("feature", [f.name for f in self.features]),
            ("camera", [c.name for c in self.cameras]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise SpecError(f"{kind} names used twice: {', '.join(twice)}")
        try:
            json.dumps(asdict(self), ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise SpecError(f"a name in the spec is not Unicode ({error})") from error
        for part in self.slices:
            size = self.feature(part.feature).size
            if not 0 <= part.start < part.stop <= size:
                raise SpecError(
                    f"slice {part.name}: [{part.start}, {part.stop}) is outside {part.feature}"
                    f" with {size} elements"
                )

    def feature(self, name: str) -> FeatureSpec:
        """The feature called `name`; raises SpecError where there is none."""
        for feature in self.features:
            if feature.name == name:
                return feature
        known = ", ".join(f.name for f in self.features) or "none"
        raise SpecError(f"no feature called {name!r}; the spec has: {known}")

    @cached_property
    def spec_id(self) -> str:
        """First 16 hex digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Inverse of `to_json`."""
        raw: dict[str, Any] = json.loads(text)
        return cls(
            features=tuple(
                FeatureSpec(
                    **{
                        **f,
                        "shape": tuple(f["shape"]),
                        "names": None if f["names"] is None else tuple(f["names"]),
                        "units": None if f["units"] is None else tuple(f["units"]),
                    }
                )
                for f in raw["features"]
            ),
            cameras=tuple(CameraSpec(**c) for c in raw["cameras"]),
            slices=tuple(FeatureSlice(**s) for s in raw["slices"]),
            conventions=raw["conventions"],
        )

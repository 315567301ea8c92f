"""Under which keys a sample has the features and cameras of a recording set-up."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from lake.spec import CameraSpec, FeatureSpec
from loader.errors import LoaderError
from loader.windows.index import WindowIndex

Names = Literal["source", "canonical"]

COUNTERS: Final = ("timestamp", "frame_index", "episode_index", "index", "task_index")
"""Keys that every sample has: as recorded, or counted where the recording has none."""


@dataclass(frozen=True, kw_only=True)
class SpecKeys:
    """The keys of one spec.

    Attributes:
        features: key -> feature, in the order of the spec.
        cameras: key -> camera.
        partial: keys that some of its episodes lack.
    """

    features: dict[str, FeatureSpec]
    cameras: dict[str, CameraSpec]
    partial: frozenset[str]

    @property
    def all(self) -> list[str]:
        """Every key."""
        return [*self.features, *self.cameras]

    def only(self, keys: Sequence[str]) -> "SpecKeys":
        """Those of `keys` that the spec has, and all counters."""
        wanted = {*keys, *COUNTERS}
        return SpecKeys(
            features={key: f for key, f in self.features.items() if key in wanted},
            cameras={key: c for key, c in self.cameras.items() if key in wanted},
            partial=self.partial,
        )


def keys_of(index: WindowIndex, spec: int, names: Names) -> SpecKeys:
    """What episodes of a spec have, by their names in the source or by those in the lake.

    Raises:
        LoaderError: two of them are called alike in the source.
    """
    columns, cameras = index.streams(spec)
    streams: list[FeatureSpec | CameraSpec] = [
        *(f for f in index.specs[spec].features if f.column in columns),
        *(c for c in index.specs[spec].cameras if c.name in cameras),
    ]
    key = _source_name if names == "source" else _name
    called = Counter(key(stream) for stream in streams)
    if twice := [name for name, times in called.items() if times > 1]:
        raise LoaderError(
            f"two streams of spec {index.specs[spec].spec_id} are called {twice[0]}; use"
            f" names={'canonical' if names == 'source' else 'source'!r}"
        )
    return SpecKeys(
        features={key(s): s for s in streams if isinstance(s, FeatureSpec)},
        cameras={key(s): s for s in streams if isinstance(s, CameraSpec)},
        partial=frozenset(
            key(s)
            for s in streams
            if not (columns[s.column] if isinstance(s, FeatureSpec) else cameras[s.name])
        ),
    )


def _name(stream: FeatureSpec | CameraSpec) -> str:
    return stream.name


def _source_name(stream: FeatureSpec | CameraSpec) -> str:
    return stream.source_name


def choose_keys(specs: Sequence[SpecKeys], keys: Sequence[str] | None) -> list[SpecKeys]:
    """What samples of each spec have: the given keys, or everything but depth cameras.

    Raises:
        LoaderError: a key that no spec has, or that is a depth camera, whose pictures are numbers
            of another meaning and are not converted to RGB.
    """
    if keys is None:
        return [
            SpecKeys(
                features=spec.features,
                cameras={key: c for key, c in spec.cameras.items() if not c.is_depth},
                partial=spec.partial,
            )
            for spec in specs
        ]
    known = {key for spec in specs for key in spec.all}
    if unknown := [key for key in keys if key not in known and key not in COUNTERS]:
        raise LoaderError(
            f"keys: no selected episode has {', '.join(unknown)}; there are"
            f" {', '.join(sorted(known)) or 'none'}"
        )
    for spec in specs:
        if depth := [key for key in keys if key in spec.cameras and spec.cameras[key].is_depth]:
            raise LoaderError(f"keys: {depth[0]} is a depth camera, which has no RGB pictures")
    return [spec.only(keys) for spec in specs]


def delivered_dtype(feature: FeatureSpec) -> str:
    """Numpy dtype (or `string`) in which samples hold a feature.

    As LeRobot has it: floating point numbers as float32, whole numbers as int64.
    """
    if feature.dtype in {"string", "bool"}:
        return feature.dtype
    return "float32" if np.dtype(feature.dtype).kind == "f" else "int64"


def picture_sizes(index: WindowIndex, keys: Sequence[SpecKeys], key: str) -> set[tuple[int, int]]:
    """The sizes (height, width) of the pictures that episodes have under a key."""
    cameras = (spec.cameras.get(key) for spec in keys)
    return index.picture_sizes([None if camera is None else camera.name for camera in cameras])

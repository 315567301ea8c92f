"""`meta/info.json`: what a LeRobot dataset says about itself, checked for form, not for truth."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from ingest.errors import SourceError
from ingest.lerobot.jsonfiles import read_json
from ingest.source import usable_rate

Version = Literal["2.0", "2.1", "3.0"]

_VERSIONS: Final[tuple[Version, ...]] = ("2.0", "2.1", "3.0")
# Relative, without `..`, and no field that could fill in more than a few digits.
_TEMPLATE: Final = re.compile(r"(?!/)(?!(.*/)?\.\.(/|$))([^{}]|\{\w+(:0?\d?d)?\})+")
_DATA_V2: Final = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
_VIDEO_V2: Final = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
_DATA_V3: Final = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_VIDEO_V3: Final = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"


@dataclass(frozen=True, kw_only=True)
class DeclaredFeature:
    """One entry of `features`.

    Attributes:
        key: name in the dataset, e.g. `observation.state`.
        dtype: numpy dtype name, `string`, `image`, `video` or `language`, as declared.
        shape: as declared.
        names: element names, flattened whatever form the source has; None where there are none.
        facts: the `info` (or older `video_info`) dictionary of a video.
    """

    key: str
    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_camera(self) -> bool:
        """True for a stream of pictures, in video files or in the parquet rows."""
        return self.dtype in {"video", "image"}

    @property
    def is_depth(self) -> bool:
        """True where the source marks the camera as depth."""
        return bool(self.facts.get("is_depth_map") or self.facts.get("video.is_depth_map"))

    @property
    def picture_size(self) -> tuple[int, int]:
        """(height, width) in pixels, (0, 0) where the source does not say.

        Element names tell a channel-first shape from a channel-last one; without names, a first
        number of 1, 3 or 4 with a larger last one is taken as the channels.
        """
        facts = [self.facts.get(f"video.{side}") for side in ("height", "width")]
        if all(isinstance(side, int) and side > 0 for side in facts):
            return int(facts[0] or 0), int(facts[1] or 0)
        if len(self.shape) != 3:
            return 0, 0
        if self.names is not None and {"height", "width"} <= set(self.names):
            return self.shape[self.names.index("height")], self.shape[self.names.index("width")]
        if self.shape[0] in {1, 3, 4} and self.shape[2] > 4:
            return self.shape[1], self.shape[2]
        return self.shape[0], self.shape[1]


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """The parsed `meta/info.json`.

    Attributes:
        version: layout version.
        fps: steps per second as declared, None where it is missing or no usable number.
        robot_type: as declared, None where it is missing.
        features: declared features by key.
        data_path, video_path: path templates; the layout's own where the file has none.
        chunk_episodes: v2: episodes per chunk folder.
        splits: name -> (first, stop) episode index; entries of another form are left out.
        totals: the declared `total_*` counts that are numbers.
    """

    version: Version
    fps: float | None
    robot_type: str | None
    features: Mapping[str, DeclaredFeature]
    data_path: str
    video_path: str
    chunk_episodes: int
    splits: Mapping[str, tuple[int, int]]
    totals: Mapping[str, int]

    @property
    def cameras(self) -> tuple[DeclaredFeature, ...]:
        """Declared cameras, in the order of the file."""
        return tuple(f for f in self.features.values() if f.is_camera)

    def split_of(self, episode_index: int) -> str | None:
        """Name of the first split that contains the episode."""
        for name, (first, stop) in self.splits.items():
            if first <= episode_index < stop:
                return name
        return None


def read_info(root: Path) -> DatasetInfo:
    """Read and check `meta/info.json` of the dataset at `root`.

    Raises:
        SourceError: missing, empty, not JSON, an unknown layout version, or no features.
    """
    path = root / "meta" / "info.json"
    raw = read_json(path)
    version = _version(path, raw.get("codebase_version"))
    features = raw.get("features")
    if not isinstance(features, dict) or not features:
        raise SourceError(f"{path}: has no features", reason="bad-info")
    chunk_episodes = raw.get("chunks_size", 1000)
    if not isinstance(chunk_episodes, int) or chunk_episodes <= 0:
        raise SourceError(f"{path}: chunks_size is {chunk_episodes!r}", reason="bad-info")
    robot_type = raw.get("robot_type")
    return DatasetInfo(
        version=version,
        fps=usable_rate(raw.get("fps")),
        robot_type=robot_type if isinstance(robot_type, str) and robot_type else None,
        features={key: _feature(path, key, value) for key, value in features.items()},
        data_path=_template(path, "data_path", raw, version),
        video_path=_template(path, "video_path", raw, version),
        chunk_episodes=chunk_episodes,
        splits=_splits(raw.get("splits")),
        totals={
            key: value
            for key, value in raw.items()
            if key.startswith("total_") and isinstance(value, int)
        },
    )


def _version(path: Path, value: object) -> Version:
    match = re.fullmatch(r"v?(\d+\.\d+)(\.\d+)?", value) if isinstance(value, str) else None
    if match is None:
        raise SourceError(f"{path}: codebase_version is {value!r}", reason="bad-info")
    for version in _VERSIONS:
        if version == match[1]:
            return version
    raise SourceError(
        f"{path}: layout v{match[1]} is not known; Headrace reads v{', v'.join(_VERSIONS)}."
        " Convert the dataset with LeRobot",
        reason="unknown-version",
    )


def _feature(path: Path, key: str, value: object) -> DeclaredFeature:
    if not isinstance(value, dict) or not isinstance(value.get("dtype"), str):
        raise SourceError(f"{path}: feature {key} has no dtype", reason="bad-info")
    shape = value.get("shape", [])
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise SourceError(f"{path}: feature {key} has shape {shape!r}", reason="bad-info")
    facts = value.get("info") or value.get("video_info") or {}
    return DeclaredFeature(
        key=key,
        dtype=value["dtype"],
        shape=tuple(shape),
        names=_names(value.get("names")),
        facts=facts if isinstance(facts, dict) else {},
    )


def _names(value: object) -> tuple[str, ...] | None:
    """Element names from any of the forms in use: list, list of lists, dict of either."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, dict):
        indices = [index for index in value.values() if isinstance(index, int)]
        if value and len(indices) == len(value):
            return tuple(name for _, name in sorted(zip(indices, value, strict=True)))
        value = list(value.values())
    if not isinstance(value, list):
        return None
    parts = [_names(part) for part in value]
    flat = tuple(name for part in parts if part is not None for name in part)
    return flat or None


def _template(path: Path, name: str, raw: Mapping[str, Any], version: Version) -> str:
    """A path template, tried on the placeholders that its layout has."""
    v3 = version == "3.0"
    default = {
        "data_path": _DATA_V3 if v3 else _DATA_V2,
        "video_path": _VIDEO_V3 if v3 else _VIDEO_V2,
    }[name]
    template = raw.get(name) or default
    if not isinstance(template, str) or not _TEMPLATE.fullmatch(template):
        raise SourceError(
            f"{path}: {name} is {template!r}, not a path inside the dataset with numbers to fill"
            " in",
            reason="bad-info",
        )
    numbers = ("chunk_index", "file_index") if v3 else ("episode_chunk", "episode_index")
    example: dict[str, Any] = dict.fromkeys(numbers, 0)
    if name == "video_path":
        example["video_key"] = "camera"
    try:
        template.format(**example)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise SourceError(
            f"{path}: {name} {template!r} cannot be filled in ({error})", reason="bad-info"
        ) from error
    return template


def _splits(value: object) -> dict[str, tuple[int, int]]:
    if not isinstance(value, dict):
        return {}
    splits = {}
    for name, text in value.items():
        match = re.fullmatch(r"(\d+):(\d+)", text) if isinstance(text, str) else None
        if match is not None:
            splits[str(name)] = (int(match[1]), int(match[2]))
    return splits

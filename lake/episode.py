"""An episode as it enters or leaves the lake."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lake.errors import SpecError
from lake.spec import Spec
from lake.video_index import VideoIndex


@dataclass(frozen=True, kw_only=True)
class CameraVideo:
    """The packets of one camera of one episode.

    Attributes:
        index: where each packet lies in `payload`, and which step shows which frame.
        payload: the packets, concatenated in decode order.
    """

    index: VideoIndex
    payload: bytes | memoryview

    def __post_init__(self) -> None:
        if len(self.payload) != self.index.num_bytes:
            raise SpecError(
                f"video payload has {len(self.payload)} bytes, its index {self.index.num_bytes}"
            )


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where an episode came from.

    Attributes:
        format: name of the recording format (`lerobot-v3.0`, `hdf5-aloha`, ...).
        files: the source files read, relative to the source's root.
        locator: the episode inside the source (`episode 3`, `data/demo_10`).
        reader: name and version of the reader.
        alignment: the alignment policy per stream as canonical JSON; "as-recorded" where the
            source already has one row per step.
        findings: what was found wrong in the source and how it was met, one line each.
    """

    format: str
    files: tuple[str, ...]
    locator: str
    reader: str
    alignment: str = "as-recorded"
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One demonstration or rollout: T steps of signals, and the video of its cameras.

    Attributes:
        episode_id: stable id, derived from the source.
        ingest_key: identifies this episode of this source; a second ingest finds it and stops.
        source: name of the source (usually its folder or file name).
        dataset: the dataset the episode belongs to.
        embodiment: robot type as the source calls it, or "unknown".
        spec: meaning of the features.
        fps: nominal rate in steps per second, or None where the source states none.
        timestamps_ns: int64 [T], the step grid in nanoseconds, as the source has it.
        features: name -> array [T, *shape] of the spec's dtype; text is an object array of str.
        valid: name -> bool [T], False where a step of the feature could not be filled; absent
            features are wholly valid.
        cameras: camera name -> video; only cameras that have at least one frame.
        task: short task name, or None.
        instruction: natural-language instruction, or None.
        success: outcome, or None where the source does not tell.
        split: the source's split name, or None.
        tags: free labels.
        provenance: where it came from.
    """

    episode_id: str
    ingest_key: str
    source: str
    dataset: str
    embodiment: str
    spec: Spec
    fps: float | None
    timestamps_ns: NDArray[np.int64]
    features: Mapping[str, NDArray[Any]]
    provenance: Provenance
    valid: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    cameras: Mapping[str, CameraVideo] = field(default_factory=dict)
    task: str | None = None
    instruction: str | None = None
    success: bool | None = None
    split: str | None = None
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.fps is not None:  # a whole number would have another checksum than what is read
            object.__setattr__(self, "fps", float(self.fps))
        steps = self.timestamps_ns.shape
        where = f"episode {self.episode_id}"
        if len(steps) != 1 or steps[0] == 0:
            raise SpecError(f"{where}: timestamps_ns must be [T] with T > 0, not {steps}")
        for text in self._texts():
            _require_unicode(where, text)
        for name, array in self.features.items():
            spec = self.spec.feature(name)
            if array.shape != (self.num_steps, *spec.shape):
                raise SpecError(
                    f"{where}: feature {name} is {array.shape}, expected"
                    f" {(self.num_steps, *spec.shape)}"
                )
            if spec.dtype != "string" and array.dtype != np.dtype(spec.dtype):
                raise SpecError(f"{where}: feature {name} is {array.dtype}, spec {spec.dtype}")
        for name, mask in self.valid.items():
            if name not in self.features or mask.shape != (self.num_steps,):
                raise SpecError(f"{where}: validity of {name} is {mask.shape}")
        declared = {camera.name for camera in self.spec.cameras}
        for name, video in self.cameras.items():
            if name not in declared:
                raise SpecError(f"{where}: camera {name} is not in the spec")
            if video.index.step_to_frame.shape != (self.num_steps,):
                raise SpecError(
                    f"{where}: camera {name} maps {len(video.index.step_to_frame)} steps of"
                    f" {self.num_steps}"
                )

    def _texts(self) -> Iterator[object]:
        """Every text of the episode but those in its features."""
        yield from (self.episode_id, self.ingest_key, self.source, self.dataset, self.embodiment)
        yield from (t for t in (self.task, self.instruction, self.split) if t is not None)
        yield from self.tags
        yield from (value for value in vars(self.provenance).values() if isinstance(value, str))
        yield from (*self.provenance.files, *self.provenance.findings)

    @property
    def num_steps(self) -> int:
        """Number of steps, T."""
        return len(self.timestamps_ns)

    def content_sha256(self) -> bytes:
        """SHA-256 (32 bytes) over timestamps, features, validity, packets and frame maps.

        Names are hashed in sorted order, so neither the order of columns nor of cameras counts.
        """
        digest = hashlib.sha256(self.timestamps_ns.tobytes())
        for name in sorted(self.features):
            spec = self.spec.feature(name)
            digest.update(f"\0f{spec.column}\0{spec.shape}\0".encode())
            digest.update(feature_bytes(self.features[name]))
            if name in self.valid:
                digest.update(b"\0valid\0" + self.valid[name].tobytes())
        for name in sorted(self.cameras):
            video = self.cameras[name]
            digest.update(f"\0c{name}\0{video.index.codec}\0".encode())
            digest.update(video.index.step_to_frame.tobytes())
            digest.update(video.payload)
        return digest.digest()


def _require_unicode(where: str, text: object) -> None:
    """Refuse what a text column cannot hold, before it spoils the commit of other episodes."""
    if not isinstance(text, str):
        raise SpecError(f"{where}: {text!r} is {type(text).__name__}, text is needed")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"{where}: {text!r} is not Unicode ({error.reason})") from error


def feature_bytes(array: NDArray[Any]) -> bytes:
    """The bytes of a feature that are hashed: the raw array, or NUL-ended UTF-8 for text."""
    if array.dtype.kind in "OU":
        return b"".join(str(text).encode() + b"\0" for text in array.ravel())
    return np.ascontiguousarray(array).tobytes()

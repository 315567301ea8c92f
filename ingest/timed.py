"""What a recorder wrote: each stream with its own clocks, nothing resampled."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from lake.episode import CameraVideo
from lake.errors import SpecError
from lake.spec import CameraSpec, FeatureSpec, Role

Clocks = Mapping[str, NDArray[np.int64]]
"""Name of a clock -> int64 [n] nanoseconds, a stamp for each sample in order of arrival: `log` when
the recorder got it, `publish` when it was sent, `header` as written in it, `device` the sensor's.
"""

CLOCKS: Final = ("log", "publish", "header", "device")
QuaternionOrder = Literal["xyzw", "wxyz"]
_FURTHEST_NS: Final = 1 << 62  # 146 years from 1970: no two stamps within it overflow a difference


@dataclass(frozen=True, kw_only=True)
class TimedValues:
    """A stream of numbers or texts.

    Attributes:
        name: canonical name.
        source_name: the topic or path in the recording.
        clocks: see `Clocks`; at least one.
        values: [n, *shape], or an object array of str [n].
        role: what it is for.
        continuous: False for what must not be interpolated: states of a gripper, counters, modes.
        quaternion: order of a rotation's four elements as stored, None for anything else.
        names: of the flattened elements.
        units: of the flattened elements.

    Raises:
        EpisodeError: clocks and values differ in length, a stamp is no time, or values, names or
            units cannot be stored.
    """

    name: str
    source_name: str
    clocks: Clocks
    values: NDArray[Any]
    role: Role = "other"
    continuous: bool = True
    quaternion: QuaternionOrder | None = None
    names: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check_clocks(self.name, self.clocks, len(self.values))
        if self.quaternion is not None and self.values.shape[1:] != (4,):
            raise EpisodeError(
                f"{self.name}: a quaternion has 4 elements, not {self.values.shape[1:]}",
                reason="bad-quaternion",
                stream=self.name,
            )
        if self.is_text and not all(isinstance(text, str) for text in self.values.flat):
            raise EpisodeError(
                f"{self.name}: an array of objects that are not all text",
                reason="unsupported-type",
                stream=self.name,
            )
        try:
            self.spec  # noqa: B018  checked where the stream is made, not where it is aligned
        except SpecError as error:
            raise EpisodeError(str(error), reason="bad-spec", stream=self.name) from error

    @property
    def spec(self) -> FeatureSpec:
        """The feature it becomes; numbers keep their type, in native byte order."""
        return FeatureSpec(
            name=self.name,
            source_name=self.source_name,
            dtype="string" if self.is_text else self.values.dtype.newbyteorder("=").name,
            shape=tuple(self.values.shape[1:]),
            names=self.names,
            units=self.units,
            role="language" if self.is_text else self.role,
        )

    @property
    def is_text(self) -> bool:
        """Whether it holds texts."""
        return self.values.dtype == object

    @property
    def may_be_interpolated(self) -> bool:
        """Whether values between samples mean anything."""
        return self.continuous and self.values.dtype.kind == "f"


@dataclass(frozen=True, kw_only=True)
class TimedCamera:
    """A stream of pictures.

    Attributes:
        name: canonical name.
        source_name: the topic or path in the recording.
        clocks: see `Clocks`; at least one.
        video: its packets; `step_to_frame` has the frame of each stamp, -1 where it gave none.
        is_depth: whether it is depth.

    Raises:
        EpisodeError: clocks and frames differ in length, or a stamp is no time.
    """

    name: str
    source_name: str
    clocks: Clocks
    video: CameraVideo
    is_depth: bool = False

    def __post_init__(self) -> None:
        _check_clocks(self.name, self.clocks, len(self.video.index.step_to_frame))
        try:
            self.spec  # noqa: B018
        except SpecError as error:
            raise EpisodeError(str(error), reason="bad-spec", stream=self.name) from error

    @property
    def spec(self) -> CameraSpec:
        """The camera it becomes."""
        return CameraSpec(
            name=self.name,
            source_name=self.source_name,
            height=self.video.index.height,
            width=self.video.index.width,
            is_depth=self.is_depth,
        )


TimedStream = TimedValues | TimedCamera


def _check_clocks(name: str, clocks: Clocks, samples: int) -> None:
    if not clocks or not samples:
        raise EpisodeError(f"{name}: no sample or no clock", reason="empty-stream", stream=name)
    for clock, stamps in clocks.items():
        if stamps.dtype != np.int64 or stamps.shape != (samples,):
            raise EpisodeError(
                f"{name}: clock {clock} is {stamps.dtype} {stamps.shape} for {samples} samples",
                reason="bad-clock",
                stream=name,
            )
        far = np.flatnonzero((stamps > _FURTHEST_NS) | (stamps < -_FURTHEST_NS))
        if far.size:
            raise EpisodeError(
                f"{name}: clock {clock}, sample {far[0]}: {stamps[far[0]]} ns is no time",
                reason="bad-clock",
                stream=name,
            )

"""What a LeRobot dataset has one of: rate, robot, features with their types, modality.

Episodes of one dataset agree in all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import av
import pyarrow as pa

from ingest.export.errors import UnfitError
from ingest.export.lerobot.names import INDEX_COLUMNS
from lake.spec import CameraSpec, FeatureSpec
from lake.video_index import VideoIndex

Version = Literal["3.0", "2.1"]

VIDEO_CODECS: Final = ("h264", "hevc", "av1")
IMAGE_CODECS: Final = ("mjpeg", "png")
_MAX_DIMENSIONS: Final = 5
_DEPTH_FORMATS: Final = ("gray16be", "gray16le")
IMAGE_TYPE: Final = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the data files.

    Attributes:
        key: LeRobot's name.
        name: name in the lake, "" where an export makes the column.
        dtype: numpy dtype name or `string`.
        shape: of one step; `()` for a scalar, which LeRobot declares as `[1]`.
        names: of the elements.
    """

    key: str
    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    names: tuple[str, ...] | None = None

    @property
    def type(self) -> pa.DataType:
        """Arrow type of one step."""
        kind = pa.string() if self.dtype == "string" else pa.from_numpy_dtype(self.dtype)
        if len(self.shape) == 1:
            return pa.list_(kind, self.shape[0])
        for _ in self.shape:
            kind = pa.list_(kind)
        return kind

    def declared(self) -> dict[str, Any]:
        """Its entry of `info.json`."""
        names = None if self.names is None else list(self.names)
        return {"dtype": self.dtype, "shape": list(self.shape or (1,)), "names": names}

    def hugging_face(self, list_type: str) -> dict[str, Any]:
        """Its type as the `datasets` library names it."""
        value = {"dtype": self.dtype, "_type": "Value"}
        if not self.shape:
            return value
        if len(self.shape) == 1:
            return {"feature": value, "length": self.shape[0], "_type": list_type}
        kind = f"Array{len(self.shape)}D"
        return {"shape": list(self.shape), "dtype": self.dtype, "_type": kind}


@dataclass(frozen=True, kw_only=True)
class Camera:
    """A camera, in video files or as pictures in the rows.

    Attributes:
        key, name: LeRobot's name, name in the lake.
        codec: FFmpeg's name; one of `VIDEO_CODECS` or `IMAGE_CODECS`.
        height, width: in pixels.
        channels: 1 or 3.
        pix_fmt: FFmpeg's name.
        is_depth: whether pixels are distances.
    """

    key: str
    name: str
    codec: str
    height: int
    width: int
    channels: int
    pix_fmt: str
    is_depth: bool

    @property
    def is_video(self) -> bool:
        """Whether it goes into video files."""
        return self.codec in VIDEO_CODECS

    def declared(self, fps: float) -> dict[str, Any]:
        """Its entry of `info.json`."""
        info: dict[str, Any] = {"is_depth_map": self.is_depth}
        if self.is_video:
            info = {
                "video.height": self.height,
                "video.width": self.width,
                "video.codec": self.codec,
                "video.pix_fmt": self.pix_fmt,
                "video.is_depth_map": self.is_depth,
                "video.fps": fps,
                "video.channels": self.channels,
                "has_audio": False,
                **info,
            }
        return {
            "dtype": "video" if self.is_video else "image",
            "shape": [self.height, self.width, self.channels],
            "names": ["height", "width", "channels"],
            "info": info,
        }


@dataclass(frozen=True, kw_only=True)
class Schema:
    """What all episodes of a dataset share.

    Attributes:
        fps: steps per second.
        robot_type: embodiment.
        columns: of the data files, pictures left out, in order.
        cameras: in order.
        modality: content of GR00T's `modality.json`, "" for none.
    """

    fps: float
    robot_type: str
    columns: tuple[Column, ...]
    cameras: tuple[Camera, ...] = ()
    modality: str = field(default="")

    @property
    def fps_number(self) -> int | float:
        """The rate as LeRobot writes it, whole where it is whole."""
        return int(self.fps) if self.fps.is_integer() else self.fps

    @property
    def videos(self) -> tuple[Camera, ...]:
        """Cameras in video files."""
        return tuple(camera for camera in self.cameras if camera.is_video)

    @property
    def pictures(self) -> tuple[Camera, ...]:
        """Cameras whose pictures are in the rows."""
        return tuple(camera for camera in self.cameras if not camera.is_video)

    def parts(self) -> list[Column | Camera]:
        """Columns and cameras in the order of `info.json`: cameras before the index columns."""
        keys = [column.key in INDEX_COLUMNS for column in self.columns]
        at = keys.index(True)
        return [*self.columns[:at], *self.cameras, *self.columns[at:]]

    def declared(self) -> dict[str, Any]:
        """`features` of `info.json`."""
        fps = self.fps_number
        return {
            part.key: part.declared() if isinstance(part, Column) else part.declared(fps)
            for part in self.parts()
        }


def column_of(feature: FeatureSpec, key: str) -> Column:
    """The column of a feature.

    Raises:
        UnfitError: `unfit-shape`, `unfit-text`.
    """
    # One element per step is a scalar to LeRobot, as a list of one it does not load.
    shape = () if feature.shape == (1,) else feature.shape
    if len(shape) > _MAX_DIMENSIONS or 0 in shape:
        raise UnfitError(
            f"shape {list(shape)}: LeRobot has 1 to {_MAX_DIMENSIONS} dimensions, none of them"
            " empty",
            reason="unfit-shape",
            stream=feature.name,
        )
    if feature.dtype == "string" and (shape or key.startswith("language_")):
        raise UnfitError(
            "several texts per step, or a nested language column, which the lake holds as JSON"
            " text: LeRobot does not load either",
            reason="unfit-text",
            stream=feature.name,
        )
    return Column(key=key, name=feature.name, dtype=feature.dtype, shape=shape, names=feature.names)


def with_index_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns with the five that every dataset has, which stay where they are if there."""
    there = {column.key: column for column in columns}
    made = [_index_column(key, there.get(key)) for key in INDEX_COLUMNS]
    own = {column.key: column for column in made}
    return (
        *(own.get(column.key, column) for column in columns),
        *(column for column in made if column.key not in there),
    )


def _index_column(key: str, stored: Column | None) -> Column:
    if key != "timestamp":
        return Column(key=key, name="", dtype="int64")
    # Stored times are kept in their own type.
    is_float = stored is not None and stored.dtype in {"float32", "float64"} and not stored.shape
    if stored is not None and is_float:
        return Column(key=key, name=stored.name, dtype=stored.dtype)
    return Column(key=key, name="", dtype="float32")


def camera_of(camera: CameraSpec, index: VideoIndex, key: str, version: Version) -> Camera:
    """A camera as LeRobot can hold it.

    Raises:
        UnfitError: `unfit-codec`, `unfit-depth`, `unfit-pixels`, `rotated`.
    """

    def unfit(reason: str, detail: str) -> UnfitError:
        return UnfitError(detail, reason=reason, stream=camera.name)

    is_video = index.codec in VIDEO_CODECS
    if not is_video and index.codec not in IMAGE_CODECS:
        raise unfit(
            "unfit-codec",
            f"{index.codec} video: packets are copied, never encoded anew, and an export takes"
            f" {', '.join(VIDEO_CODECS)}, and pictures as {' and '.join(IMAGE_CODECS)}; record or"
            " convert the source in one of them, or leave the camera out",
        )
    if index.rotation_deg:
        raise unfit(
            "rotated",
            f"its container says to turn pictures by {index.rotation_deg} degrees, which LeRobot"
            " would not do; turn the source, or leave the camera out",
        )
    channels = _channels(index.pix_fmt)
    is_gray16 = index.pix_fmt in _DEPTH_FORMATS
    if camera.is_depth and (is_video or not is_gray16):
        raise unfit(
            "unfit-depth",
            f"depth as {index.codec} {index.pix_fmt}: LeRobot takes 16-bit PNG, and depth video"
            " only with the scale that it was encoded by; leave the camera out",
        )
    if is_gray16 and version == "2.1":
        raise unfit(
            "unfit-depth",
            "16-bit pictures overflow in the readers of LeRobot v2.1; export as lerobot-v3.0, or"
            " leave the camera out",
        )
    if is_video and index.pix_fmt == "gray":
        channels = 3  # that is what video decodes to
    if channels not in {1, 3} or (is_video and channels != 3):
        raise unfit(
            "unfit-pixels",
            f"{index.pix_fmt} has {channels} channels, LeRobot takes 1 or 3; leave the camera out",
        )
    return Camera(
        key=key,
        name=camera.name,
        codec=index.codec,
        height=index.height,
        width=index.width,
        channels=channels,
        pix_fmt=index.pix_fmt,
        is_depth=camera.is_depth or is_gray16,
    )


def _channels(pix_fmt: str) -> int:
    """Channels of a picture, 0 where they are not in its pixels, as with a palette."""
    try:
        layout = av.VideoFormat(pix_fmt)
    except ValueError:
        return 0
    return 0 if layout.has_palette else len(layout.components)

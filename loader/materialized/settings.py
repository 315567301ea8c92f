"""What a set of materialised packs holds: the recorded packets, or pictures encoded anew."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self, cast, get_args

from loader.errors import LoaderError

Codec = Literal["copy", "h264", "mjpeg", "png"]

_DEFAULT_QUALITY: Final = {"h264": 18, "mjpeg": 3}
_QUALITIES: Final = {"h264": range(52), "mjpeg": range(2, 32)}
_NAME: Final = re.compile(r"(?:(\d+)x(\d+)-)?([a-z0-9]+?)(?:-q(\d+))?")


@dataclass(frozen=True, kw_only=True)
class MaterializedSettings:
    """How the pictures of a set are kept; a plan has at most one set of the same settings.

    Attributes:
        codec: `copy` keeps the recorded packets, so that batches equal those read from the
            episodes, bit for bit. `png` encodes pictures without loss, `h264` and `mjpeg` with.
        image_size: (height, width) to which pictures are scaled before they are encoded, by the
            loader's own scaler; None keeps their sizes. Not with `copy`.
        quality: of `h264` libx264's crf (0..51), of `mjpeg` FFmpeg's quantiser scale (2..31); less
            is better. None means 18 and 3.

    Raises:
        LoaderError: settings that do not go together.
    """

    codec: Codec = "copy"
    image_size: tuple[int, int] | None = None
    quality: int | None = None

    def __post_init__(self) -> None:
        if self.codec not in get_args(Codec):
            raise LoaderError(f"codec={self.codec!r}: use one of {', '.join(get_args(Codec))}")
        if self.codec == "copy" and self.image_size is not None:
            raise LoaderError(
                "codec='copy' keeps the packets, and packets cannot be scaled: name a codec to"
                " encode pictures of another size"
            )
        if self.image_size is not None and min(self.image_size) < 1:
            raise LoaderError(f"image_size={self.image_size}: (height, width), at least 1 pixel")
        allowed = _QUALITIES.get(self.codec)
        if allowed is None:
            if self.quality is not None:
                raise LoaderError(f"codec={self.codec!r} is without loss: it has no quality")
            return
        if self.quality is None:
            object.__setattr__(self, "quality", _DEFAULT_QUALITY[self.codec])
        elif self.quality not in allowed:
            raise LoaderError(
                f"quality={self.quality}: {self.codec} takes {allowed[0]}..{allowed[-1]}"
            )

    @property
    def name(self) -> str:
        """Names the set, such as `copy` or `224x224-h264-q18` (height x width)."""
        size = [f"{self.image_size[0]}x{self.image_size[1]}"] if self.image_size else []
        quality = [] if self.quality is None else [f"q{self.quality}"]
        return "-".join([*size, self.codec, *quality])

    def image_size_for(self, wanted: tuple[int, int] | None) -> tuple[int, int] | None:
        """The size in which a loader that asks for `wanted` delivers the pictures of this set.

        Raises:
            LoaderError: they were scaled to another size already.
        """
        if self.image_size is None or wanted in {None, self.image_size}:
            return self.image_size or wanted
        raise LoaderError(
            f"materialised packs {self.name}: their pictures are of size {self.image_size}, not"
            f" {wanted}: leave image_size out, or materialise packs of that size"
        )

    @property
    def command_options(self) -> str:
        """The options of `headrace plan materialize` that make this set."""
        options = "" if self.codec == "copy" else f" --codec {self.codec}"
        if self.image_size is not None:
            options += f" --image-size {self.image_size[0]}x{self.image_size[1]}"
        return options if self.quality is None else f"{options} --quality {self.quality}"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def from_name(cls, name: str) -> Self:
        """The settings whose `name` this is.

        Raises:
            LoaderError: there are none.
        """
        if found := _NAME.fullmatch(name):
            height, width, codec, quality = found.groups()
            with suppress(LoaderError):
                settings = cls(
                    codec=cast("Codec", codec),  # what it is not, is refused
                    image_size=(int(height), int(width)) if height else None,
                    quality=int(quality) if quality else None,
                )
                if settings.name == name:
                    return settings
        raise LoaderError(
            f"{name!r} names no materialised packs: names are like 'copy' or '224x224-h264-q18'"
        )

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`, also after a detour over JSON."""
        size = raw["image_size"]
        return cls(**{**raw, "image_size": None if size is None else (int(size[0]), int(size[1]))})

"""What is refused of a loader's arguments, each with what to do instead."""

from collections.abc import Sequence
from typing import Final

from loader.errors import LoaderError

_SMALLEST_BUFFER: Final = 1 << 20


def check_arguments(
    *,
    process: str,
    decode_threads: int,
    num_workers: int,
    buffer_bytes: int,
    image_size: object,
    image_format: str,
    framework: str,
    decode_device: str | None,
    max_bad_share: float,
    log_every_s: float | None,
) -> None:
    """Check the arguments of `PackLoader` that no plan is needed for.

    Raises:
        LoaderError: one of them is not usable, alone or with another.
    """
    _check_choice(process, ("child", "inline"), "process")
    _check_choice(image_format, ("rgb", "yuv"), "image_format")
    _check_choice(framework, ("torch", "numpy"), "framework")
    if decode_threads < 1 or (decode_device is not None and decode_threads > 1):
        raise LoaderError(
            f"decode_threads={decode_threads} with decode_device={decode_device!r}: at least 1,"
            " more than 1 only with decode_device=None"
        )
    if num_workers < 1 or (process == "inline" and num_workers > 1):
        raise LoaderError(
            f"num_workers={num_workers} with process={process!r}: at least 1, more than 1 only with"
            " process='child'"
        )
    if buffer_bytes < _SMALLEST_BUFFER:
        raise LoaderError(f"buffer_bytes={buffer_bytes}: at least {_SMALLEST_BUFFER} is needed")
    if image_size is not None and not _is_size(image_size):
        raise LoaderError(f"image_size={image_size}: (height, width) in pixels, at least 1")
    if not 0 <= max_bad_share <= 1:
        raise LoaderError(f"max_bad_share={max_bad_share}: a share from 0 to 1")
    if log_every_s is not None and not log_every_s > 0:
        raise LoaderError(f"log_every_s={log_every_s}: seconds, more than 0, or None for no lines")
    if decode_device is not None:
        _check_decode_device(decode_device, process, image_format, framework)


def _check_decode_device(device: str, process: str, image_format: str, framework: str) -> None:
    what = f"decode_device={device!r}"
    if framework != "torch":
        raise LoaderError(f"{what}: its pictures are tensors, so use framework='torch'")
    if process != "inline":
        raise LoaderError(
            f"{what}: the device is the trainer's process's, so use process='inline'; packets are"
            " read ahead there too"
        )
    if image_format != "rgb":
        raise LoaderError(
            f"{what}: torchcodec gives RGB alone, so use image_format='rgb', or decode with PyAV"
        )
    # Torch is imported only here, where its device is asked for.
    from loader.decode.torchcodec_frames import check_device  # noqa: PLC0415

    check_device(device)


def _is_size(value: object) -> bool:
    """Whether a value is what `image_size` asks for: a single number is easily given."""
    return (
        isinstance(value, Sequence)
        and len(value) == 2
        and all(isinstance(pixels, int) and pixels >= 1 for pixels in value)
    )


def _check_choice(value: str, known: tuple[str, ...], name: str) -> None:
    if value not in known:
        raise LoaderError(f"{name}={value!r}: use one of {', '.join(known)}")

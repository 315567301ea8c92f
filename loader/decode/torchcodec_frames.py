"""Frames decoded by torchcodec, on a GPU's video engine (NVDEC) or the CPU, as tensors.

What pixels are is defined by PyAV (`lake.pixels`). On the CPU and unscaled, torchcodec gives the
same bytes. Scaled pictures are near them: the filter is the same, but it comes after the conversion
to RGB, not before. A GPU's own conversion to RGB is near as well; how near is not known here.

Torchcodec opens files, so each run becomes one in memory (`loader.decode.run_container`).
"""

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from lake.errors import VideoError
from lake.video_index import VideoIndex
from lake.video_runs import DecodeRun
from loader.assembly.shape import BatchShape
from loader.decode.area_scale import scaled
from loader.decode.run_container import TICK, run_as_file
from loader.errors import LoaderError
from loader.observe.metrics import LoaderMetrics


def check_device(device: str) -> torch.device:
    """The device, where it can decode.

    Raises:
        LoaderError: torch has no such device, or torchcodec cannot be used.
    """
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise LoaderError(
            f"decode_device={device!r}: no device of torch; use 'cuda' or 'cpu'"
        ) from error
    if found.type not in {"cuda", "cpu"}:
        raise LoaderError(f"decode_device={device!r}: torchcodec decodes on 'cuda' or 'cpu'")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise LoaderError(
            f"decode_device={device!r}: torch {torch.__version__} sees no CUDA device; leave it out"
            " to decode with PyAV"
        )
    video_decoder()
    return found


def video_decoder() -> Any:  # noqa: ANN401  # a class of an optional library
    """`torchcodec.decoders.VideoDecoder`.

    Raises:
        LoaderError: torchcodec is not installed, or does not work beside this torch and FFmpeg.
    """
    try:
        return importlib.import_module("torchcodec.decoders").VideoDecoder
    except ModuleNotFoundError as error:
        raise LoaderError(
            "decode_device needs torchcodec, which is not installed: pip install"
            " 'headrace[gpu-decode]', or leave decode_device out to decode with PyAV"
        ) from error
    except (ImportError, OSError, RuntimeError) as error:
        raise LoaderError(
            f"torchcodec cannot be loaded beside torch {torch.__version__}"
            f" ({str(error).strip().splitlines()[0]}): it needs a torch of its own kind (CUDA or"
            " CPU) and FFmpeg's shared libraries; or leave decode_device out to decode with PyAV"
        ) from error


class TorchcodecFrames:
    """Decodes runs to tensors [3, height, width] on a device; see `loader.decode.decode_frames`.

    Args:
        shape: whose pictures are to be made, as RGB.
        device: where to decode, such as `cuda` or `cpu`.
        metrics: where `cpu_decoded_runs` are counted: those that a GPU cannot decode.

    Raises:
        LoaderError: there is no such device, or torchcodec cannot be used.
    """

    def __init__(self, shape: BatchShape, device: str, metrics: LoaderMetrics) -> None:
        self._device = check_device(device)
        self._open = video_decoder()
        self._size = shape.image_size
        self._metrics = metrics

    def decode(
        self, index: VideoIndex, run: DecodeRun, data: bytes | memoryview
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """The wanted frames of a run with their display ordinals, in ascending order.

        Args:
            index: the camera.
            run: as `decode_runs` made it for this index.
            data: the bytes of its packets, verified.

        Raises:
            VideoError: the packets cannot be decoded, or a wanted frame is left out.
        """
        packets = f"packets {run.first_packet}..{run.stop_packet - 1} ({index.codec})"
        shown = np.sort(index.packet_frame[run.first_packet : run.stop_packet])
        places = np.searchsorted(shown, run.frames)
        file = run_as_file(index, run, data)
        try:
            decoder = self._open(file, device=self._device, num_ffmpeg_threads=1)
            first_s = decoder.metadata.begin_stream_seconds_from_content
            frames = decoder.get_frames_at(places.tolist())
        except (RuntimeError, ValueError, IndexError) as error:
            raise VideoError(
                f"{packets}: torchcodec failed ({error}); decode this camera with PyAV"
                " (decode_device=None)"
            ) from error
        found = np.rint((frames.pts_seconds.numpy() - first_s) / float(TICK))
        if not np.array_equal(found, places):
            raise VideoError(f"{packets}: torchcodec left out frames of {run.frames.tolist()}")
        if self._device.type == "cuda" and decoder.cpu_fallback:
            self._metrics.add(cpu_decoded_runs=1)
        return zip(run.frames.tolist(), self._in_size(frames.data), strict=True)

    def allocate(self, shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
        """Memory for the buckets of a batch, uint8 of the given shapes, on the device."""
        return [torch.empty(shape, dtype=torch.uint8, device=self._device) for shape in shapes]

    def show(self, frame: torch.Tensor, out: torch.Tensor) -> None:
        """Copy a frame to `out`, uint8 [3, height, width]."""
        out.copy_(frame)

    def _in_size(self, frames: torch.Tensor) -> torch.Tensor:
        """uint8 [n, 3, height, width] in the size of the batch."""
        return frames if self._size is None else scaled(frames, self._size)

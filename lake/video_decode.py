"""Decoding runs of packets with decoders that are kept."""

from collections import OrderedDict
from collections.abc import Iterator

import av
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from lake.errors import CorruptDataError, VideoError
from lake.video_index import VideoIndex
from lake.video_runs import DecodeRun, verify_packets

# FFmpeg's own `av1` needs hardware.
_DECODERS = {"av1": "libdav1d"}
_KEPT = 8

_Key = tuple[str, int, int, str, bytes]


class FrameDecoder:
    """Decodes runs of any camera, one thread, reusing the decoders of the last few kinds of stream.

    Not for use from several threads at once; several runs may be open at the same time.
    """

    def __init__(self) -> None:
        self._idle: OrderedDict[_Key, VideoCodecContext] = OrderedDict()

    def decode(
        self,
        index: VideoIndex,
        run: DecodeRun,
        data: bytes | memoryview,
        *,
        verified: bool = False,
    ) -> Iterator[tuple[int, VideoFrame]]:
        """The wanted frames of a run with their display ordinals, in ascending order.

        Every packet is checked before any is decoded; decoding stops at the last wanted frame. A
        frame's pixels stay valid after the next one is asked for.

        Args:
            index: the camera.
            run: as `decode_runs` made it for this index.
            data: exactly the bytes of packets [run.first_packet, run.stop_packet).
            verified: the caller has checked these bytes against the index.

        Raises:
            CorruptDataError: `data` does not match the checksums or lengths of the index.
            VideoError: the decoder refuses a packet or leaves out a wanted frame.
        """
        sizes = index.packet_size[run.first_packet : run.stop_packet].tolist()
        view = memoryview(data)
        if sum(sizes) != len(view):
            raise CorruptDataError(
                f"video packets {run.first_packet}..{run.stop_packet - 1} have {sum(sizes)} bytes,"
                f" got {len(view)}"
            )
        if not verified:
            verify_packets(index, run.first_packet, view, run.stop_packet)
        return self._frames(index, run, sizes, view)

    def _frames(
        self, index: VideoIndex, run: DecodeRun, sizes: list[int], view: memoryview
    ) -> Iterator[tuple[int, VideoFrame]]:
        missing = set(run.frames.tolist())
        key = (index.codec, index.width, index.height, index.pix_fmt, index.extradata)
        decoder = self._idle.pop(key, None) or _open_decoder(index)
        try:
            for frame in _decoded(decoder, index, run, sizes, view):
                ordinal = frame.pts
                if ordinal is not None and ordinal in missing:
                    missing.discard(ordinal)
                    yield ordinal, frame
                    if not missing:
                        break
        except av.error.FFmpegError as error:
            raise VideoError(
                f"packets {run.first_packet}..{run.stop_packet - 1} ({index.codec}): the decoder"
                f" failed ({error.strerror or error})"
            ) from error
        finally:
            decoder.flush_buffers()
            self._idle[key] = decoder
            if len(self._idle) > _KEPT:
                self._idle.popitem(last=False)
        if missing:
            raise VideoError(
                f"packets {run.first_packet}..{run.stop_packet - 1} ({index.codec}): the decoder"
                f" left out frame {min(missing)} ({len(missing)} of {len(run.frames)} are missing)"
            )


def _decoded(
    decoder: VideoCodecContext,
    index: VideoIndex,
    run: DecodeRun,
    sizes: list[int],
    view: memoryview,
) -> Iterator[VideoFrame]:
    """Every frame the decoder puts out for a run; a frame's pts is its packet's ordinal."""
    at = 0
    ordinals = index.packet_frame[run.first_packet : run.stop_packet].tolist()
    keys = index.packet_key[run.first_packet : run.stop_packet].tolist()
    for size, ordinal, key in zip(sizes, ordinals, keys, strict=True):
        packet = av.Packet(view[at : at + size])  # type: ignore[arg-type]  # any buffer will do
        packet.pts = ordinal
        packet.is_keyframe = key  # without it the PNG decoder blends with the picture before
        at += size
        yield from decoder.decode(packet)
    yield from decoder.decode(None)


def _open_decoder(index: VideoIndex) -> VideoCodecContext:
    name = _DECODERS.get(index.codec, index.codec)
    try:
        decoder = av.CodecContext.create(name, "r")
    except av.codec.codec.UnknownCodecError as error:
        raise VideoError(f"no decoder for codec {index.codec!r} in this FFmpeg build") from error
    if not isinstance(decoder, VideoCodecContext):
        raise VideoError(f"codec {index.codec!r} is not a video codec")
    decoder.thread_count = 1
    decoder.extradata = index.extradata or None
    decoder.width, decoder.height = index.width, index.height  # some codecs carry no size
    return decoder

"""A run of packets as a file: every packet as it was, every frame in its turn."""

import io
from dataclasses import replace
from typing import Any

import av
import numpy as np
import pytest

from lake import CameraVideo
from lake.errors import VideoError
from lake.video_decode import FrameDecoder
from lake.video_runs import DecodeRun, RunTable
from loader.decode.run_container import TICK, run_as_file
from tests.loader.decode.coded_clips import ENCODERS, coded_clip
from tests.loader.video_kinds import bframe_video


def _runs(video: CameraVideo, frames: list[int]) -> list[tuple[DecodeRun, bytes]]:
    offsets = video.index.packet_offsets()
    return [
        (run, bytes(video.payload[offsets[run.first_packet] : offsets[run.stop_packet]]))
        for run in RunTable.of(video.index).runs(frames)
    ]


def _opened(file: bytes) -> Any:
    return av.open(io.BytesIO(file))


@pytest.mark.parametrize("codec", [*ENCODERS, "open groups"])
def test_the_frames_of_the_file_are_those_of_the_run(codec: str) -> None:
    """In any order of packets, of gaps between ordinals, and after pictures before their key."""
    video = bframe_video(30) if codec == "open groups" else coded_clip(codec)
    index, checked = video.index, 0
    for run, data in _runs(video, [2, 3, 14, 17, 23]):
        wanted = dict(FrameDecoder().decode(index, run, data))
        shown = np.sort(index.packet_frame[run.first_packet : run.stop_packet]).tolist()
        with _opened(run_as_file(index, run, data)) as container:
            assert container.streams.video[0].codec.canonical_name == index.codec
            stamps = [packet.pts * packet.time_base for packet in container.demux() if packet.size]
        with _opened(run_as_file(index, run, data)) as container:
            frames = {frame.pts * frame.time_base: frame for frame in container.decode(video=0)}
        assert [(stamp - min(stamps)) / TICK for stamp in sorted(stamps)] == list(range(len(shown)))
        for ordinal, frame in wanted.items():
            again = frames[min(stamps) + shown.index(ordinal) * TICK]
            assert np.array_equal(again.to_ndarray(), frame.to_ndarray())
            checked += 1
    assert checked == 5


def test_a_header_out_of_band_goes_before_key_packets() -> None:
    video = coded_clip("mpeg4", header=True)
    assert video.index.extradata
    assert not bytes(video.payload).startswith(video.index.extradata)
    (run, data) = _runs(video, [0, 1, 12])[0]
    with _opened(run_as_file(video.index, run, data)) as container:
        packets = [bytes(packet) for packet in container.demux() if packet.size]
        container.seek(0)
        frames = sum(1 for _ in container.decode(video=0))
    assert packets[0].startswith(video.index.extradata)
    assert not packets[1].startswith(video.index.extradata)
    assert frames == len(packets)


def test_other_codecs_are_refused() -> None:
    video = coded_clip("png", 2)
    index = replace(video.index, codec="ffv1", extradata=b"header")
    (run, data) = _runs(video, [0])[0]
    with pytest.raises(VideoError, match=r"ffv1 need headers.*decode_device=None"):
        run_as_file(index, run, data)

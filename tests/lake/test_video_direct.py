"""Packets read by position are the demuxer's; those a position does not lead to are demuxed."""

from pathlib import Path

import av
import numpy as np
import pytest
from av.bitstream import BitStreamFilterContext

from lake.errors import VideoError
from lake.video_file import VideoFile
from tests.lake.video_clips import pictures, plain_decode, shows, steps, write_clip


def _nals(data: bytes) -> list[bytes]:
    """NALs of an Annex-B stream, whatever the length of its start codes."""
    return [part.rstrip(b"\0") for part in data.split(b"\0\0\1") if part.rstrip(b"\0")]


@pytest.mark.parametrize("codec", ["libsvtav1", "mpeg4", "mjpeg", "libvpx-vp9"])
def test_packets_of_other_codecs_are_the_same_bytes(tmp_path: Path, codec: str) -> None:
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    path = write_clip(tmp_path / "clip.mp4", codec, {"g": "8"}, pix_fmt=pix_fmt)
    with av.open(str(path)) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    with VideoFile(path) as file:
        assert file._reader._direct is not None
        cut = file.cut(0, 40, steps(40))
    assert bytes(cut.payload) == b"".join(packets)
    assert cut.index.packet_size.tolist() == [len(packet) for packet in packets]


@pytest.mark.parametrize(
    ("codec", "options", "name"),
    [
        ("libx264", {"g": "8", "bf": "2", "x264-params": "slices=4:aud=1"}, "h264_mp4toannexb"),
        ("libx265", {"x265-params": "keyint=8:bframes=2:slices=2"}, "hevc_mp4toannexb"),
    ],
)
def test_start_codes_are_what_ffmpeg_writes(
    tmp_path: Path, codec: str, options: dict[str, str], name: str
) -> None:
    path = write_clip(tmp_path / "clip.mp4", codec, options, size=(128, 128))
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        convert = BitStreamFilterContext(name, stream)
        expected = [
            _nals(bytes(part))
            for packet in container.demux(stream)
            if packet.size
            for part in convert.filter(packet)
        ]
    with VideoFile(path) as file:
        assert file._reader._direct is not None
        cut = file.cut(0, 40, steps(40))
    offsets = cut.index.packet_offsets()
    assert any(len(nals) >= 3 for nals in expected)
    for number, nals in enumerate(expected):
        found = _nals(bytes(cut.payload[offsets[number] : offsets[number + 1]]))
        sets = [nal for nal in found if nal not in nals]
        assert sets == [], "nothing but what FFmpeg writes"
        assert [nal for nal in found if nal in nals] != []
        assert sorted(found) == sorted(nals)


def test_a_file_whose_sound_lies_between_the_pictures(tmp_path: Path) -> None:
    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=30, options={"g": "5", "bf": "2"})
        sound = container.add_stream("aac", rate=16000)
        assert isinstance(video, av.VideoStream)
        assert isinstance(sound, av.AudioStream)
        video.height, video.width, video.pix_fmt = 48, 64, "yuv420p"
        for number, picture in enumerate(pictures(40, 48, 64)):
            container.mux(video.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            noise = np.random.default_rng(number).normal(size=(1, 1024)).astype(np.float32)
            samples = av.AudioFrame.from_ndarray(noise, "fltp", "mono")
            samples.sample_rate = 16000
            container.mux(sound.encode(samples))
        container.mux(video.encode(None))
        container.mux(sound.encode(None))
    truth = plain_decode(path)
    with VideoFile(path) as file:
        assert file._reader._direct is not None
        position, size = file._reader.table.position, file._reader.table.size
        assert (position[1:] != position[:-1] + size[:-1]).any(), "the clip must be interleaved"
        assert shows(file.cut(7, 25, steps(25)), range(25)) == truth[7:32]


def test_lengths_that_do_not_add_up(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", "libx264", {"g": "8"})
    with VideoFile(path) as file:
        position = int(file._reader.table.position[9])
    data = bytearray(path.read_bytes())
    data[position : position + 4] = (1 << 20).to_bytes(4, "big")
    path.write_bytes(data)
    with VideoFile(path) as file:
        file.cut(0, 8, steps(8))
        with pytest.raises(VideoError, match=r"clip\.mp4: NAL lengths of packets 8\.\.15"):
            file.cut(8, 8, steps(8))


@pytest.mark.parametrize("box", [b"avcC", b"hvcC"])
def test_parameter_sets_that_cannot_be_read_are_left_to_ffmpeg(tmp_path: Path, box: bytes) -> None:
    codec = "libx264" if box == b"avcC" else "libx265"
    path = write_clip(tmp_path / "clip.mp4", codec, {"g": "8"}, count=8)
    data = bytearray(path.read_bytes())
    at = data.index(box) + 4
    count = at + (5 if box == b"avcC" else 22)
    data[count] |= 0x1F  # announces more sets than there are
    path.write_bytes(data)
    try:
        with VideoFile(path) as file:
            assert file._reader._direct is None
    except VideoError as error:
        assert str(path) in str(error)  # noqa: PT017  # FFmpeg may refuse it as well


def test_only_mp4_is_read_by_position(tmp_path: Path) -> None:
    for name in ("clip.mkv", "clip.avi"):
        with VideoFile(write_clip(tmp_path / name, "mpeg4", count=3)) as file:
            assert file._reader._direct is None

"""Bytes that frames need: each packet once in an epoch."""

import numpy as np
import pytest

from loader.fetch.episodes import CameraStream
from loader.fetch.needed_bytes import NeededBytes
from tests.loader.scenes import coded_video

_FRAMES, _GOP = 20, 4


def _stream(seed: int) -> CameraStream:
    video = coded_video(seed, _FRAMES, gop=_GOP)
    return CameraStream(
        episode=seed, camera=0, label="", address=0, base_offset=0, index=video.index
    )


def _add(needed: NeededBytes, stream: CameraStream, frames: list[int], epoch: int = 0) -> int:
    return needed.add(stream, stream.runs.runs(frames), epoch)


def _bytes(stream: CameraStream, packets: range) -> int:
    return int(stream.index.packet_size[packets.start : packets.stop].sum())


@pytest.mark.parametrize(
    ("asked", "packets"),
    [
        ([[1]], [range(2)]),
        ([[1], [1]], [range(2), range(0)]),
        ([[1], [3], [2]], [range(2), range(2, 4), range(0)]),
        ([[3, 4, 5]], [range(6)]),  # two groups that touch: one run
        ([[3, 4, 5], [5], [7]], [range(6), range(0), range(6, 8)]),
        ([[5], [3, 4, 7]], [range(4, 6), None]),
    ],
)
def test_each_packet_counts_when_it_is_needed_first(
    asked: list[list[int]], packets: list[range | None]
) -> None:
    stream, needed = _stream(0), NeededBytes()
    for frames, fresh in zip(asked, packets, strict=True):
        expected = (
            _bytes(stream, range(4)) + _bytes(stream, range(6, 8))
            if fresh is None
            else _bytes(stream, fresh)
        )
        assert _add(needed, stream, frames) == expected


def test_random_requests_add_up_to_the_packets_that_were_touched() -> None:
    streams = [_stream(seed) for seed in range(3)]
    draw = np.random.default_rng(0)
    for epoch in range(3):
        needed, touched, total = NeededBytes(), [set[int]() for _ in streams], 0
        for _ in range(40):
            number = int(draw.integers(3))
            frames = draw.integers(0, _FRAMES, 4).tolist()
            for frame in frames:
                touched[number].update(range(frame // _GOP * _GOP, frame + 1))
            total += _add(needed, streams[number], frames, epoch)
        assert total == sum(
            int(stream.index.packet_size[sorted(packets)].sum())
            for stream, packets in zip(streams, touched, strict=True)
        )


def test_every_epoch_needs_them_anew() -> None:
    stream, needed = _stream(1), NeededBytes()
    for epoch in range(3):
        assert _add(needed, stream, [6], epoch) == _bytes(stream, range(4, 7))
        assert _add(needed, stream, [6], epoch) == 0

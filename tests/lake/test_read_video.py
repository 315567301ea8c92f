"""Byte ranges of video: in order, exact, never past the end."""

import numpy as np
import pytest

from lake import ByteRange, Episode, Lake, read_ranges, read_video_indexes
from lake.errors import LakeError
from lake.transient import is_transient
from tests.lake.addresses import addresses_of


def test_ranges_come_in_order_and_repeat(lake: Lake, episodes: list[Episode]) -> None:
    addresses = addresses_of(lake)
    rng = np.random.default_rng(3)
    ranges, wanted = [], []
    for _ in range(60):
        episode = episodes[int(rng.choice([0, 1, 2, 4]))]
        whole = b"".join(bytes(video.payload) for video in episode.cameras.values())
        start, stop = np.sort(rng.integers(0, len(whole) + 1, 2)).tolist()
        ranges.append(ByteRange(addresses[episode.episode_id], start, stop - start))
        wanted.append(whole[start:stop])
    assert read_ranges(lake, ranges) == wanted
    assert read_ranges(lake, []) == []


def test_a_range_past_the_end_is_an_error(lake: Lake, episodes: list[Episode]) -> None:
    address = addresses_of(lake)[episodes[0].episode_id]
    size = sum(video.index.num_bytes for video in episodes[0].cameras.values())
    assert len(read_ranges(lake, [ByteRange(address, 0, size)])[0]) == size
    with pytest.raises(LakeError, match="exceeds blob size"):
        read_ranges(lake, [ByteRange(address, 1, size)])


@pytest.mark.parametrize("given", [b"", b"ab", b"abcd", None])
def test_what_came_short_is_an_error_that_may_pass(
    lake: Lake, episodes: list[Episode], monkeypatch: pytest.MonkeyPatch, given: bytes | None
) -> None:
    address = addresses_of(lake)[episodes[0].episode_id]

    class Short:
        def read_blob_ranges(self, *_: object, **__: object) -> list[tuple[int, int, bytes | None]]:
            return [(0, 0, given)]

    monkeypatch.setattr(lake, "dataset", lambda _: Short())
    with pytest.raises(LakeError, match=r"incomplete: . bytes came where 3 were") as error:
        read_ranges(lake, [ByteRange(address, 0, 3)])
    assert is_transient("s3://bucket/x.lake", error.value)


def test_camera_offsets_lead_to_each_payload(lake: Lake, episodes: list[Episode]) -> None:
    addresses = addresses_of(lake)
    found = read_video_indexes(lake, list(addresses.values()))
    for videos, episode in zip(found, episodes, strict=True):
        assert videos.episode_id == episode.episode_id
        assert list(videos.cameras) == list(episode.cameras)
        for name, index in videos.cameras.items():
            wanted = ByteRange(videos.address, videos.base_offsets[name], index.num_bytes)
            assert read_ranges(lake, [wanted]) == [episode.cameras[name].payload]

"""Decodings of hand-made packs: when, how many bytes, what is kept."""

import numpy as np
import pytest

from packing.storage.packs import ReadPacks
from packing.storage.video import Decoding, Shown, decode_groups, read_packets
from tests.packing.storage.hand_made import DECODED_BYTES, FRAME_BYTES, facts_of, one_reader


def _decode(
    shown: list[tuple[int, int, int]],
    packs: ReadPacks,
    *,
    ahead: int = 64,
    room: float = 1.0,
) -> Decoding:
    pack, stream, frame = np.array(shown, np.int64).reshape(-1, 3).T
    return decode_groups(
        Shown(pack=pack, stream=stream, frame=frame),
        facts_of(),
        packs,
        ahead=ahead,
        keep_share=np.full(len(packs.row), room),
    )


def _rows(decoding: Decoding) -> list[tuple[int, int, float, int, int]]:
    """(pack, stream, mean frames read, frames decoded, of them wanted), by pack."""
    sizes = (decoding.size / FRAME_BYTES).tolist()
    columns = (decoding.pack, decoding.stream, sizes, decoding.frames, decoding.wanted)
    return sorted(zip(*(list(map(float, column)) for column in columns), strict=True))


def test_a_group_is_decoded_once_for_all_packs_that_are_known() -> None:
    packs = one_reader(40, cold=False)
    decoding = _decode([(0, 0, 1), (3, 0, 2), (9, 0, 0)], packs)
    assert _rows(decoding) == [(0, 0, 4.0, 3, 3)]  # up to frame 2: a key frame of 2, and 2 more
    assert decoding.begin.tolist() == [0]
    # Frame 2 waits from pack 0 to 3, frame 0 to 9.
    assert decoding.kept_frames.tolist() == [2] * 3 + [1] * 6 + [0] * 31
    assert decoding.kept_bytes.max() == 2 * DECODED_BYTES


def test_a_group_is_decoded_again_for_what_was_not_known() -> None:
    packs = one_reader(40, cold=False)
    shown = [(0, 0, 1), (15, 0, 3), (16, 0, 2), (39, 0, 3)]
    decoding = _decode(shown, packs, ahead=8)
    # From pack 0 as far as 15; at 16 begins a window that knows as far as 31; 39 is another.
    assert _rows(decoding) == [(0, 0, 5.0, 4, 2), (16, 0, 4.0, 3, 1), (39, 0, 5.0, 4, 1)]


def test_the_look_ahead_grows_from_nothing_at_the_begin_of_a_job() -> None:
    shown = [(0, 0, 0), (7, 0, 1), (8, 0, 2), (9, 0, 3)]
    assert _rows(_decode(shown, one_reader(40))) == [(0, 0, 3.0, 2, 2), (8, 0, 5.0, 4, 2)]
    assert _rows(_decode(shown, one_reader(40, cold=False))) == [(0, 0, 5.0, 4, 4)]


def test_a_frame_stays_from_showing_to_showing_though_its_group_would_not() -> None:
    shown = [(pack, 0, 2) for pack in range(0, 40, 10)]
    decoding = _decode(shown, one_reader(40, cold=False), ahead=8)
    assert _rows(decoding) == [(0, 0, 4.0, 3, 1)]
    assert decoding.kept_frames.tolist() == [1] * 30 + [0] * 10


def test_without_room_each_pack_decodes_its_own() -> None:
    shown = [(0, 0, 1), (0, 0, 2), (3, 0, 2), (3, 0, 2), (9, 0, 0)]
    decoding = _decode(shown, one_reader(40, cold=False), room=0.0)
    assert _rows(decoding) == [(0, 0, 4.0, 3, 2), (3, 0, 4.0, 3, 1), (9, 0, 2.0, 1, 1)]
    assert decoding.kept_frames.max() == 0


def test_groups_streams_and_readers_are_apart() -> None:
    packs = one_reader(16, cold=False)
    two = ReadPacks(
        row=packs.row,
        reader=packs.row // 8,
        position=packs.row % 8,
        rank_step=packs.row,
        step=packs.step,
        measured=packs.measured,
        cold=False,
        world_size=1,
        num_workers=1,
        per_step=1,
    )
    shown = [(0, 0, 3), (1, 0, 4), (2, 1, 3), (8, 0, 3)]
    assert _rows(_decode(shown, two)) == [
        (0, 0, 5.0, 4, 1),
        (1, 0, 2.0, 1, 1),
        (2, 1, 5.0, 4, 1),
        (8, 0, 5.0, 4, 1),
    ]
    assert len(_decode(shown, packs).pack) == 3


def test_neighbouring_ranges_of_a_window_are_one_request() -> None:
    packs, facts = one_reader(16, cold=False), facts_of()
    # Groups 0 and 1 of episode 0 are 0 bytes apart, group 20 is 7.4 kB on; then episode 1.
    decoding = _decode([(0, 0, 3), (1, 0, 4), (2, 0, 80), (3, 1, 0), (9, 1, 7)], packs)
    reads = read_packets(decoding, facts, packs, 8)
    assert reads.calls.tolist() == [1] + [0] * 7 + [1] + [0] * 7
    ranges = np.zeros(16)
    ranges[[0, 2, 3, 9]] = 1
    # Rows 0 and 1000 of the descriptors are 29 kB apart: two requests, and one in window 1.
    ranges[0] += 2
    ranges[8] += 1
    assert reads.requests.tolist() == ranges.tolist()
    video = decoding.size.sum()
    described = 3 * (29 + 2 * 29)  # each with what its chunk holds besides, here the column
    # The first group is read a mean frame beyond its end: 100 bytes are read once, not twice.
    assert reads.read_bytes.sum() == pytest.approx(video + described - 100)


def test_nothing_shown() -> None:
    packs, facts = one_reader(3), facts_of(cameras=1)
    decoding = _decode([], packs)
    reads = read_packets(decoding, facts, packs, 8)
    assert (reads.calls.sum(), reads.requests.sum(), reads.read_bytes.sum()) == (0, 0, 0)

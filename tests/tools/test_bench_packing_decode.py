"""The decode model of the packing bench does what the loader's planner of decoding does."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from loader.fetch import fetcher
from loader.fetch.reuse import Reuse
from packing.seeded import random_words
from tools.bench import packing_decode
from tools.bench.packing_data import windows
from tools.bench.packing_decode import look_ahead_packs, simulate
from tools.bench.packing_windows import frontier


class _Stream:
    """One camera of one episode, as far as planning asks."""

    frame_bytes = 1

    def __init__(self, frames: int, gop: int) -> None:
        self.run_starts = [frame // gop * gop for frame in range(frames)]


def _by_the_loader(packs: list[list[int]], stream: _Stream, look_ahead: int) -> tuple[int, int]:
    """Frames decoded and most frames kept, by `Reuse` fed as `Fetcher` feeds it."""
    reuse = Reuse(1 << 40)
    tables = [
        cast("Any", SimpleNamespace(rows={stream: {frame: [0] for frame in pack}}))
        for pack in packs
    ]
    entered = decoded = most = 0
    kept: set[int] = set()
    for at, table in enumerate(tables):
        if at % fetcher.WINDOW_PACKS == 0:
            while entered < min(at + fetcher.WINDOW_PACKS + look_ahead, len(tables)):
                reuse.enter(tables[entered])
                entered += 1
        pictures = reuse.plan(table)
        for frames in pictures.decode.values():
            last = {stream.run_starts[frame]: frame for frame in frames}
            decoded += sum(frame - start + 1 for start, frame in last.items())
        for frames in pictures.keep.values():
            kept.update(frames)
        most = max(most, len(kept))
        for frames in pictures.drop.values():
            kept.difference_update(frames)
    return decoded, most


@pytest.mark.parametrize("look_ahead", [0, 5, 16, 100])
@pytest.mark.parametrize(("slots", "ranks"), [(1, 1), (4, 1), (4, 2), (4, 4)])
def test_frames_decoded_and_kept_are_those_of_the_loader(
    slots: int, ranks: int, look_ahead: int
) -> None:
    frames, gop, per_pack = 480, 7, 5
    shown = np.argsort(np.arange(frames) + random_words(frames, 3) % np.uint64(150)).astype(int)
    slot_row = np.arange(frames) // per_pack
    found = simulate(
        slot_row=slot_row,
        frame=shown,
        key=shown // gop * gop,
        slots=slots,
        ranks=ranks,
        look_ahead=look_ahead,
    )
    decoded, most = 0, []
    for rank in range(ranks):
        packs = [
            shown[slot_row == row].tolist()
            for row in range(frames // per_pack)
            if row % slots % ranks == rank
        ]
        of_rank, kept = _by_the_loader(packs, _Stream(frames, gop), look_ahead)
        decoded += of_rank
        most.append(kept)
    assert found.decoded_per_wanted == pytest.approx(decoded / frames)
    assert found.held_frames == max(most)


def test_looking_ahead_has_the_loader_s_limits() -> None:
    assert packing_decode.MOST_LOOK_AHEAD_PACKS == fetcher._MOST_LOOK_AHEAD_PACKS
    assert packing_decode.MOST_LOOK_AHEAD_IMAGES == fetcher._MOST_LOOK_AHEAD_IMAGES
    assert look_ahead_packs(1, 1, 10.0) == fetcher.WINDOW_PACKS
    assert look_ahead_packs(40, 2, 10.0) == 80
    assert look_ahead_packs(40, 64, 10.0) == 256
    assert look_ahead_packs(40, 64, 1000.0) == 16 - fetcher.WINDOW_PACKS


def test_the_frontier_holds_the_planner_s_choice_and_a_global_shuffle() -> None:
    plans = list(frontier(windows(40), slots=(1, 2), open_runs=(16, 64)))
    assert [(p.order, p.slots, p.open_runs, p.chosen) for p in plans[:4]] == [
        ("runs", 1, 16, False),
        ("runs", 1, 64, False),
        ("runs", 1, 256, True),
        ("shuffled", 1, len(windows(40).spans), False),
    ]
    assert [p.order for p in plans[4:]] == ["runs"] * 3 + ["one lane", "shuffled"]
    assert plans[7].lanes == 1
    assert [set(p.decoding) for p in plans] == [{1}] * 9
    for runs, shuffled in ((plans[:3], plans[3]), (plans[4:7], plans[8])):
        # A frame at random costs half its group of pictures; one of a run is decoded with the run.
        assert all(p.decoding[1].decoded_per_wanted >= 1 for p in runs)
        assert runs[0].decoding[1].decoded_per_wanted < shuffled.decoding[1].decoded_per_wanted
        assert shuffled.shuffle[1] == pytest.approx(1, abs=0.05)

"""BlockShuffle: random, exactly once, alike on every machine, and each run decoded once."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from lake import Lake, create_lake
from lake.writer import EpisodeWriter
from loader import LoaderError, LoaderStateError
from loader.windows.block_shuffle import BlockShuffle
from loader.windows.window import Window
from tests.episodes import make_episode, make_filmed_episode
from tests.loader.windows.window_truth import require_same


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Six episodes of 23 steps, GOP 5."""
    lake = create_lake(tmp_path_factory.mktemp("filmed") / "x.lake")
    with EpisodeWriter(lake) as writer:
        for number in range(6):
            writer.add(make_filmed_episode(number, steps=23))
    lake.refresh()
    return lake


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Window:
    """Forty episodes without cameras, of 30 to 69 steps."""
    lake = create_lake(tmp_path_factory.mktemp("plain") / "x.lake")
    with EpisodeWriter(lake) as writer:
        for number in range(40):
            writer.add(make_episode(number, steps=30 + number))
    lake.refresh()
    return Window(lake, names="canonical", run_steps=8)


def open_window(lake: Lake, **options: Any) -> Window:
    defaults: dict[str, Any] = {"names": "canonical", "image_dtype": "uint8", "run_steps": 5}
    return Window(lake, **{**defaults, **options})


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_every_sample_once_per_epoch_over_all_ranks(
    plain: Window, world_size: int, lanes: int
) -> None:
    ranks = [
        BlockShuffle(plain, 16, lanes=lanes, open_runs=9, rank=r, world_size=world_size)
        for r in range(world_size)
    ]
    assert len({len(rank) for rank in ranks}) == 1
    for _ in range(2):
        parts = [list(rank) for rank in ranks]
        assert [len(part) for part in parts] == [len(ranks[0])] * world_size
        assert {len(batch) for part in parts for batch in part[:-1]} == {16}
        samples = [n for part in parts for batch in part for n in batch]
        assert set(samples) == set(range(len(plain)))
        assert len(samples) == -(-len(plain) // world_size) * world_size


def test_an_order_is_of_its_seed_and_epoch(plain: Window) -> None:
    one, same, other = (BlockShuffle(plain, 16, seed=seed) for seed in (1, 1, 2))
    first, second = list(one), list(one)
    assert first != second
    assert (list(same), list(same)) == (first, second)
    assert list(other) != first
    one.set_epoch(0)
    assert list(one) == first


def test_a_position_is_resumed(plain: Window) -> None:
    whole, interrupted = BlockShuffle(plain, 16), BlockShuffle(plain, 16)
    first, second = list(whole), list(whole)
    batches = iter(interrupted)
    begun = [next(batches) for _ in range(7)]
    state = interrupted.state_dict()
    resumed = BlockShuffle(plain, 16)
    resumed.load_state_dict(state)
    resumed.set_epoch(0)  # as trainers call it at the begin of each epoch
    assert begun + list(resumed) == first
    assert list(resumed) == second
    with pytest.raises(LoaderStateError, match=r"samples, digest of the runs, .*batch_size"):
        BlockShuffle(plain, 32).load_state_dict(state)


def test_a_position_in_other_episodes_of_as_many_steps_is_refused(plain: Window) -> None:
    lake, ids = plain._samples._place.uri, plain.meta.episodes["episode_id"]
    two, others = (
        Window(lake, names="canonical", run_steps=8, episodes=[ids[one], ids[other]])
        for one, other in ((0, 3), (1, 2))
    )
    assert len(two) == len(others)
    with pytest.raises(LoaderStateError):
        BlockShuffle(others, 16).load_state_dict(BlockShuffle(two, 16).state_dict())


def test_an_iteration_left_early_takes_nothing_from_the_next(plain: Window) -> None:
    """A DataLoader's workers ask for batches ahead that nobody then sees."""
    whole = BlockShuffle(plain, 16)
    first, second, third = list(whole), list(whole), list(whole)
    left = BlockShuffle(plain, 16)
    assert list(itertools.islice(left, 7)) == first[:7]
    assert list(left) == second
    assert list(left) == third
    left.set_epoch(0)
    assert next(iter(left)) == first[0]
    left.set_epoch(0)  # begun anew, since no position was loaded
    assert list(left) == first


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata, with torch 2.13
@pytest.mark.parametrize("workers", [0, 1])
def test_a_stateful_data_loader_resumes_an_epoch(plain: Window, workers: int) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata")

    def loader(batch_sampler: BlockShuffle) -> Any:
        return torchdata.StatefulDataLoader(
            plain,
            batch_sampler=batch_sampler,
            num_workers=workers,
            multiprocessing_context="forkserver" if workers else None,
            collate_fn=_numbers,
        )

    def order() -> BlockShuffle:
        return BlockShuffle(plain, 64)

    whole = order()
    first, second = list(whole), list(whole)
    interrupted = loader(order())
    begun = list(itertools.islice(interrupted, 4))
    resumed = loader(order())
    resumed.load_state_dict(interrupted.state_dict())
    assert begun + list(resumed) == first
    assert list(resumed) == second


def _numbers(batch: list[Any]) -> list[int]:
    return [int(sample["index"]) for sample in batch]


def test_batches_draw_from_many_runs(plain: Window) -> None:
    """Exp of the entropy of episodes in a batch, against that of a uniform order."""

    def diversity(batches: list[list[int]]) -> float:
        found = []
        for batch in batches:
            episodes = [plain.locate(sample)[0] for sample in batch]
            _, counts = np.unique(episodes, return_counts=True)
            share = counts / counts.sum()
            found.append(np.exp(-(share * np.log(share)).sum()))
        return float(np.mean(found))

    everything = np.random.default_rng(0).permutation(len(plain))
    uniform = diversity([part.tolist() for part in np.array_split(everything, len(plain) // 32)])
    wide, narrow = (
        diversity(list(BlockShuffle(plain, 32, open_runs=runs))[:-1]) for runs in (64, 2)
    )
    assert wide > 0.85 * uniform
    assert narrow < 0.3 * uniform


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_are_those_of_a_plain_window(filmed: Lake, workers: int) -> None:
    window, truth = open_window(filmed), open_window(filmed, run_steps=None)
    sampler = BlockShuffle(window, 8, lanes=max(workers, 1), open_runs=6)
    order = list(BlockShuffle(window, 8, lanes=max(workers, 1), open_runs=6))
    loader = DataLoader(
        window,
        batch_sampler=sampler,
        num_workers=workers,
        multiprocessing_context="forkserver" if workers else None,
        collate_fn=_as_list,
    )
    for numbers, batch in zip(order, loader, strict=True):
        for number, sample in zip(numbers, batch, strict=True):
            require_same(sample, truth[number])


def _as_list(batch: list[Any]) -> list[Any]:
    return batch


def test_each_run_is_decoded_once(filmed: Lake) -> None:
    window = open_window(filmed)
    for batch in BlockShuffle(window, 8, open_runs=6):
        window.__getitems__(batch)
    counts = window.metrics.counts
    assert counts["wanted_frames"] == counts["decoded_frames"] == len(window)
    assert counts["reused_frames"] > 0.6 * len(window)
    shuffled = open_window(filmed, run_steps=None)
    order = torch.randperm(len(window), generator=torch.Generator().manual_seed(0))
    for part in torch.split(order, 8):
        shuffled.__getitems__(part.tolist())
    assert shuffled.metrics.counts["decoded_frames"] > 2 * len(window)


def test_what_is_kept_is_bounded_and_a_too_small_bound_is_said(filmed: Lake) -> None:
    window = open_window(filmed)
    assert window.run_bytes == 5 * 48 * 64 * 3 // 2
    small = open_window(filmed, frame_cache_bytes=3 * window.run_bytes)
    with pytest.raises(LoaderError, match="4 open runs have 0 MiB of frames, the Window keeps 0"):
        BlockShuffle(small, 8, open_runs=4)
    assert BlockShuffle(small, 8, open_runs=3).frame_bytes == small.frame_cache_bytes
    reader = small._samples._opened()
    assert reader._kept is not None
    for number in range(len(small)):
        require_same(small[number], window[number])
        assert len(reader._kept._held) <= 3
        assert reader._kept._bytes <= small.frame_cache_bytes


def test_arguments_are_checked(filmed: Lake) -> None:
    window = open_window(filmed)
    with pytest.raises(LoaderError, match="run_steps=0"):
        open_window(filmed, run_steps=0)
    with pytest.raises(LoaderError, match=r"needs Window\(run_steps="):
        BlockShuffle(open_window(filmed, run_steps=None), 8)
    for options in ({"open_runs": 0}, {"lanes": 0}, {"rank": 1}, {"world_size": 0}):
        with pytest.raises(LoaderError, match="positive numbers, and a rank below world_size"):
            BlockShuffle(window, 8, **options)

"""Window in the processes of a trainer: torch's workers, ranks, and saved positions."""

import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, DistributedSampler, Subset

from lake import Lake, create_lake, open_lake
from loader.window import Window
from tests.loader import scenes
from tests.loader.window_truth import require_same
from tests.s3_server import S3Server

# Lance says so at every fork. Each process opens the lake by itself, which is tested here.
forked = pytest.mark.filterwarnings(
    "ignore:lance is not fork-safe:UserWarning", "ignore:.*use of fork:DeprecationWarning"
)
KEYS = ["state", "top", "action"]


def open_window(lake: Lake, **options: Any) -> Window:
    with_top = [f"synthetic/episode_{number:06d}" for number in (0, 1, 5)]
    ids = [i for i in _ids(lake) if i[:-13] in with_top]
    return Window(lake, names="canonical", image_dtype="uint8", episodes=ids, keys=KEYS, **options)


def _ids(lake: Lake) -> list[str]:
    ids: list[str] = Window(lake, names="canonical", missing="pad").meta.episodes["episode_id"]
    return ids


def as_list(batch: list[Any]) -> list[Any]:
    return batch


@forked
@pytest.mark.parametrize(
    ("start", "workers", "samples_before"),
    [("spawn", 1, 0), ("forkserver", 1, 0), ("fork", 2, 0), ("fork", 2, 9)],
)
def test_workers_give_what_one_process_gives(
    scene: Lake, start: str, workers: int, samples_before: int
) -> None:
    window = open_window(scene, delta_steps={"action": [0, 1, 2, 3]})
    alone = open_window(scene, delta_steps={"action": [0, 1, 2, 3]})
    order = torch.randperm(len(window), generator=torch.Generator().manual_seed(0)).tolist()
    if samples_before:  # a fork finds what its parent had open
        window.__getitems__(order[:samples_before])
    loader = DataLoader(
        window,
        batch_size=8,
        sampler=order,
        num_workers=workers,
        multiprocessing_context=start,
        collate_fn=as_list,
    )
    found = [sample for batch in loader for sample in batch]
    for number, sample in zip(order, found, strict=True):
        require_same(sample, alone[number])
    # The parent goes on with what it had open.
    require_same(window[3], alone[3])


@pytest.mark.s3
@forked
def test_a_fork_reads_an_object_store(scene: Lake, s3_server: S3Server) -> None:
    uri, options = s3_server.uri("window.lake"), s3_server.storage_options
    scenes.fill_lake(create_lake(uri, storage_options=options))
    window = open_window(open_lake(uri, storage_options=options))
    truth = open_window(scene)
    require_same(window[2], truth[2])
    loader = DataLoader(
        window, batch_size=8, num_workers=2, multiprocessing_context="fork", collate_fn=as_list
    )
    for number, sample in enumerate(sample for batch in loader for sample in batch):
        require_same(sample, truth[number])


def test_ranks_share_the_samples(scene: Lake) -> None:
    window = open_window(scene)
    seen: list[int] = []
    for rank in range(2):
        sampler: DistributedSampler[Any] = DistributedSampler(
            window, 2, rank, shuffle=True, seed=3, drop_last=False
        )
        for batch in DataLoader(window, batch_size=4, sampler=sampler):
            seen += batch["index"].tolist()
    assert set(seen) == set(range(len(window)))
    assert len(seen) == len(window) + len(window) % 2


def test_torch_s_wrappers_keep_the_batched_fetch(scene: Lake) -> None:
    window = open_window(scene)
    subset = Subset(window, list(range(9)))
    window[0]
    window.metrics.counts.clear()
    next(iter(DataLoader(subset, batch_size=9)))
    assert window.metrics.counts["requests"] == 1
    both: ConcatDataset[Any] = ConcatDataset([window, window])
    assert torch.equal(both[len(window) + 2]["state"], window[2]["state"])


@pytest.fixture
def stateful() -> Callable[..., Any]:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata")
    return torchdata.StatefulDataLoader  # type: ignore[no-any-return]


@forked
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata, with torch 2.13
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_data_loader_goes_on_where_it_was(
    scene: Lake, stateful: Callable[..., Any], workers: int
) -> None:
    def batches(state: dict[str, Any] | None = None) -> Iterator[Any]:
        torch.manual_seed(0)
        loader = stateful(
            open_window(scene),
            batch_size=5,
            shuffle=True,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        )
        if state is not None:
            loader.load_state_dict(state)
        for batch in loader:
            yield batch["index"].tolist(), loader.state_dict()

    whole = list(batches())
    rest = [numbers for numbers, _ in batches(whole[2][1])]
    assert rest == [numbers for numbers, _ in whole[3:]]
    seen = [number for numbers, _ in whole for number in numbers]
    assert sorted(seen) == list(range(len(open_window(scene))))


@forked
def test_a_fork_does_not_use_what_its_parent_opened(scene: Lake) -> None:
    window = open_window(scene)
    window[0]
    reader, context = window._samples._reader, multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def child() -> None:
        window[1]
        queue.put(window._samples._reader is reader)

    process = context.Process(target=child)
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert queue.get() is False
    window[2]
    assert window._samples._reader is reader

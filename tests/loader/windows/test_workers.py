"""Window in the processes of a trainer: torch's workers, ranks, and saved positions."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, DistributedSampler, Subset

from lake import Lake, create_lake, open_lake
from loader import LoaderError, StorageSettings
from loader.windows.window import Window
from tests.loader import scenes
from tests.loader.storage.folder_s3 import FolderS3
from tests.loader.windows.window_truth import require_same
from tests.s3_server import S3Server

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


@pytest.mark.parametrize("samples_before", [0, 9])
def test_workers_give_what_one_process_gives(scene: Lake, samples_before: int) -> None:
    window = open_window(scene, delta_steps={"action": [0, 1, 2, 3]})
    alone = open_window(scene, delta_steps={"action": [0, 1, 2, 3]})
    order = torch.randperm(len(window), generator=torch.Generator().manual_seed(0)).tolist()
    if samples_before:  # what is open here is not sent along
        window.__getitems__(order[:samples_before])
    loader = DataLoader(
        window,
        batch_size=8,
        sampler=order,
        num_workers=2,
        multiprocessing_context="forkserver",
        collate_fn=as_list,
    )
    found = [sample for batch in loader for sample in batch]
    for number, sample in zip(order, found, strict=True):
        require_same(sample, alone[number])
    # The parent goes on with what it had open.
    require_same(window[3], alone[3])


@pytest.mark.s3
def test_a_worker_reads_an_object_store(scene: Lake, s3_server: S3Server) -> None:
    uri, options = s3_server.uri("window.lake"), s3_server.storage_options
    scenes.fill_lake(create_lake(uri, storage_options=options))
    window = open_window(open_lake(uri, storage_options=options))
    truth = open_window(scene)
    require_same(window[2], truth[2])
    loader = DataLoader(
        window,
        batch_size=8,
        num_workers=1,
        multiprocessing_context="forkserver",
        collate_fn=as_list,
    )
    for number, sample in enumerate(sample for batch in loader for sample in batch):
        require_same(sample, truth[number])


def requests_per_read(_: list[Any]) -> str:
    """How many Lance keeps under way, in the process that collates."""
    return os.environ.get("LANCE_IO_THREADS", "its own choice")


def test_a_worker_s_reads_keep_few_requests(scene: Lake) -> None:
    """As those of a decode process do: several workers of several ranks read at once."""
    with FolderS3(Path(scene.uri).parent) as store:
        remote = open_lake(store.uri(Path(scene.uri).name), storage_options=store.options())
        told = []
        for lake in (remote, scene):
            window = open_window(lake, storage=StorageSettings(requests_per_node=32))
            loader = DataLoader(
                Subset(window, [0]),
                num_workers=1,
                multiprocessing_context="forkserver",
                collate_fn=requests_per_read,
            )
            told += list(loader)
    assert told == ["8", "its own choice"]
    assert "LANCE_IO_THREADS" not in os.environ  # the trainer's process is its own


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


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata, with torch 2.13
@pytest.mark.parametrize("workers", [0, 1])
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
            multiprocessing_context="forkserver" if workers else None,
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


@pytest.mark.filterwarnings(
    "ignore:lance is not fork-safe:UserWarning", "ignore:.*use of fork:DeprecationWarning"
)
def test_a_fork_is_told_what_to_do(scene: Lake) -> None:
    """Where it read, one in forty hung: Lance's threads are not in a fork."""
    window = open_window(scene)
    window[0]
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:  # not by a DataLoader, whose fork may hang when it ends
        try:
            window[1]
        except LoaderError as error:
            os.write(write_end, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    with os.fdopen(read_end) as said:
        assert "multiprocessing_context='forkserver'" in said.read()
    require_same(window[2], open_window(scene)[2])

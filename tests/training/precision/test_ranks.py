import socket
from pathlib import Path

import pytest

from lake import Lake
from packing.plan import Plan
from tests.training.precision import ranks_worker
from tests.training.train_worker import training_processes
from training.logs.metrics import read_metrics


def losses(lake: Lake, out: Path, *, world_size: int) -> list[float]:
    """Of each step of a run by so many processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = training_processes()
    ranks = [
        context.Process(target=ranks_worker.run, args=(rank, world_size, port, lake.uri, str(out)))
        for rank in range(world_size)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
        assert rank.exitcode == 0
    return [line["loss"] for line in read_metrics(out / "metrics.jsonl")]


def test_ranks_that_share_weights_train_in_fp8_and_bf16_as_one_does(
    planned: tuple[Lake, Plan], tmp_path: Path
) -> None:
    lake, _ = planned
    one = losses(lake, tmp_path / "one", world_size=1)
    two = losses(lake, tmp_path / "two", world_size=2)
    # Shards are gathered in BF16, so FP8 rounds what BF16 has rounded already.
    assert two == pytest.approx(one, rel=2e-3)

from pathlib import Path

import pytest
import torch

from tests.training.batches import make_spans, pack
from training.distributed import Ranks
from training.errors import TrainingError
from training.logs.metrics import MetricsLog, StepMetrics
from training.logs.run_logs import Records

RANKS = Ranks(rank=0, world_size=1, device=torch.device("cpu"))


def metrics(step: int) -> StepMetrics:
    return StepMetrics(
        step=step, epoch=0, loss=1.0, lr=0.1, grad_norm=1.0, action_values=1, tokens=1, spans=1,
        bad_spans=0, padding_share=0.0, step_s=1.0, data_wait_share=0.0, tokens_per_s=1.0,
        spans_per_s=1.0, mfu=None, rank_wait_s=(0.0,), rank_compute_s=(1.0,), rank_sync_s=(0.0,),
    )  # fmt: skip


def test_a_full_disk_is_a_named_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MetricsLog, "write", full)
    with (
        pytest.raises(TrainingError, match=r"No space left.*goes on from the last checkpoint"),
        Records(tmp_path, RANKS, 0, facts={}, every=1) as records,
    ):
        records.step([pack(make_spans(2, seed=0))], metrics(1))

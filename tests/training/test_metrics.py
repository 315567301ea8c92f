from pathlib import Path

import pytest
import torch

from training.errors import TrainingError
from training.logs.loss_picture import save_loss_picture
from training.logs.metrics import MetricsLog, StepMetrics, peak_flops, read_metrics


def metrics(step: int, loss: float) -> StepMetrics:
    return StepMetrics(
        step=step,
        epoch=0,
        loss=loss,
        lr=1e-3,
        grad_norm=1.0,
        action_values=10,
        tokens=100,
        spans=5,
        bad_spans=0,
        padding_share=0.0,
        step_s=0.1,
        data_wait_share=0.0,
        tokens_per_s=1000.0,
        spans_per_s=50.0,
        mfu=None,
        rank_wait_s=(0.0,),
        rank_compute_s=(1.0,),
        rank_sync_s=(0.0,),
    )


def attempt(path: Path, first: int, losses: list[float]) -> None:
    log = MetricsLog(path, {"attempt": 0, "first_step": first})
    for number, loss in enumerate(losses, start=first + 1):
        log.write(metrics(number, loss))
    log.close()


def test_a_step_trained_twice_is_told_by_the_newer_attempt(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    attempt(path, 0, [1.0, 2.0, 3.0, 4.0])
    attempt(path, 2, [30.0])
    assert [(m["step"], m["loss"]) for m in read_metrics(path)] == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_half_a_line_of_a_killed_process_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    attempt(path, 0, [1.0, 2.0])
    path.write_text(path.read_text()[:-20])
    assert [m["step"] for m in read_metrics(path)] == [1]


def test_resuming_after_half_a_line_loses_nothing_of_the_new_attempt(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    attempt(path, 0, [1.0, 2.0, 3.0, 4.0])
    path.write_text(path.read_text()[:-20])
    attempt(path, 1, [20.0])
    assert [m["loss"] for m in read_metrics(path)] == [1.0, 20.0]


def test_missing_metrics_are_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"metrics\.jsonl"):
        read_metrics(tmp_path / "metrics.jsonl")


def test_a_cpu_has_no_known_peak() -> None:
    assert peak_flops(torch.device("cpu")) is None


def test_the_picture_is_a_png_written_whole(tmp_path: Path) -> None:
    attempt(tmp_path / "metrics.jsonl", 0, [2.0, 1.0, 0.5])
    save_loss_picture(tmp_path / "metrics.jsonl", tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert {p.name for p in tmp_path.iterdir()} == {"metrics.jsonl", "loss.png"}


def test_no_picture_of_nothing(tmp_path: Path) -> None:
    attempt(tmp_path / "metrics.jsonl", 0, [])
    with pytest.raises(TrainingError, match="no step yet"):
        save_loss_picture(tmp_path / "metrics.jsonl", tmp_path / "loss.png")

import dataclasses
import json
import os
import signal
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import nn

from lake import Lake
from loader.batch import PackedBatch
from loader.errors import LoaderError
from loader.materialized.materialize import materialize
from loader.pack_loader import PackLoader
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.training.plans import plan_windows, train_config
from training import loop
from training.checkpoints.folder import latest_checkpoint, read_progress
from training.checkpoints.load import load_checkpoint
from training.config import TrainConfig
from training.distributed import Ranks
from training.errors import CheckpointError, ConfigError, NonFiniteLossError
from training.logs.ledger import surviving_trajectory
from training.logs.metrics import StepMetrics, read_metrics
from training.loop import train
from training.loss import Prediction
from training.models.film.config import FilmConfig
from training.models.film.model import FilmPolicy
from training.models.kinds import ModelConfig, build_model
from training.padded import padded_pack, padded_tokens
from training.policy_spec import PolicySpec
from training.precision.config import PrecisionConfig
from training.trained import Trained

Planned = tuple[Lake, Plan]


def test_a_run_leaves_metrics_ledger_checkpoints_and_a_row(
    planned: Planned, tmp_path: Path
) -> None:
    lake, plan = planned
    seen: list[tuple[int, int]] = []
    config = train_config()
    result = train(
        lake, plan, tmp_path / "run", config, on_step=lambda m, n: seen.append((m.step, n))
    )
    total = plan.num_steps
    assert result.finished
    assert (result.steps, result.resumed_from) == (total, None)
    assert seen == [(step, total) for step in range(1, total + 1)]
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, total + 1))
    assert result.last is not None
    assert lines[-1] == json.loads(json.dumps(dataclasses.asdict(result.last)))
    assert lines[-1]["rank_sync_s"] == [0.0]
    spans = sum(len(pack.span_ids) for pack in surviving_trajectory(tmp_path / "run" / "ledger"))
    assert spans == sum(line["spans"] for line in lines) == 3 * plan.header.num_spans
    tokens = plan.packs["tokens"].to_pylist()
    slots, budget = plan.header.slots_per_step, plan.header.budget_tokens
    for number, line in enumerate(lines):
        real = sum(tokens[number * slots : (number + 1) * slots])
        assert line["tokens"] == real
        assert line["padding_share"] == pytest.approx(1 - real / (slots * budget))
    progress = read_progress(result.checkpoint)
    assert progress.step == progress.loader["next_step"] == total
    assert progress.plan_hash == plan.plan_hash
    assert TrainConfig.from_dict(progress.config) == config
    lake.refresh()
    rows = lake.dataset("runs").to_table(filter=f"run_id = '{result.run_id}'").to_pylist()
    assert len(rows) == 1
    assert rows[0]["plan_hash"] == plan.plan_hash
    assert TrainConfig.from_dict(json.loads(rows[0]["config_json"])) == config
    assert json.loads(rows[0]["versions_json"]) == dict(plan.header.versions)


def test_the_loss_falls(planned: Planned, tmp_path: Path) -> None:
    """The lake's actions are a function of its states: there is something to learn."""
    lake, _ = planned
    config = train_config(every=1000)
    faster = dataclasses.replace(config.optimizer, lr=1e-2, ema_decay=0.0)
    plan = plan_windows(lake, slots=1, epochs=12)
    train(lake, plan, tmp_path / "run", dataclasses.replace(config, optimizer=faster))
    losses = [line["loss"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert sum(losses[-5:]) / 5 < 0.7 * sum(losses[:3]) / 3


def test_a_padded_run_computes_more_tokens_and_learns_the_same(
    planned: Planned, tmp_path: Path
) -> None:
    lake, plan = planned
    config = train_config(steps=6)
    results = [
        train(lake, plan, tmp_path / name, dataclasses.replace(config, padded=name == "padded"))
        for name in ("packed", "padded")
    ]
    packed, padded = (
        read_metrics(result.checkpoint.parents[1] / "metrics.jsonl") for result in results
    )
    with PackLoader(lake, plan, 0, 1, process="inline") as loader:
        batches = list(islice(loader, 6 * plan.header.slots_per_step))
    computed = [padded_tokens(padded_pack(batch)) if batch.num_spans else 0 for batch in batches]
    slots = plan.header.slots_per_step
    for number, (one, other) in enumerate(zip(packed, padded, strict=True)):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-4)
        assert other["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)
        assert (other["tokens"], other["spans"]) == (one["tokens"], one["spans"])
        total = sum(computed[number * slots : (number + 1) * slots])
        assert total > one["tokens"]
        assert other["padding_share"] == pytest.approx(1 - one["tokens"] / total)


@pytest.mark.parametrize("wanted", [False, True])
def test_a_deterministic_run_says_so_to_torch_and_takes_it_back(
    planned: Planned, tmp_path: Path, *, wanted: bool
) -> None:
    lake, plan = planned
    told: list[bool] = []
    train(
        lake,
        plan,
        tmp_path / "run",
        dataclasses.replace(train_config(steps=1), deterministic=wanted),
        on_step=lambda _metrics, _steps: told.append(torch.are_deterministic_algorithms_enabled()),
    )
    assert told == [wanted]
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_finished_run_is_left_as_it_is(planned: Planned, tmp_path: Path) -> None:
    lake, plan = planned
    config = train_config(steps=2)
    first = train(lake, plan, tmp_path / "run", config)
    again = train(lake, plan, tmp_path / "run", config)
    assert (again.steps, again.resumed_from, again.last) == (2, 2, None)
    assert again.checkpoint == first.checkpoint
    assert again.run_id == first.run_id
    fewer = train(lake, plan, tmp_path / "run", train_config(steps=1))
    assert (fewer.finished, fewer.steps, fewer.last) == (True, 2, None)


def test_a_resumed_run_does_what_it_is_told_now(planned: Planned, tmp_path: Path) -> None:
    lake, plan = planned
    config = train_config(steps=2)
    train(lake, plan, tmp_path / "run", config)
    other = dataclasses.replace(config.optimizer, weight_decay=0.5, betas=(0.5, 0.6))
    spec = PolicySpec.from_plan(plan.header, image_size=None)
    torch.manual_seed(0)
    trained = Trained.start(
        build_model(config.model, spec), spec, dataclasses.replace(config, optimizer=other)
    )
    ranks = Ranks(rank=0, world_size=1, device=torch.device("cpu"))
    checkpoint = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    load_checkpoint(checkpoint, trained, ranks)
    groups = trained.optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]
    assert [tuple(group["betas"]) for group in groups] == [(0.5, 0.6)] * 2
    assert all(state["step"] == 2 for state in trained.optimizer.state.values())


def test_the_last_step_is_written_down_whatever_the_interval(
    planned: Planned, tmp_path: Path
) -> None:
    lake, plan = planned
    config = dataclasses.replace(train_config(steps=5), log_every=3)
    train(lake, plan, tmp_path / "run", config)
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 3, 5]


def test_a_run_can_be_given_more_steps(planned: Planned, tmp_path: Path) -> None:
    lake, plan = planned
    train(lake, plan, tmp_path / "run", train_config(steps=3))
    longer = train(lake, plan, tmp_path / "run", train_config(steps=5))
    assert (longer.resumed_from, longer.steps) == (3, 5)
    packs = surviving_trajectory(tmp_path / "run" / "ledger")
    assert sorted({pack.step for pack in packs}) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("deterministic", [False, True])
def test_sigterm_ends_after_the_step_with_a_checkpoint(
    planned: Planned, tmp_path: Path, *, deterministic: bool
) -> None:
    lake, plan = planned
    config = dataclasses.replace(train_config(every=100), deterministic=deterministic)

    def on_step(metrics: StepMetrics, total: int) -> None:
        del total
        if metrics.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    stopped = train(lake, plan, tmp_path / "run", config, on_step=on_step)
    assert signal.getsignal(signal.SIGTERM) is before
    assert not stopped.finished
    assert stopped.steps in {3, 4}
    assert stopped.checkpoint.name == f"step-{stopped.steps:08d}"
    resumed = train(lake, plan, tmp_path / "run", config)
    whole = train(lake, plan, tmp_path / "whole", config)
    assert resumed.resumed_from == stopped.steps
    assert (resumed.checkpoint / "policy.safetensors").read_bytes() == (
        whole.checkpoint / "policy.safetensors"
    ).read_bytes()


class Poisoned(FilmPolicy):
    """Loses its mind at step 3 of the plan."""

    def forward(self, batch: PackedBatch[torch.Tensor]) -> Prediction:
        prediction = super().forward(batch)
        if batch.step != 3:
            return prediction
        return prediction._replace(velocity=prediction.velocity * float("nan"))


def poisoned(config: ModelConfig, spec: PolicySpec) -> nn.Module:
    assert isinstance(config, FilmConfig)
    return Poisoned(config, spec)


def test_a_nan_is_a_named_error_and_the_last_checkpoint_is_usable(
    planned: Planned, tmp_path: Path
) -> None:
    lake, plan = planned
    config = train_config(every=2)
    with pytest.raises(NonFiniteLossError, match=r"step 3: the loss is nan.*slot .*step-00000002"):
        train(lake, plan, tmp_path / "run", config, make_model=poisoned)
    checkpoint = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    model = build_model(config.model, PolicySpec.from_plan(plan.header, image_size=None))
    load_checkpoint(
        checkpoint,
        Trained.start(model, model.spec, config),
        Ranks(rank=0, world_size=1, device=torch.device("cpu")),
    )
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    assert train(lake, plan, tmp_path / "run", config).resumed_from == 2


class Constant(nn.Module):
    """A model of the user's own: one vector for every action."""

    def __init__(self, config: ModelConfig, spec: PolicySpec) -> None:
        super().__init__()
        del config
        self.mean = nn.Parameter(torch.zeros(spec.action_dim))

    def forward(self, batch: PackedBatch[torch.Tensor]) -> Prediction:
        return Prediction(self.mean.expand_as(batch.actions), batch.actions)


def test_any_model_trains_with_the_same_loop(planned: Planned, tmp_path: Path) -> None:
    lake, plan = planned
    result = train(lake, plan, tmp_path / "run", train_config(steps=3), make_model=Constant)
    assert result.finished
    assert result.last is not None
    assert result.last.mfu is None


def test_more_steps_than_the_plan_has_are_refused(planned: Planned, tmp_path: Path) -> None:
    lake, plan = planned
    with pytest.raises(ConfigError, match=f"has {plan.num_steps}: make a plan of more epochs"):
        train(lake, plan, tmp_path / "run", train_config(steps=plan.num_steps + 1))
    assert not (tmp_path / "run").exists()


def test_what_the_loader_refuses_is_no_run(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, plan = planned
    before = lake.latest("runs").count_rows()
    alone = Ranks(rank=0, world_size=plan.header.slots_per_step + 1, device=torch.device("cpu"))
    monkeypatch.setattr(loop, "process_group", lambda: nullcontext(alone))
    with pytest.raises(LoaderError, match="world size"):
        train(lake, plan, tmp_path / "run", train_config())
    assert not (tmp_path / "run" / "run.json").exists()
    assert lake.latest("runs").count_rows() == before


def test_never_refuses_a_folder_with_a_run(planned: Planned, tmp_path: Path) -> None:
    lake, plan = planned
    train(lake, plan, tmp_path / "run", train_config(steps=1), resume="never")
    with pytest.raises(CheckpointError, match="already holds the run"):
        train(lake, plan, tmp_path / "run", train_config(steps=1), resume="never")


def test_a_folder_with_a_run_of_another_plan_is_refused(
    planned: Planned, planned_cameras: Planned, tmp_path: Path
) -> None:
    train(*planned, tmp_path / "run", train_config(steps=1))
    with pytest.raises(CheckpointError, match=f"on plan {planned[1].plan_hash}"):
        train(*planned_cameras, tmp_path / "run", train_config(steps=1))


def test_another_model_does_not_resume(planned: Planned, tmp_path: Path) -> None:
    lake, plan = planned
    config = train_config(steps=2)
    train(lake, plan, tmp_path / "run", config)
    wider = dataclasses.replace(config, model=dataclasses.replace(config.model, width=24))
    with pytest.raises(CheckpointError, match="train with the model it was made with"):
        train(lake, plan, tmp_path / "run", wider)


def test_cameras_reach_the_model(planned_cameras: Planned, tmp_path: Path) -> None:
    lake, plan = planned_cameras
    result = train(lake, plan, tmp_path / "run", train_config())
    torch.manual_seed(0)
    start = build_model(train_config().model, PolicySpec.from_plan(plan.header, image_size=None))
    from safetensors.torch import load_file

    trained = load_file(result.checkpoint / "policy.safetensors")
    moved = [
        name
        for name, weight in start.named_parameters()
        if name.startswith("image_encoder") and not torch.equal(weight, trained[name])
    ]
    assert any("conv" in name for name in moved)
    assert any("film" in name for name in moved)


def test_bfloat16_trains_close_to_float32(planned_cameras: Planned, tmp_path: Path) -> None:
    lake, plan = planned_cameras
    config = train_config()
    full = train(lake, plan, tmp_path / "fp32", config).last
    half = train(
        lake,
        plan,
        tmp_path / "bf16",
        dataclasses.replace(config, precision=PrecisionConfig(dtype="bf16")),
    ).last
    assert full is not None
    assert half is not None
    assert half.loss == pytest.approx(full.loss, rel=0.02)
    assert half.loss != full.loss


def test_a_cache_of_the_node_trains_the_same_weights(planned: Planned, tmp_path: Path) -> None:
    lake, plan = planned
    config = train_config()
    feeding = dataclasses.replace(config.loader, cache_dir=str(tmp_path / "nvme"), cache_gb=0.5)
    cached = dataclasses.replace(config, loader=feeding)
    losses = []
    for name, chosen in (("a", config), ("cold", cached), ("warm", cached)):
        train(lake, plan, tmp_path / name, chosen)
        losses.append([line["loss"] for line in read_metrics(tmp_path / name / "metrics.jsonl")])
    assert losses[0] == losses[1] == losses[2]
    assert any((tmp_path / "nvme").rglob("entries/*/*"))


def test_materialised_packs_train_the_same_weights(planned: Planned, tmp_path: Path) -> None:
    lake, plan = planned
    save_plan(lake, plan)
    materialize(lake, plan, workers=0)
    config = train_config()
    copied = dataclasses.replace(
        config, loader=dataclasses.replace(config.loader, materialized="copy")
    )
    results = [train(lake, plan, tmp_path / name, c) for name, c in (("a", config), ("b", copied))]
    first, second = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("a", "b"))
    assert [line["loss"] for line in first] == [line["loss"] for line in second]
    assert results[0].steps == results[1].steps == plan.num_steps

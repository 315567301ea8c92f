import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.batches import TINY, make_spans, pack, policy_spec
from training.checkpoints import writer as writer_module
from training.checkpoints.folder import Progress, latest_checkpoint, read_progress
from training.checkpoints.load import load_checkpoint
from training.checkpoints.writer import CheckpointWriter
from training.config import OptimizerConfig, TrainConfig
from training.distributed import Ranks
from training.errors import CheckpointError
from training.loss import flow_matching_loss
from training.models.kinds import build_model
from training.policy import load_model
from training.trained import Trained

RANKS = Ranks(rank=0, world_size=1, device=torch.device("cpu"))
CONFIG = TrainConfig(model=TINY, optimizer=OptimizerConfig(ema_decay=0.9))


def progress(step: int) -> Progress:
    return Progress(
        step=step,
        world_size=1,
        run_id="run",
        plan_hash="plan",
        versions={"trajectories": 3},
        loader={"plan_hash": "plan", "next_step": step, "layout_version": 1},
        config=CONFIG.to_dict(),
    )


def fresh(seed: int = 0, *, config: TrainConfig = CONFIG) -> Trained:
    torch.manual_seed(seed)
    model = build_model(config.model, policy_spec())
    return Trained.start(model, model.spec, config)


def advance(trained: Trained, steps: int, *, first: int = 0) -> None:
    for step in range(first, first + steps):
        batch = pack(make_spans(4, seed=step))
        torch.autograd.backward(flow_matching_loss(trained.model(batch), batch) / 50)
        trained.update(1e-2 / (step + 1))


def save(
    folder: Path, trained: Trained, step: int, *, keep: int = 3, asynchronous: bool = False
) -> Path:
    with CheckpointWriter(folder, RANKS, keep=keep, asynchronous=asynchronous) as writer:
        return writer.save(trained, progress(step))


def same(one: Trained, other: Trained) -> bool:
    weights, others = one.model.state_dict(), other.model.state_dict()
    assert one.ema is not None
    assert other.ema is not None
    return all(torch.equal(w, others[n]) for n, w in weights.items()) and all(
        torch.equal(w, other.ema.weights[n]) for n, w in one.ema.weights.items()
    )


def test_going_on_from_a_checkpoint_is_bit_equal(tmp_path: Path) -> None:
    whole = fresh()
    advance(whole, 3)
    path = save(tmp_path, whole, 3)
    generator = torch.get_rng_state()
    advance(whole, 3, first=3)

    resumed = fresh(seed=99)
    torch.manual_seed(5)
    load_checkpoint(path, resumed, RANKS)
    assert torch.equal(torch.get_rng_state(), generator)
    assert not same(whole, resumed)
    advance(resumed, 3, first=3)
    assert same(whole, resumed)
    assert read_progress(path) == progress(3)


def test_beside_the_training_the_weights_of_its_step_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, reference = fresh(), fresh()
    for one in (trained, reference):
        advance(one, 2)
    go_on = threading.Event()
    write: Callable[..., object] = getattr(writer_module, "save_distributed")  # noqa: B009

    def held(*args: Any, **kwargs: Any) -> object:
        assert go_on.wait(20)
        return write(*args, **kwargs)

    monkeypatch.setattr(writer_module, "save_distributed", held)
    with CheckpointWriter(tmp_path, RANKS, keep=3, asynchronous=True) as writer:
        generator = torch.get_rng_state()
        path = writer.save(trained, progress(2))
        assert latest_checkpoint(tmp_path) is None
        torch.rand(3)
        advance(trained, 2, first=2)
        go_on.set()
    assert latest_checkpoint(tmp_path) == path
    resumed = fresh(seed=7)
    load_checkpoint(path, resumed, RANKS)
    assert same(resumed, reference)
    assert torch.equal(torch.get_rng_state(), generator)
    advance(resumed, 2, first=2)
    assert same(resumed, trained)


def test_what_fails_beside_the_training_is_raised_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = fresh()
    advance(trained, 1)
    first = save(tmp_path, trained, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    writer = CheckpointWriter(tmp_path, RANKS, keep=3, asynchronous=True)
    with monkeypatch.context() as patch:
        patch.setattr("training.checkpoints.folder.os.fsync", full)
        writer.save(trained, progress(2))
        with pytest.raises(CheckpointError, match=r"step-00000002.*No space.*is .*step-00000001"):
            writer.save(trained, progress(3))
    assert latest_checkpoint(tmp_path) == first
    with writer:
        last = writer.save(trained, progress(3))
    assert latest_checkpoint(tmp_path) == last


def test_a_rank_that_the_writer_did_not_have_keeps_its_generator(tmp_path: Path) -> None:
    trained = fresh()
    advance(trained, 1)
    path = save(tmp_path, trained, 1)
    resumed = fresh(seed=4)
    before = torch.get_rng_state()
    load_checkpoint(path, resumed, replace(RANKS, rank=1, world_size=2))
    assert torch.equal(torch.get_rng_state(), before)
    assert same(trained, resumed)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    trained = fresh()
    advance(trained, 1)
    for step in (1, 2, 3, 4):
        save(tmp_path, trained, step, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "latest", "step-00000003", "step-00000004",
    ]  # fmt: skip
    # After a resume from an older one the newest has a lower number, and must stay.
    save(tmp_path, trained, 2, keep=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-00000002"]
    assert latest_checkpoint(tmp_path) == tmp_path / "step-00000002"


@pytest.mark.parametrize("killed_at", ["save_distributed", "_write_sidecars", "publish"])
def test_a_writer_that_dies_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    trained = fresh()
    advance(trained, 1)
    first = save(tmp_path, trained, 1)

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(writer_module, killed_at, die)
        with pytest.raises(Killed):
            save(tmp_path, trained, 2)
    assert latest_checkpoint(tmp_path) == first
    load_checkpoint(first, fresh(seed=3), RANKS)
    # The next writer clears what was left.
    assert latest_checkpoint(tmp_path) != save(tmp_path, trained, 2)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_kill_between_rename_and_pointer_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = fresh()
    advance(trained, 1)
    first = save(tmp_path, trained, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, trained, 2)
    assert (tmp_path / "step-00000002").exists()
    assert latest_checkpoint(tmp_path) == first
    assert save(tmp_path, trained, 2) == latest_checkpoint(tmp_path)


def test_a_full_disk_is_a_named_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = fresh()
    advance(trained, 1)
    first = save(tmp_path, trained, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("training.checkpoints.folder.os.fsync", full)
    with pytest.raises(CheckpointError, match=r"No space left.*last good one is .*step-00000001"):
        save(tmp_path, trained, 2)
    assert latest_checkpoint(tmp_path) == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-00000001"]


def _truncate(path: Path) -> None:
    (weights,) = path.glob("*.distcp")
    weights.write_bytes(weights.read_bytes()[:100])


def _no_metadata(path: Path) -> None:
    (path / ".metadata").unlink()


def _no_progress(path: Path) -> None:
    (path / "trainer.json").write_text("{")


def _other_version(path: Path) -> None:
    raw = json.loads((path / "trainer.json").read_text())
    (path / "trainer.json").write_text(json.dumps({**raw, "version": 99}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncate, r"distcp in .* is not what was written"),
        (_no_metadata, r"not a whole checkpoint: .*\.metadata"),
        (_no_progress, "is not a checkpoint"),
        (_other_version, "version 99"),
    ],
)
def test_damage_is_a_named_error(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    trained = fresh()
    advance(trained, 1)
    path = save(tmp_path, trained, 1)
    damage(path)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(path, fresh(), RANKS)


def test_another_model_is_a_named_error(tmp_path: Path) -> None:
    trained = fresh()
    advance(trained, 1)
    path = save(tmp_path, trained, 1)
    other = fresh(config=replace(CONFIG, model=replace(TINY, width=48)))
    with pytest.raises(CheckpointError, match=r"model\.width is 32 there and 48 here"):
        load_checkpoint(path, other, RANKS)


def test_a_pointer_to_nothing_is_a_named_error(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) is None
    trained = fresh()
    advance(trained, 1)
    shutil.rmtree(save(tmp_path, trained, 1))
    with pytest.raises(CheckpointError, match="step-00000001, which is not there"):
        latest_checkpoint(tmp_path)


def test_rollouts_get_the_averaged_weights(tmp_path: Path) -> None:
    trained = fresh()
    advance(trained, 4)
    model = load_model(save(tmp_path, trained, 4))
    assert trained.ema is not None
    assert model.spec == trained.spec
    assert model.config == TINY
    for name, weight in model.named_parameters():
        assert torch.equal(weight, trained.ema.weights[name])
    assert any(
        not torch.equal(w, model.state_dict()[n]) for n, w in trained.model.state_dict().items()
    )


@pytest.mark.parametrize(
    "name", [".metadata", "__0_0.distcp", "trainer.json", "policy.json", "policy.safetensors"]
)
def test_one_wrong_bit_in_any_file_is_found(tmp_path: Path, name: str) -> None:
    trained = fresh()
    advance(trained, 1)
    path = save(tmp_path, trained, 1)
    data = bytearray((path / name).read_bytes())
    at = data.rindex(b"1") if name.endswith(".json") else len(data) // 2
    data[at] ^= 0x04  # leaves JSON that still parses
    (path / name).write_bytes(data)
    with pytest.raises(CheckpointError):
        load_checkpoint(path, fresh(), RANKS)
    if name.startswith("policy"):
        with pytest.raises(CheckpointError, match=rf"{name} in .* is not what was written"):
            load_model(path)


def test_what_kills_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".partial-step-00000007").mkdir()
    trained = fresh()
    advance(trained, 1)
    save(tmp_path, trained, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-00000001"]

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest
import typer
from typer.testing import CliRunner, Result

pytest.importorskip("torch", reason="the torch extra is not installed")

import torch

from lake.store import Lake
from packing.layout import TokenLayout
from packing.tokenizer import find_tokenizer
from tools.commands import assess, simulate
from training.checkpoints.folder import Progress
from training.checkpoints.writer import CheckpointWriter
from training.config import TrainConfig
from training.distributed import Ranks
from training.errors import CheckpointError
from training.models.film.config import FilmConfig
from training.models.kinds import build_model
from training.policy_spec import Moments, PolicySpec
from training.simulation.errors import SimulationError
from training.simulation.scene import Scene
from training.simulation.task import Purpose, SceneConfig
from training.simulation.trial import try_checkpoint
from training.trained import Trained

QUICK = SceneConfig(max_steps=12)
SMALL = TrainConfig(
    model=FilmConfig(
        width=32, expert_width=32, layers=1, heads=2, head_dim=16, conv_channels=(8, 8, 8)
    )
)


def make_checkpoint(
    run: Path,
    *,
    cameras: tuple[str, ...] = (),
    state_dim: int = 3,
    action_dim: int = 3,
    image_size: int | None = None,
) -> Path:
    """A run with one checkpoint of an untrained policy."""
    tokenizer = find_tokenizer("utf8-bytes")
    spec = PolicySpec(
        layout=TokenLayout(image_tokens=1 if cameras else 0),
        tokenizer_fingerprint=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        cameras=cameras,
        embodiments=("pointer-gantry",),
        spec_ids=("spec",),
        state=(Moments(mean=(0.0,) * state_dim, std=(0.2,) * state_dim),),
        action=(Moments(mean=(0.0,) * action_dim, std=(0.01,) * action_dim),),
        horizon=8,
        span_kind="window",
        history=1,
        image_size=image_size,
    )
    torch.manual_seed(0)
    trained = Trained.start(build_model(SMALL.model, spec), spec, SMALL)
    progress = Progress(
        step=100,
        world_size=1,
        run_id="run-1",
        plan_hash="0" * 32,
        versions={},
        loader={},
        config=SMALL.to_dict(),
    )
    ranks = Ranks(rank=0, world_size=1, device=torch.device("cpu"))
    with CheckpointWriter(run / "checkpoints", ranks, keep=1, asynchronous=False) as writer:
        return writer.save(trained, progress)


def test_a_checkpoint_is_tried_beside_its_controls(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    played: list[str] = []
    trial, again = (
        try_checkpoint(
            path,
            episodes=2,
            seed=0,
            purpose=Purpose.EXAM,
            config=QUICK,
            keep=1,
            progress=lambda name, _: played.append(name),
        )
        for path in (tmp_path, folder)  # a run stands for its latest checkpoint
    )
    assert trial.checkpoint == folder
    assert trial.run_id == "run-1"
    assert not trial.privileged
    assert [a.policy for a in trial.assessments] == ["step-00000100", "told wrongly", "random"]
    assert played[:6] == ["step-00000100"] * 2 + ["told wrongly"] * 2 + ["random"] * 2
    for first, second in zip(trial.assessments, again.assessments, strict=True):
        assert first.purpose is Purpose.EXAM
        assert first.total == second.total
        assert first.total.episodes == 2
        # The same starts for all, and the same draws each time.
        assert (first.samples[0].states == second.samples[0].states).all()
        assert (first.samples[0].start.blocks == trial.trained.samples[0].start.blocks).all()


def test_a_policy_of_tip_and_blocks_is_fed_both(tmp_path: Path) -> None:
    trial = try_checkpoint(
        make_checkpoint(tmp_path, state_dim=9), episodes=1, seed=0, control=False, config=QUICK
    )
    assert trial.privileged
    assert trial.misinformed is None
    assert len(trial.assessments) == 2


def test_a_policy_that_sees_is_shown_its_cameras(tmp_path: Path, seeing_scene: Scene) -> None:
    del seeing_scene  # skips without OpenGL
    folder = make_checkpoint(tmp_path, cameras=("wrist",))
    trial = try_checkpoint(folder, episodes=1, seed=0, control=False, config=QUICK)
    assert set(trial.trained.samples[0].images) == {"wrist"}


def test_pictures_have_the_size_that_the_policy_was_trained_on(
    tmp_path: Path, seeing_scene: Scene
) -> None:
    del seeing_scene  # skips without OpenGL
    folder = make_checkpoint(tmp_path, cameras=("top",), image_size=32)
    trial = try_checkpoint(folder, episodes=1, seed=0, control=False, config=QUICK)
    assert trial.trained.samples[0].images["top"].shape[1:] == (32, 32, 3)


@pytest.mark.parametrize(
    "choice", [{"cameras": ("top", "left")}, {"state_dim": 4}, {"action_dim": 7}]
)
def test_policies_of_something_else_are_refused(
    tmp_path: Path, choice: dict[str, int | tuple[str, ...]]
) -> None:
    folder = make_checkpoint(tmp_path, **choice)  # type: ignore[arg-type]  # one of its keywords
    with pytest.raises(SimulationError, match="was not trained on this simulation"):
        try_checkpoint(folder, episodes=1, seed=0)


def test_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing"):
        try_checkpoint(tmp_path / "nothing", episodes=1, seed=0)


@pytest.fixture(scope="module")
def headrace() -> Callable[..., Result]:
    """Run a command in this process; errors come through as exceptions."""
    app = typer.Typer()
    simulate.register(app)
    assess.register(app)

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)

    return run


def test_simulate_prints_json_alone(tmp_path: Path, headrace: Callable[..., Result]) -> None:
    done = headrace(
        "simulate", "--out", tmp_path / "demos", "--episodes", "3", "--no-cameras",
        "--picture", tmp_path / "demos.png", "--json",
    )  # fmt: skip
    said = json.loads(done.stdout)
    with h5py.File(tmp_path / "demos" / "episode_0.hdf5") as file:
        first = len(file["action"])
    assert said["episodes"] == 3
    assert said["successes"] == 3
    assert said["cameras"] == []
    assert said["shortest"] <= first <= said["longest"]
    assert said["steps"] >= 3 * said["shortest"]
    assert Path(said["picture"]).read_bytes().startswith(b"\x89PNG")
    text = headrace(
        "simulate", "--out", tmp_path / "more", "--episodes", "1", "--no-cameras"
    ).stdout
    assert "1 episodes of" in text
    assert "cameras: none" in text


def test_assess_writes_what_was_asked_for(
    tmp_path: Path, lake: Lake, headrace: Callable[..., Result]
) -> None:
    make_checkpoint(tmp_path / "run")
    rollouts = tmp_path / "rollouts"
    done = headrace(
        "assess", tmp_path / "run", "--episodes", "2", "--no-control", "--exam",
        "--record", rollouts, "--lake", lake.uri, "--picture", tmp_path / "a.png", "--json",
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert said["told_wrongly"] is None
    assert said["trained"]["episodes"] == said["random"]["episodes"] == 2
    assert said["trained"]["purpose"] == "exam"
    (row,) = lake.latest("evaluations").to_table().to_pylist()
    assert row["evaluation_id"] == said["evaluation_id"]
    assert (row["run_id"], row["checkpoint"]) == ("run-1", "step-00000100")
    assert row["successes"] == said["trained"]["successes"]
    assert (tmp_path / "a.png").is_file()
    successes = 0
    for n in range(2):
        with h5py.File(rollouts / f"episode_{n}.hdf5") as file:
            assert file.attrs["origin_policy"] == "step-00000100"
            successes += bool(file.attrs["success"])
    assert successes == said["trained"]["successes"]
    assert not (rollouts / "episode_2.hdf5").exists()
    with pytest.raises(SimulationError, match="already holds episodes"):
        headrace("assess", tmp_path / "run", "--episodes", "1", "--record", rollouts)
    with pytest.raises(SimulationError, match="cannot write the picture"):
        headrace(
            "assess", tmp_path / "run", "--episodes", "1", "--no-control", "--lake", lake.uri,
            "--picture", tmp_path / "a.nonsense",
        )  # fmt: skip
    assert lake.latest("evaluations").count_rows() == 2  # what was played is not lost with it


def test_assess_prints_a_table(tmp_path: Path, headrace: Callable[..., Result]) -> None:
    make_checkpoint(tmp_path, state_dim=9)
    text = headrace("assess", tmp_path, "--episodes", "1", "--no-control").stdout
    assert "random" in text
    assert "/1" in text
    assert '"go to the red block": ' in text
    assert "fed where the blocks are" in text

"""A trained checkpoint on trial: beside a random policy, and beside itself told wrongly."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from training.checkpoints.folder import read_progress
from training.policy import Policy, find_checkpoint
from training.simulation.assess import Assessment, assess
from training.simulation.errors import SimulationError
from training.simulation.mjcf import CAMERAS
from training.simulation.policies import RandomPolicy
from training.simulation.rollout import RolloutResult
from training.simulation.scene import ACTION_NAMES, STATE_NAMES, Scene
from training.simulation.task import Purpose, SceneConfig


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Three assessments on the same starts.

    Attributes:
        checkpoint: folder of the checkpoint.
        run_id: training run that made it.
        trained: the checkpoint's policy.
        privileged: whether it is fed where the blocks are.
        misinformed: the same policy told another colour than the one that counts, or None where
            that control was left out.
        random: the random policy.
    """

    checkpoint: Path
    run_id: str
    trained: Assessment
    privileged: bool
    misinformed: Assessment | None
    random: Assessment

    @property
    def assessments(self) -> tuple[Assessment, ...]:
        """All that were made, the trained policy first."""
        control = () if self.misinformed is None else (self.misinformed,)
        return (self.trained, *control, self.random)


def try_checkpoint(
    path: Path,
    *,
    episodes: int,
    seed: int,
    purpose: Purpose = Purpose.ASSESS,
    execute: int = 6,
    control: bool = True,
    keep: int = 4,
    config: SceneConfig | None = None,
    tokenizer: Path | None = None,
    progress: Callable[[str, RolloutResult], None] = lambda _name, _result: None,
) -> Trial:
    """Roll a checkpoint out beside its controls.

    A policy whose state is as long as tip and blocks together (`--state state+env_state` in the
    plan) is fed both: the way to go without cameras.

    Args:
        path: a checkpoint's folder, or the folder of a run (its latest checkpoint).
        episodes: starts; every policy gets the same.
        seed: of the starts.
        purpose: `ASSESS` while developing, `EXAM` for the figure that is published.
        execute: actions of each chunk that are executed before the policy is asked again.
        control: also assess the policy told another colour.
        keep: played episodes to keep in each assessment.
        config: the scene; where the policy was trained on pictures of another size, they are
            rendered in that.
        tokenizer: file of the tokenizer that the plan was made with, where it is not built in.
        progress: called with the policy's name after each episode.

    Raises:
        CheckpointError: there is no usable checkpoint.
        SimulationError: the policy was trained on a recording of something else.
        RenderingUnavailableError: it needs cameras and no OpenGL context can be made.
    """
    folder = find_checkpoint(path)
    policy = Policy.load(folder, tokenizer=tokenizer)
    config = config or SceneConfig()
    if policy.spec.image_size is not None:
        config = replace(config, image_size=policy.spec.image_size)
    foreign = set(policy.spec.cameras) - set(CAMERAS)
    tip, blocks = len(STATE_NAMES), 2 * config.num_blocks
    if (
        foreign
        or policy.spec.action_dim != len(ACTION_NAMES)
        or policy.spec.state_dim not in {tip, tip + blocks}
    ):
        raise SimulationError(
            f"{folder} was not trained on this simulation: cameras"
            f" {', '.join(policy.spec.cameras) or 'none'}, state of {policy.spec.state_dim} and"
            f" action of {policy.spec.action_dim} elements; record one with headrace simulate"
        )

    def judge(who: Policy | RandomPolicy, scene: Scene, name: str, *, lie: bool) -> Assessment:
        return assess(
            who,
            scene,
            name=name,
            episodes=episodes,
            seed=seed,
            purpose=purpose,
            execute=execute,
            misinform=lie,
            privileged=policy.spec.state_dim > tip,
            keep=keep,
            progress=lambda result: progress(name, result),
        )

    seen = policy.spec.cameras if policy.spec.layout.image_tokens else ()
    with Scene(config, cameras=seen) as scene, Scene(config, cameras=()) as blind:
        return Trial(
            checkpoint=folder,
            run_id=read_progress(folder).run_id,
            privileged=policy.spec.state_dim > tip,
            trained=judge(policy, scene, folder.name, lie=False),
            misinformed=judge(policy, scene, "told wrongly", lie=True) if control else None,
            random=judge(RandomPolicy(), blind, "random", lie=False),
        )

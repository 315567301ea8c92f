"""Success of a policy on starts it has never seen, with its uncertainty."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from training.simulation.policies import Policy
from training.simulation.rollout import RolloutResult, rollout
from training.simulation.scene import Scene
from training.simulation.task import Purpose, Start, instruction_for, sample_start
from training.simulation.wilson import wilson_interval


@dataclass(frozen=True, kw_only=True)
class Score:
    """Successes out of episodes.

    Attributes:
        successes: episodes in which the asked block was the first that was touched.
        wrong: episodes in which another block was.
        episodes: all of them; the rest ran out of time.
    """

    successes: int
    wrong: int
    episodes: int

    @property
    def rate(self) -> float:
        """Share of successes."""
        return self.successes / self.episodes

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the rate."""
        return wilson_interval(self.successes, self.episodes)


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """How a policy did.

    Attributes:
        policy: its name.
        purpose: which random stream the starts came from.
        seed: and its seed.
        total: all episodes.
        by_instruction: the same for each instruction.
        mean_steps: mean length of the successful episodes, or None without any.
        samples: the first played episodes, to look at.
    """

    policy: str
    purpose: Purpose
    seed: int
    total: Score
    by_instruction: dict[str, Score]
    mean_steps: float | None
    samples: tuple[RolloutResult, ...]


def assess(
    policy: Policy,
    scene: Scene,
    *,
    name: str,
    episodes: int,
    seed: int,
    purpose: Purpose = Purpose.ASSESS,
    execute: int = 6,
    misinform: bool = False,
    privileged: bool = False,
    keep: int = 0,
    progress: Callable[[RolloutResult], None] = lambda _: None,
) -> Assessment:
    """Roll a policy out on `episodes` starts.

    Args:
        policy: who acts.
        scene: where; its cameras are what the policy sees.
        name: what to call the policy.
        episodes: how many starts, at least 1; equally many per instruction if a multiple.
        seed: of the starts.
        purpose: `ASSESS` while developing, `EXAM` for the figure that is published.
        execute: actions of each chunk that are executed before the policy is asked again.
        misinform: tell the policy another colour and score the asked one all the same: a policy
            that hears its instruction falls to nothing, one that ignores it scores as before.
        privileged: append where the blocks are to the state, for a policy trained so.
        keep: how many played episodes to return.
        progress: called after each episode.

    Raises:
        SimulationError: no episodes were asked for.
        PolicyMismatchError: the policy's actions do not fit the scene.
    """
    wilson_interval(0, episodes)  # refuses before the first rollout
    outcomes: dict[str, list[RolloutResult]] = {
        instruction_for(colour): [] for colour in scene.config.colours
    }
    samples: list[RolloutResult] = []
    for episode in range(episodes):
        start = sample_start(scene.config, purpose, seed, episode)
        result = rollout(
            policy,
            scene,
            start,
            seed=episode,
            execute=execute,
            privileged=privileged,
            instruction=_another_instruction(scene, start) if misinform else None,
        )
        outcomes[start.instruction].append(replace(result, images={}))  # pictures are large
        if len(samples) < keep:
            samples.append(result)
        progress(result)
    played = [result for results in outcomes.values() for result in results]
    lengths = [result.steps for result in played if result.success]
    return Assessment(
        policy=name,
        purpose=purpose,
        seed=seed,
        total=_score(played),
        by_instruction={text: _score(results) for text, results in outcomes.items() if results},
        mean_steps=sum(lengths) / len(lengths) if lengths else None,
        samples=tuple(samples),
    )


def _score(results: list[RolloutResult]) -> Score:
    return Score(
        successes=sum(result.success for result in results),
        wrong=sum(result.touched is not None and not result.success for result in results),
        episodes=len(results),
    )


def _another_instruction(scene: Scene, start: Start) -> str:
    colours = scene.config.colours
    return instruction_for(colours[(start.target + 1) % len(colours)])

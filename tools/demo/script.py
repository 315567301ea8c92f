"""What the demo does: the commands a user would type, in order, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Windows of the simulated set, state and text included, cost about 35 tokens: this is some 64 of
# them in a step, which two ranks can share.
_BUDGET_TOKENS = 1152
_SLOTS = 2
_HORIZON = 8
_BLIND_LAYOUT = ("--image-tokens", "0", "--state", "state+env_state")
_BLIND_EPISODES_FACTOR = 4

CONTENT_SQL = (
    "SELECT dataset, format, count(*) AS episodes, sum(num_steps) AS steps,"
    " round(sum(video_bytes) / 1e6, 2) AS video_mb"
    " FROM episodes GROUP BY ALL ORDER BY episodes DESC"
)
LENGTHS_SQL = (
    "SELECT instruction, count(*) AS episodes, min(num_steps) AS shortest,"
    " round(avg(num_steps), 1) AS mean, max(num_steps) AS longest,"
    " count(*) FILTER (success) AS successful"
    " FROM episodes WHERE dataset = 'headrace_demo' GROUP BY 1 ORDER BY 1"
)
LINEAGE_SQL = (
    "SELECT evaluation_id, success_rate, checkpoint, run_id, plan, selection_sql FROM lineage"
)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One command of the demo.

    Attributes:
        title: what happens.
        why: what to look at in its output.
        arguments: of `headrace`.
    """

    title: str
    why: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DemoSize:
    """How much the demo does.

    Attributes:
        episodes: demonstrations recorded.
        epochs: passes over them; each is packed afresh.
        rollouts: starts on which the policy is assessed.
    """

    episodes: int = 99
    epochs: int = 10
    rollouts: int = 60


def stages(
    out: Path, *, size: DemoSize, seed: int, cameras: bool, recordings: Sequence[Path]
) -> list[Stage]:
    """The demo's commands.

    Args:
        out: folder of all it writes.
        size: how much of it.
        seed: of recording, plan, weights and rollouts.
        cameras: record pictures; False where the machine has no OpenGL. The policy is then fed
            where the blocks are (privileged), and needs more episodes to learn from numbers.
        recordings: further recordings to ingest beside the simulated ones.
    """
    lake, recorded, run = str(out / "demo.lake"), out / "headrace_demo", out / "run"
    episodes = size.episodes if cameras else _BLIND_EPISODES_FACTOR * size.episodes
    tokens = ("--image-tokens", "1") if cameras else _BLIND_LAYOUT
    seen = "the instruction" + (", a state and its pictures" if cameras else " and a state")
    others = [str(path) for path in recordings]
    return [
        Stage(
            title="Record demonstrations",
            why="A scripted expert in a physics simulation; HDF5 files in the ALOHA layout.",
            arguments=(
                "simulate",
                *("--out", str(recorded), "--episodes", str(episodes), "--seed", str(seed)),
                *("--picture", str(out / "recording.png")),
                *(() if cameras else ("--no-cameras",)),
            ),
        ),
        Stage(
            title="Ingest them into a lake" + (", with real recordings" if others else ""),
            why=("HDF5 holds raw pictures: they are encoded, once. " if cameras else "")
            + "Video files are copied as they are. What is wrong in a recording is reported.",
            arguments=("ingest", str(recorded), *others, lake),
        ),
        Stage(
            title="Ask the lake: what is in it?",
            why="SQL by DuckDB over a catalog that is rebuilt from the lake.",
            arguments=(
                "sql",
                lake,
                CONTENT_SQL,
            ),
        ),
        Stage(
            title="Ask again: how do the demonstrations differ?",
            why="Lengths differ by a factor of several: what padded batches waste.",
            arguments=(
                "sql",
                lake,
                LENGTHS_SQL,
            ),
        ),
        Stage(
            title="Plan every training step",
            why=(
                f"Every span is a window: {seen}, and {_HORIZON} actions. The plan is data: hashed,"
                " certified, the same for one process or several."
            ),
            arguments=(
                *("pack", lake, "dataset = 'headrace_demo' AND success", "--name", "demo"),
                *("--spans", "window", "--horizon", str(_HORIZON), *tokens),
                *("--budget-tokens", str(_BUDGET_TOKENS), "--slots", str(_SLOTS)),
                *("--epochs", str(size.epochs), "--seed", str(seed)),
                *("--picture", str(out / "plan.png")),
            ),
        ),
        Stage(
            title="Stream it",
            why="Packs as a trainer gets them, without one.",
            arguments=("load", lake, "demo", "--steps", "40"),
        ),
        Stage(
            title=f"Train a {'vision-' if cameras else ''}language-action policy",
            why=(
                f"From {seen} to {_HORIZON} actions, by flow matching on packed batches. Stopped,"
                " the same command resumes bit-equal."
            ),
            arguments=("train", lake, "demo", "--out", str(run), "--seed", str(seed)),
        ),
        Stage(
            title="Let it act on starts it has never seen",
            why="Beside a random policy, and beside itself told another colour.",
            arguments=(
                *("assess", str(run), "--exam", "--episodes", str(size.rollouts)),
                *("--seed", str(seed), "--lake", lake, "--picture", str(out / "rollout.png")),
            ),
        ),
        Stage(
            title="Where did that policy come from?",
            why="Evaluation, run, plan and selection are rows of the same lake.",
            arguments=("sql", lake, LINEAGE_SQL),
        ),
        Stage(
            title="Packed against padded",
            why="Same spans, same order, same model; with equal lengths there is nothing to gain.",
            arguments=("bench", "training", "--quick"),
        ),
    ]

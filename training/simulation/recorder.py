"""Write played episodes as HDF5 files in the ALOHA layout."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.simulation.errors import SimulationError, SimulatorMissingError
from training.simulation.mjcf import CAMERAS
from training.simulation.policies import expert_actor
from training.simulation.rollout import RolloutResult, play
from training.simulation.scene import Scene
from training.simulation.task import Purpose, SceneConfig, sample_start

EMBODIMENT = "pointer-gantry"
TASK = "go-to-block"


@dataclass(frozen=True, kw_only=True)
class RecordReport:
    """What was recorded.

    Attributes:
        files: `episode_<n>.hdf5`, in order.
        lengths: steps of each.
        successes: episodes in which the asked block was touched; the others are kept too, with
            `success=False`.
        cameras: cameras recorded.
    """

    files: tuple[Path, ...]
    lengths: tuple[int, ...]
    successes: int
    cameras: tuple[str, ...]


def record(
    out_dir: Path,
    episodes: int,
    seed: int,
    *,
    cameras: tuple[str, ...] = CAMERAS,
    config: SceneConfig | None = None,
    progress: Callable[[RolloutResult], None] = lambda _: None,
) -> RecordReport:
    """Record demonstrations of the scripted expert, one HDF5 file each.

    The same arguments give the same numbers; pictures may differ in the last bit between OpenGL
    implementations.

    Args:
        out_dir: folder, created if need be; it must hold no `episode_*.hdf5` yet.
        episodes: how many.
        seed: of the starts.
        cameras: of `mjcf.CAMERAS`; `()` records state and actions alone.
        config: the scene.
        progress: called after each episode.

    Raises:
        SimulationError: the folder already holds episodes, or cannot be written.
        RenderingUnavailableError: cameras were asked for and no OpenGL context can be made.
    """
    if episodes < 1:
        raise SimulationError(f"record at least one episode, not {episodes}")
    require_empty(out_dir)
    files, lengths, successes = [], [], 0
    with Scene(config, cameras=cameras) as scene:
        for episode in range(episodes):
            start = sample_start(scene.config, Purpose.RECORD, seed, episode)
            result = play(scene, start, expert_actor(scene))
            path = out_dir / f"episode_{episode}.hdf5"
            write_episode(
                path,
                result,
                scene.config,
                origin={"policy": "scripted-expert", "purpose": "record", "seed": seed},
            )
            files.append(path)
            lengths.append(result.steps)
            successes += result.success
            progress(result)
    return RecordReport(
        files=tuple(files), lengths=tuple(lengths), successes=successes, cameras=cameras
    )


def require_empty(folder: Path) -> None:
    """Refuse a folder that already holds episodes, so that no two recordings mix.

    Raises:
        SimulationError: it does.
    """
    if any(folder.glob("episode_*.hdf5")):
        raise SimulationError(f"{folder} already holds episodes; choose another folder")


def write_episode(
    path: Path,
    result: RolloutResult,
    config: SceneConfig,
    *,
    origin: Mapping[str, str | int],
) -> None:
    """Write one played episode, a demonstration or a policy's rollout alike.

    Layout (that of ACT's `record_sim_episodes.py`, whose attributes are `sim` and `compress`):

        /observations/images/<camera>  uint8   [T, H, W, 3] RGB, one frame per chunk
        /observations/qpos             float32 [T, 3]  tip x, y, z, metres
        /observations/qvel             float32 [T, 3]  metres per second
        /observations/env_state        float32 [T, 2 * num_blocks]  x, y of each block, metres
        /action                        float32 [T, 3]  displacement of the set-point, metres
        attributes of the root: sim, compress, fps, instruction, task, success, embodiment,
            origin_<key> for every key of `origin` (who acted, for what, from which seed)

    `env_state` is privileged: a policy that acts from pictures must not be fed it.

    The file appears whole or not at all: it is written beside its place and renamed.

    Raises:
        SimulatorMissingError: h5py is not installed.
        SimulationError: the file cannot be written.
    """
    try:
        import h5py  # noqa: PLC0415  optional
    except ModuleNotFoundError as error:
        raise SimulatorMissingError("recording needs h5py: pip install 'headrace[sim]'") from error
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(unfinished, "w") as file:
            file.attrs.update(
                sim=True,
                compress=False,
                fps=float(config.control_hz),
                instruction=result.start.instruction,
                task=TASK,
                success=np.bool_(result.success),
                embodiment=EMBODIMENT,
                **{f"origin_{key}": value for key, value in origin.items()},
            )
            seen = file.create_group("observations")
            for camera, pictures in result.images.items():
                seen.create_dataset(
                    f"images/{camera}", data=pictures, chunks=(1, *pictures.shape[1:])
                )
            seen.create_dataset("qpos", data=result.states)
            seen.create_dataset("qvel", data=result.velocities)
            seen.create_dataset("env_state", data=result.env_states)
            file.create_dataset("action", data=result.actions)
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        unfinished.replace(path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise SimulationError(f"cannot write {path}: {error}") from error

"""Lakes of short episodes, one window each, for benches of vision-language-action training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from lake import CameraSpec, CameraVideo, Episode, FeatureSpec, Lake, Provenance, Spec, create_lake
from lake.video_encode import encode_frames
from lake.writer import EpisodeWriter

PIXELS: Final = 224  # of a side, as pi0.5 sees them


@dataclass(frozen=True, kw_only=True)
class Robot:
    """What the recordings of an embodiment hold.

    Attributes:
        name: of the embodiment and its data set.
        cameras: present in each window, by name.
        steps: of a window's action chunk.
        state: elements.
        action: elements.
        share: windows of this robot over all windows, before rounding.
    """

    name: str
    cameras: tuple[str, ...]
    steps: int
    state: int
    action: int
    share: float = 1.0

    @property
    def spec(self) -> Spec:
        """Features and cameras."""
        sizes: Mapping[Literal["state", "action"], int] = {
            "state": self.state,
            "action": self.action,
        }
        return Spec(
            features=tuple(
                FeatureSpec(name=role, source_name=role, dtype="float32", shape=(size,), role=role)
                for role, size in sizes.items()
            ),
            cameras=tuple(
                CameraSpec(name=camera, source_name=camera, height=PIXELS, width=PIXELS)
                for camera in self.cameras
            ),
        )


def make_window_lake(
    folder: Path, robots: Sequence[Robot], instructions: Sequence[str], *, windows: int
) -> Lake:
    """Episodes as long as a chunk, so that windows of that stride are one for each.

    Args:
        folder: of the new lake.
        robots: in the proportions of their shares, each at least once.
        instructions: taken in turn.
        windows: about how many in all.
    """
    rng = np.random.default_rng(7)
    whole = sum(robot.share for robot in robots)
    drawn = [r for r in robots for _ in range(max(1, round(windows * r.share / whole)))]
    lake = create_lake(folder)
    with EpisodeWriter(lake) as writer:
        for number, robot in enumerate(drawn):
            signals = {
                feature.name: rng.standard_normal((robot.steps, *feature.shape)).astype(np.float32)
                for feature in robot.spec.features
            }
            writer.add(
                Episode(
                    episode_id=f"bench/{number}",
                    ingest_key=f"bench/{number}",
                    source="bench",
                    dataset=robot.name,
                    embodiment=robot.name,
                    spec=robot.spec,
                    fps=10.0,
                    timestamps_ns=np.arange(robot.steps, dtype=np.int64) * 100_000_000,
                    features=signals,
                    cameras={camera: _still(rng, robot.steps) for camera in robot.cameras},
                    provenance=Provenance(
                        format="synthetic", files=(), locator=str(number), reader="bench"
                    ),
                    instruction=instructions[number % len(instructions)],
                )
            )
    return lake


def _still(rng: np.random.Generator, steps: int) -> CameraVideo:
    """A window shows one picture; the later steps repeat it."""
    coarse = rng.integers(0, 256, (PIXELS // 16, PIXELS // 16, 3), dtype=np.uint8)
    picture = coarse.repeat(16, axis=0).repeat(16, axis=1)
    return encode_frames([picture], fps=10, step_to_frame=np.zeros(steps, np.int32))

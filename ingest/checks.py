"""What every episode is checked for, whatever its format.

Nothing is repaired: an episode goes into the lake as recorded and carries what was found.
"""

from typing import Final

import numpy as np

from ingest.source import Finding
from lake.episode import Episode

_RATE_TOLERANCE: Final = 0.05


def check_episode(episode: Episode) -> list[Finding]:
    """Findings on the step grid, the numbers and the frame maps of an episode."""
    return [*_check_times(episode), *_check_numbers(episode), *_check_frames(episode)]


def _check_times(episode: Episode) -> list[Finding]:
    times = episode.timestamps_ns
    if len(times) < 2:
        return []
    where = episode.provenance.locator

    def finding(reason: str, detail: str) -> Finding:
        return Finding(
            severity="warning",
            reason=reason,
            where=where,
            detail=detail,
            episode=where,
            stream="timestamps",
        )

    steps = np.diff(times)
    backwards, equal = np.flatnonzero(steps < 0), np.flatnonzero(steps == 0)
    if not steps.any():
        return [
            finding(
                "constant-timestamps", f"all {len(times)} steps have one time; kept as they are"
            )
        ]
    found = []
    if backwards.size:
        found.append(
            finding(
                "backward-timestamps",
                f"time goes back after {backwards.size} steps, first after step {backwards[0]};"
                " kept as they are",
            )
        )
    if equal.size:
        found.append(
            finding(
                "repeated-timestamps",
                f"{equal.size} steps have the time of the step before, first step"
                f" {equal[0] + 1}; kept as they are",
            )
        )
    if episode.fps and not backwards.size:
        rate = 1e9 * len(steps) / float(times[-1] - times[0])
        if abs(rate - episode.fps) > _RATE_TOLERANCE * episode.fps:
            found.append(
                finding(
                    "rate-differs",
                    f"{rate:.3f} steps/s by the timestamps, {episode.fps:g} declared; the"
                    " timestamps are kept",
                )
            )
    return found


def _check_numbers(episode: Episode) -> list[Finding]:
    found = []
    for name, values in episode.features.items():
        if values.dtype.kind != "f":
            continue
        steps = ~np.isfinite(values.reshape(episode.num_steps, -1)).all(axis=1)
        if name in episode.valid:
            steps &= episode.valid[name]
        if steps.any():
            found.append(
                Finding(
                    severity="warning",
                    reason="not-finite",
                    where=episode.provenance.locator,
                    detail=f"{steps.sum()} steps hold NaN or infinity, first step"
                    f" {np.flatnonzero(steps)[0]}; kept as recorded",
                    episode=episode.provenance.locator,
                    stream=name,
                )
            )
    return found


def _check_frames(episode: Episode) -> list[Finding]:
    found = []
    for name, video in episode.cameras.items():
        missing = np.flatnonzero(video.index.step_to_frame < 0)
        if missing.size:
            found.append(
                Finding(
                    severity="warning",
                    reason="steps-without-frame",
                    where=episode.provenance.locator,
                    detail=f"{missing.size} of {episode.num_steps} steps have no frame, first step"
                    f" {missing[0]}; they are marked (-1), not filled",
                    episode=episode.provenance.locator,
                    stream=name,
                )
            )
    return found

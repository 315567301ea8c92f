"""Small streams with stamps in milliseconds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingest.alignment.align import Aligned, align
from ingest.alignment.policy import AlignmentPolicy
from ingest.timed import TimedCamera, TimedValues
from lake.video_encode import encode_frames
from tests.ingest.hdf5_files import pictures

MS = 1_000_000


def stream(name: str, stamps: Sequence[int], values: Any = None, **about: Any) -> TimedValues:
    """Values count up in order of arrival where not given."""
    array = np.arange(len(stamps), dtype=np.float64) if values is None else np.asarray(values)
    clocks = {"log": np.array(stamps, np.int64) * MS, **about.pop("clocks", {})}
    return TimedValues(name=name, source_name=f"/{name}", clocks=clocks, values=array, **about)


def camera(
    stamps: Sequence[int], name: str = "top", frames: Sequence[int] | None = None
) -> TimedCamera:
    """A frame per stamp where not given."""
    shown = np.array(range(len(stamps)) if frames is None else frames, np.int32)
    count = int(shown.max(initial=0)) + 1
    video = encode_frames(pictures(count, height=16, width=16), fps=10, step_to_frame=shown)
    clocks = {"log": np.array(stamps, np.int64) * MS}
    return TimedCamera(name=name, source_name=f"/{name}", clocks=clocks, video=video)


def aligned(
    values: Sequence[TimedValues], cameras: Sequence[TimedCamera] = (), **policy: Any
) -> Aligned:
    return align(values, cameras, AlignmentPolicy(**policy), where="a.mcap", locator="a")


def reasons(result: Aligned) -> list[tuple[str, str, str]]:
    """Severity, stream and reason of what is worse than information."""
    return [(f.severity, f.stream, f.reason) for f in result.findings if f.severity != "info"]


def details(result: Aligned, reason: str) -> dict[str, str]:
    """Stream -> detail."""
    return {f.stream: f.detail for f in result.findings if f.reason == reason}


def steps_ms(result: Aligned) -> list[int]:
    return [int(time) // MS for time in result.timestamps_ns]

"""Options that `ingest`, `inspect` and `doctor` share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

if TYPE_CHECKING:
    from ingest.source import SourceOptions

Dataset: TypeAlias = Annotated[
    str | None, typer.Option(help="Name of the dataset, in place of the folder's.")
]
Embodiment: TypeAlias = Annotated[
    str | None, typer.Option(help="Robot type, in place of the recording's own.")
]
Rate: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--fps",
        min=0.001,
        help="Steps per second, for recordings that store no rate, or have streams of several.",
    ),
]
Alignment: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help='JSON of how streams with clocks of their own become steps, such as {"grid_fps": 20,'
        ' "streams": {"imu": {"method": "linear"}}}.'
    ),
]
EpisodeMarker: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TOPIC",
        help="Logs of messages: each message on this topic begins an episode; false, 0, stop or"
        " end ends it.",
    ),
]
EpisodeGap: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Logs of messages: so long without any message ends an episode."
    ),
]


def source_options(
    dataset: str | None,
    embodiment: str | None,
    fps: float | None,
    images: Literal["h264", "png"] = "h264",
    alignment: Path | None = None,
    marker: str | None = None,
    gap_s: float | None = None,
) -> "SourceOptions":
    """The user's choices as the readers take them."""
    from ingest.alignment.policy import AlignmentPolicy
    from ingest.episode_cuts import EpisodeCuts
    from ingest.errors import IngestError
    from ingest.source import SourceOptions

    policy = AlignmentPolicy()
    if alignment is not None:
        try:
            policy = AlignmentPolicy.from_json(alignment.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, IngestError) as error:
            raise IngestError(f"{alignment}: {error}") from error
    return SourceOptions(
        dataset=dataset,
        embodiment=embodiment,
        fps=fps,
        images=images,
        alignment=policy,
        cuts=EpisodeCuts(marker=marker, gap_s=gap_s),
    )

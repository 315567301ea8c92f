"""Options that `ingest`, `inspect` and `doctor` share."""

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
    typer.Option("--fps", min=0.001, help="Steps per second, for recordings that store no times."),
]


def source_options(
    dataset: str | None,
    embodiment: str | None,
    fps: float | None,
    images: Literal["h264", "png"] = "h264",
) -> "SourceOptions":
    """The user's choices as the readers take them."""
    from ingest.source import SourceOptions

    return SourceOptions(dataset=dataset, embodiment=embodiment, fps=fps, images=images)

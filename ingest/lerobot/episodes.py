"""An episode as the metadata of a LeRobot dataset lists it, in either layout."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class VideoPlace:
    """Where the metadata says an episode's video of one camera is.

    Attributes:
        file: path relative to the dataset's root, by the declared template.
        from_s: seconds at which the episode starts inside the file; 0 in v2, one file per episode.
        to_s: where it ends as declared, or None. Only compared, never used: it is met as N/fps and
            as (N-1)/fps.
    """

    file: str
    from_s: float = 0.0
    to_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class EpisodeRecord:
    """One listed episode.

    Attributes:
        index: episode index.
        length: number of steps as declared, None where the list does not say.
        tasks: task texts as declared.
        data_file: parquet file with the rows, relative to the root.
        row_range: (first, stop) global row of the dataset as declared (v3), or None (v2).
        videos: camera key -> place, for cameras the metadata gives a place for.
    """

    index: int
    length: int | None
    tasks: tuple[str, ...]
    data_file: str
    row_range: tuple[int, int] | None = None
    videos: Mapping[str, VideoPlace] = field(default_factory=dict)

    @property
    def locator(self) -> str:
        """Name of the episode inside the dataset, e.g. `episode_000003`."""
        return f"episode_{self.index:06d}"

"""What a decode process is asked to do, as a message."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from loader.batch import ImageFormat
from loader.storage.settings import StorageSettings


@dataclass(frozen=True, kw_only=True)
class Job:
    """A share of one rank's packs.

    Attributes:
        lake_uri, storage_options: the lake; options cross the socket, never argv or environment.
        rank, world_size, first_step: where the rank stands in the plan.
        worker, num_workers: which blocks of the rank's packs are this process's.
        decode_threads: of this process.
        buffer_bytes: bound of this process.
        image_size: (height, width) or None.
        image_format: see `PackedBatch.images`.
        decode_device: see `PackLoader`; None in a decode process.
        materialized: name of the set of materialised packs to read, None to read the episodes.
        storage: how the lake is read.
    """

    lake_uri: str
    storage_options: Mapping[str, str]
    rank: int
    world_size: int
    first_step: int
    worker: int
    num_workers: int
    decode_threads: int
    buffer_bytes: int
    image_size: tuple[int, int] | None
    image_format: ImageFormat
    decode_device: str | None
    materialized: str | None
    storage: StorageSettings

    def to_message(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"job": asdict(self)}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Inverse of `to_message`."""
        fields: dict[str, Any] = dict(message["job"])
        if fields["image_size"] is not None:
            fields["image_size"] = tuple(fields["image_size"])
        fields["storage"] = StorageSettings(**fields["storage"])
        return cls(**fields)

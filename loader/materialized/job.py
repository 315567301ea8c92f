"""What a process of `loader.materialized.materialize` is asked to do, as a message."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class MaterializeJob:
    """A set to write into; the plan crosses beside it.

    Attributes:
        lake_uri, storage_options: the lake; options cross the socket, never argv or environment.
        set_name: of a set that is there, complete or not.
    """

    lake_uri: str
    storage_options: Mapping[str, str]
    set_name: str

    def to_message(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"job": asdict(self)}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Inverse of `to_message`."""
        return cls(**message["job"])

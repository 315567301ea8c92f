"""`metadata.yaml` of a bag: which files, and how many messages there should be.

Source: rosbag2_storage's metadata (versions 1 to 9).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ingest.errors import MissingReaderError

NAME: Final = "metadata.yaml"
_KEY: Final = "rosbag2_bagfile_information"
_MOST_CHARACTERS: Final = 16 << 20


@dataclass(frozen=True, kw_only=True)
class BagMetadata:
    """What a bag's metadata says.

    Attributes:
        files: as listed.
        counts: topic -> messages.
    """

    files: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


def is_metadata(path: Path) -> bool:
    """Whether a file is the metadata of a bag."""
    try:
        with path.open("rb") as file:
            return _KEY.encode() in file.read(4096)
    except OSError:
        return False


def read_metadata(path: Path) -> BagMetadata:
    """Read it.

    Raises:
        ValueError: it says nothing that can be used, and why.
        MissingReaderError: ruamel.yaml is not installed.
    """
    try:
        from ruamel.yaml import YAML  # noqa: PLC0415  an extra
        from ruamel.yaml.error import YAMLError  # noqa: PLC0415
    except ImportError as error:
        raise MissingReaderError(
            "ROS 2 bags need the package ruamel.yaml: pip install 'headrace[ros]'"
        ) from error
    try:
        with path.open(encoding="utf-8") as file:
            parsed: Any = YAML(typ="safe", pure=True).load(file.read(_MOST_CHARACTERS))
        about = parsed[_KEY]
        files = about.get("relative_file_paths") or ()
        topics = about.get("topics_with_message_count") or ()
        counts = {str(t["topic_metadata"]["name"]): int(t["message_count"]) for t in topics}
        return BagMetadata(files=tuple(map(str, files)), counts=counts)
    except (
        YAMLError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ValueError(" ".join(str(error).split())[:160]) from error

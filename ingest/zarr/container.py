"""The files of a Zarr hierarchy, in a folder or in a zip, looked at without the library.

Layouts from the Zarr specifications, version 2 (`.zgroup`, `.zarray`) and 3 (`zarr.json`).
"""

import json
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import xxhash

from ingest.errors import SourceError
from ingest.source import file_fingerprint

_METADATA: Final = (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json")
_ENDS: Final = ("meta/episode_ends", "episode_ends")
_SAMPLED: Final = 64
_MOST_METADATA_BYTES: Final = 16 << 20
_ZIP_MAGIC: Final = b"PK\x03\x04"


@dataclass(frozen=True)
class Container:
    """A folder or a zip that may hold a hierarchy.

    Attributes:
        path: of it.
    """

    path: Path

    @property
    def is_zip(self) -> bool:
        """Whether it is a file; then it is a zip or nothing."""
        return self.path.is_file()

    @cached_property
    def names(self) -> frozenset[str]:
        """Every file below it, relative, with `/`.

        Raises:
            SourceError: a damaged zip.
        """
        if not self.is_zip:
            return frozenset(
                found.relative_to(self.path).as_posix()
                for found in self.path.rglob("*")
                if found.is_file()
            )
        try:
            with zipfile.ZipFile(self.path) as archive:
                return frozenset(archive.namelist())
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise SourceError(
                f"{self.path}: a zip that is damaged or cut short ({error})", reason="damaged-file"
            ) from error

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return name in self.names if self.is_zip else (self.path / name).is_file()

    def arrays(self) -> list[str]:
        """Paths of all arrays, sorted.

        Raises:
            SourceError: a damaged zip, or metadata that is no JSON.
        """
        found = []
        for name in sorted(self.names):
            folder, _, file = name.rpartition("/")
            is_array = file == ".zarray" or (
                file == "zarr.json" and self._json(name).get("node_type") == "array"
            )
            if folder and is_array:
                found.append(folder)
        return found

    def _json(self, name: str) -> dict[str, Any]:
        try:
            if self.is_zip:
                with zipfile.ZipFile(self.path) as archive, archive.open(name) as file:
                    content = file.read(_MOST_METADATA_BYTES)
            else:
                with (self.path / name).open("rb") as file:
                    content = file.read(_MOST_METADATA_BYTES)
            value = json.loads(content)
        except (OSError, ValueError, RecursionError, zipfile.BadZipFile) as error:
            raise SourceError(
                f"{self.path}: {name}: no JSON ({error})", reason="bad-json"
            ) from error
        return value if isinstance(value, dict) else {}

    @property
    def episode_ends(self) -> str | None:
        """Path of the array that says where episodes end, None where there is none."""
        for name in _ENDS:
            if any(self.has(f"{name}/{file}") for file in (".zarray", "zarr.json")):
                return name
        return None

    def fingerprint(self) -> str:
        """Of a zip, that of the file; of a folder, of all names and sizes, and some contents.

        Contents are those of all metadata and of 64 other files, evenly spread over their names.
        """
        if self.is_zip:
            return file_fingerprint(self.path)
        digest = xxhash.xxh3_128()
        chunks = 0
        every = max(1, len(self.names) // _SAMPLED)
        for name in sorted(self.names):
            digest.update(name.encode("utf-8", "surrogateescape") + b"\0")
            is_chunk = name.rsplit("/", 1)[-1] not in _METADATA
            if is_chunk and chunks % every:
                digest.update(str((self.path / name).stat().st_size).encode())
            else:
                digest.update(file_fingerprint(self.path / name).encode())
            chunks += is_chunk
        return digest.hexdigest()


def is_replay_buffer(path: Path) -> bool:
    """True for a Zarr hierarchy, in a folder or a zip, with an array `episode_ends`."""
    try:
        if path.is_file():
            with path.open("rb") as file:
                if file.read(len(_ZIP_MAGIC)) != _ZIP_MAGIC:
                    return False
        elif not path.is_dir():
            return False
        return Container(path).episode_ends is not None
    except (OSError, SourceError):
        return False

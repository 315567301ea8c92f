"""RLDS datasets as TensorFlow Datasets writes them: an episode per record.

Layout from TensorFlow Datasets (`<name>/<version>/<name>-<split>.tfrecord-00000-of-000NN` with
`dataset_info.json` and `features.json`) and google-research/rlds. A lone shard is read as well.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from ingest.arrays.recorded import read_recorded
from ingest.rlds.array_record import is_array_record
from ingest.rlds.crc32c import crc32c_of_data
from ingest.rlds.dataset import FEATURES, INFO, open_dataset
from ingest.rlds.dataset_info import ShardName, is_shard_name
from ingest.rlds.episode import Place, describe_example
from ingest.rlds.shards import ListedRecord
from ingest.rlds.tfrecord import is_tfrecord
from ingest.source import (
    EpisodeEntry,
    EpisodeReading,
    Finding,
    Format,
    SourceOptions,
    first_spec,
    printable,
)
from lake.spec import Spec

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")


class RldsSource:
    """A dataset's folder, or one of its shards.

    Args:
        root: the folder with the shards, or a shard.
        options: the user's choices.

    Raises:
        MissingReaderError: google-crc32c or array-record is not installed.
        SourceError: no shard that can be read.
    """

    def __init__(self, root: Path, options: SourceOptions) -> None:
        self.root = root
        self._options = options
        self._dataset = open_dataset(root)
        kinds = {is_array_record(listed.shard.path) for listed in self._dataset.shards}
        if False in kinds:
            crc32c_of_data()  # told now: an episode that cannot be read would be quarantined
        self.format: Final = "rlds-array-record" if kinds == {True} else "rlds-tfrecord"

    @cached_property
    def dataset(self) -> str:
        """The user's name for the dataset, else the declared one, else the folder's or file's."""
        root = self.root.resolve()
        if _VERSION.fullmatch(root.name):
            root = root.parent
        return printable(self._options.dataset or self._dataset.name or root.name)

    @cached_property
    def spec(self) -> Spec:
        """Spec of the first episode that can be read."""
        return first_spec(self)

    def entries(self) -> Sequence[EpisodeEntry]:
        """The records, shard by shard."""
        return list(self._entries)

    def findings(self) -> Sequence[Finding]:
        """What is declared and not there, or lost."""
        return self._dataset.findings

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read one record.

        Raises:
            EpisodeError: its checksum differs, or it holds no episode.
        """
        record, place = self._entries[entry]
        recorded, cameras = describe_example(
            record.read(), self._dataset.features, place, self._options
        )
        return read_recorded(
            recorded,
            entry,
            format_name=self.format,
            reader="rlds",
            source=printable(self.root.resolve().name),
            dataset=self.dataset,
            options=self._options,
            videos=cameras,
        )

    def close(self) -> None:
        """Nothing stays open between episodes."""

    @cached_property
    def _entries(self) -> dict[EpisodeEntry, tuple[ListedRecord, Place]]:
        entries = {}
        for listed in self._dataset.shards:
            file = printable(listed.shard.path.name)
            for number, record in enumerate(listed.shard.records):
                place = Place(
                    file=file,
                    locator=f"{file}/{number}",
                    declared_name=self._dataset.name,
                    split=listed.split,
                )
                prints = [record.fingerprint, self._dataset.features_fingerprint]
                entries[EpisodeEntry.of(self, place.locator, prints)] = (record, place)
        return entries


def recognises(path: Path) -> bool:
    """True for a TFRecord or ArrayRecord file, or a folder of shards with a TFDS JSON file."""
    try:
        if path.is_file():
            named = ShardName.of(path.name) is not None
            return named or is_tfrecord(path) or is_array_record(path)
        if not path.is_dir() or not ((path / INFO).is_file() or (path / FEATURES).is_file()):
            return False
        return any(is_shard_name(child.name) for child in path.iterdir())
    except OSError:
        return False


FORMAT: Final = Format(
    name="rlds",
    looks_for="TFRecord or ArrayRecord shards, alone or beside features.json (RLDS, TFDS)",
    recognises=recognises,
    open=RldsSource,
    needs=("google_crc32c", "array_record"),
    extra="rlds",
)

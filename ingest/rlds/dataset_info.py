"""What `dataset_info.json` declares: name, splits, and how many records each shard has.

Source: TensorFlow Datasets, `core/proto/dataset_info.proto` and `core/naming.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from ingest.rlds.features import read_json

_TEMPLATE: Final = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_SHARD_NAME: Final = re.compile(
    r"(?:(?P<dataset>.*)-)?(?P<split>[^-]+)\.(?P<kind>tfrecord|array_record)"
    r"(?:-(?P<index>\d{5,})-of-(?P<count>\d{5,}))?"
)
_MAX_SHARDS: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """The declarations.

    Attributes:
        name: of the dataset, "" where it is not stated.
        file_format: `tfrecord`, `array_record`, ... as stated.
        shards: file name -> (split, records declared).
        wrong: sentences on parts that could not be understood.
    """

    name: str = ""
    file_format: str = "tfrecord"
    shards: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file; parts that make no sense are named in `wrong`.

        Raises:
            SourceError: unreadable, or no JSON object.
        """
        stated = read_json(path)
        name, file_format = str(stated.get("name", "")), str(stated.get("fileFormat", "tfrecord"))
        shards: dict[str, tuple[str, int]] = {}
        wrong: list[str] = []
        splits = stated.get("splits")
        for split in splits if isinstance(splits, list) else []:
            try:
                shards |= _shards(split, name, file_format)
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                wrong.append(f"a split cannot be understood ({type(error).__name__}: {error})")
        return cls(name=name, file_format=file_format, shards=shards, wrong=tuple(wrong))


def _shards(split: dict[str, Any], name: str, file_format: str) -> dict[str, tuple[str, int]]:
    lengths = [int(length) for length in split.get("shardLengths", [])]
    split_name = str(split["name"])
    if len(lengths) > _MAX_SHARDS or min(lengths, default=0) < 0:
        raise ValueError(f"{len(lengths)} shards")
    found = {}
    for index, length in enumerate(lengths):
        file_name = str(split.get("filepathTemplate") or _TEMPLATE)
        for key, value in (
            ("DATASET", name),
            ("SPLIT", split_name),
            ("FILEFORMAT", file_format),
            ("SHARD_X_OF_Y", f"{index:05d}-of-{len(lengths):05d}"),
            ("SHARD_INDEX", f"{index:05d}"),
            ("NUM_SHARDS", f"{len(lengths):05d}"),
        ):
            file_name = file_name.replace("{" + key + "}", value)
        if file_name != Path(file_name).name:
            raise ValueError(f"shard {file_name!r} is not beside dataset_info.json")
        found[file_name] = (split_name, length)
    return found


@dataclass(frozen=True, kw_only=True)
class ShardName:
    """What a shard's own name says: `<dataset>-<split>.tfrecord-00000-of-00001`."""

    dataset: str
    split: str | None

    @classmethod
    def of(cls, file_name: str) -> Self | None:
        """None where it is no name that TFDS gives; of `a.tfrecord` the split is unknown."""
        match = _SHARD_NAME.fullmatch(file_name)
        if match is None:
            return None
        dataset, split = match["dataset"], match["split"]
        if match["index"] is None or dataset is None:
            return cls(dataset=dataset + "-" + split if dataset else split, split=None)
        return cls(dataset=dataset, split=split)


def is_shard_name(file_name: str) -> bool:
    """Whether a file is named as a shard is."""
    return ShardName.of(file_name) is not None

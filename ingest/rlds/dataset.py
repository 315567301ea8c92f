"""The files of a TFDS dataset against what `dataset_info.json` declares."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ingest.errors import SourceError
from ingest.natural_order import natural_key
from ingest.rlds.dataset_info import DatasetInfo, ShardName
from ingest.rlds.features import Leaf, read_features
from ingest.rlds.shards import Shard, list_shard
from ingest.source import Finding, file_fingerprint, printable

INFO: Final = "dataset_info.json"
FEATURES: Final = "features.json"


@dataclass(frozen=True, kw_only=True)
class ListedShard:
    """A shard with the split it belongs to, None where nothing says."""

    shard: Shard
    split: str | None


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A dataset (or a lone shard), listed.

    Attributes:
        name: as declared, or as its files are called; "" where neither says.
        shards: those that are there, in order of their names.
        features: `features.json`, None where there is none that can be read.
        features_fingerprint: of that file, "" where there is none.
        findings: what is declared and not there, lost, or there and not declared.
    """

    name: str
    shards: tuple[ListedShard, ...]
    features: Mapping[str, Leaf] | None
    features_fingerprint: str
    findings: tuple[Finding, ...]


def open_dataset(root: Path) -> Dataset:
    """List a dataset's folder, or one shard with the JSON files beside it.

    Raises:
        SourceError: no shard that can be read.
        MissingReaderError: an optional package is not installed.
    """
    folder = root if root.is_dir() else root.parent
    findings: list[Finding] = []
    info = _read_info(folder, findings)
    features, fingerprint = _read_features(folder, findings)
    if root.is_dir():
        there = [path for path in folder.iterdir() if ShardName.of(path.name)]
        paths = sorted(there, key=lambda path: natural_key(path.name))
        _compare_names({path.name for path in paths}, info, findings)
    else:
        paths = [root]
    shards: list[ListedShard] = []
    reason: SourceError | None = None
    for path in paths:
        declared_split, declared_count = info.shards.get(path.name, (None, None))
        name = ShardName.of(path.name)
        try:
            shard = list_shard(path)
        except SourceError as error:
            reason = error
            findings.append(_finding("error", error.reason, path.name, str(error)))
            continue
        shards.append(
            ListedShard(shard=shard, split=declared_split or (name.split if name else None))
        )
        findings += _losses(shard, declared_count)
    if not any(listed.shard.records for listed in shards):
        if reason and len(paths) == 1:
            raise reason
        kind = f"; its files are of the format {info.file_format}" if info.shards else ""
        raise SourceError(f"{root}: no record that can be read{kind}", reason="no-record")
    first = ShardName.of(paths[0].name)
    return Dataset(
        name=info.name or (first.dataset if first else ""),
        shards=tuple(shards),
        features=features,
        features_fingerprint=fingerprint,
        findings=tuple(findings),
    )


def _read_info(folder: Path, findings: list[Finding]) -> DatasetInfo:
    path = folder / INFO
    if not path.exists():
        return DatasetInfo()
    try:
        info = DatasetInfo.read(path)
    except SourceError as error:
        detail = f"{error}; what is there is read, whether it is all is not known"
        findings.append(_finding("warning", error.reason, INFO, detail))
        return DatasetInfo()
    findings += [_finding("warning", "bad-split", INFO, sentence) for sentence in info.wrong]
    return info


def _read_features(folder: Path, findings: list[Finding]) -> tuple[Mapping[str, Leaf] | None, str]:
    path = folder / FEATURES
    inferred = "types and shapes are inferred from the counts of values"
    if not path.exists():
        findings.append(_finding("info", "no-features-json", FEATURES, f"not there: {inferred}"))
        return None, ""
    try:
        return read_features(path), file_fingerprint(path)
    except SourceError as error:
        findings.append(_finding("warning", error.reason, FEATURES, f"{error}; {inferred}"))
        return None, file_fingerprint(path)


def _compare_names(there: set[str], info: DatasetInfo, findings: list[Finding]) -> None:
    for name, (split, count) in info.shards.items():
        if name not in there and count:
            detail = f"declared with {count} episodes of the split {split}, and not there"
            findings.append(_finding("error", "missing-shard", name, detail))
    for name in sorted(there - set(info.shards)) if info.shards else ():
        detail = f"not declared in {INFO}; it is read"
        findings.append(_finding("warning", "undeclared-shard", name, detail))


def _losses(shard: Shard, declared: int | None) -> list[Finding]:
    count = len(shard.records)
    if shard.damage:
        told = f"; {declared} are declared" if declared is not None else ""
        detail = f"{shard.damage}; the {count} records before are read{told}"
        return [_finding("error", "damaged-shard", shard.path.name, detail)]
    if declared is not None and declared != count:
        detail = f"{declared} records are declared, {count} are there"
        severe = "error" if count < declared else "warning"
        return [_finding(severe, "wrong-shard-length", shard.path.name, detail)]
    return []


def _finding(severity: str, reason: str, where: str, detail: str) -> Finding:
    return Finding(
        severity="error" if severity == "error" else "warning" if severity == "warning" else "info",
        reason=reason,
        where=printable(where),
        detail=detail,
    )

"""What a recording holds, before anything is ingested: its tree, counts, a sample, findings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ingest.errors import EpisodeError
from ingest.natural_order import natural_key
from ingest.pipeline import read_episode
from ingest.source import EpisodeReading, Finding, Source

_TREE_LINES: Final = 40
_PER_FOLDER: Final = 6


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A look at one recording.

    Attributes:
        tree: lines of the file tree, long folders shortened.
        episodes, steps: as listed; steps is None where a length is not listed.
        sample: the first episode that can be read, or None.
        findings: what the source tells without reading, and what reading the sample told.
    """

    tree: tuple[str, ...]
    episodes: int
    steps: int | None
    sample: EpisodeReading | None
    findings: tuple[Finding, ...]


def inspect_source(source: Source) -> Inspection:
    """Look at an open source; at most one episode is read to its end."""
    entries = source.entries()
    lengths = [entry.num_steps for entry in entries if entry.num_steps is not None]
    sample: EpisodeReading | None = None
    refused: list[Finding] = []
    for entry in entries:
        try:
            sample = read_episode(source, entry)
            break
        except EpisodeError as error:
            if not refused:
                refused.append(Finding.refused(entry.locator, error))
    return Inspection(
        tree=tuple(file_tree(source.root)),
        episodes=len(entries),
        steps=sum(lengths) if len(lengths) == len(entries) else None,
        sample=sample,
        findings=(*source.findings(), *refused, *(sample.findings if sample else ())),
    )


def file_tree(root: Path, max_lines: int = _TREE_LINES) -> list[str]:
    """Files under `root` with sizes, indented by level; long folders show their first entries."""
    if root.is_file():
        return [f"{root.name}  {_size(root.stat().st_size)}"]
    lines = [f"{root.name}/"]

    def walk(folder: Path, indent: str) -> None:
        try:
            children = sorted(folder.iterdir(), key=lambda path: natural_key(path.name))
        except OSError as error:
            lines.append(f"{indent}cannot be listed: {error.strerror}")
            return
        for child in children[:_PER_FOLDER]:
            if len(lines) >= max_lines:
                return
            if child.is_dir():
                lines.append(f"{indent}{child.name}/")
                walk(child, indent + "  ")
            else:
                size = _size(child.stat().st_size) if child.exists() else "(broken link)"
                lines.append(f"{indent}{child.name}  {size}")
        if len(children) > _PER_FOLDER:
            lines.append(f"{indent}... {len(children) - _PER_FOLDER} more")

    walk(root, "  ")
    return lines


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"

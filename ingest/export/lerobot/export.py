"""Export episodes of a lake as LeRobot datasets, all or nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ingest.export.errors import ExportError
from ingest.export.facts import choose_episodes
from ingest.export.lerobot.layout_v3 import LayoutV3
from ingest.export.lerobot.layout_v21 import LayoutV21
from ingest.export.lerobot.output import Layout
from ingest.export.lerobot.plan import Choices, ExportPlan, difference, plan_export
from ingest.export.lerobot.schema import Schema
from ingest.export.lerobot.write import Written, write_dataset
from ingest.export.new_folder import new_folder
from ingest.report import FindingGroup
from ingest.source import Finding
from lake.episode import Episode
from lake.store import Lake

_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class ExportProgress:
    """How far an export is: episodes checked or written, of how many; steps written."""

    phase: Literal["check", "write"]
    done: int
    total: int
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """What an export did.

    Attributes:
        datasets: folder of each dataset -> what is in it.
        findings: errors are episodes that were left out, infos what LeRobot has no place for.
    """

    datasets: dict[Path, Written] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def left_out(self) -> int:
        """Episodes that were left out."""
        return sum(finding.severity == "error" for finding in self.findings)

    def groups(self) -> list[FindingGroup]:
        """Findings by severity, reason and stream, those about left-out episodes first."""
        groups: dict[tuple[str, str, str], FindingGroup] = {}
        for finding in sorted(self.findings, key=lambda finding: finding.severity):
            key = (finding.severity, finding.reason, finding.stream)
            if key in groups:
                groups[key].count += 1
            else:
                groups[key] = FindingGroup(first=finding)
        return list(groups.values())


def export_lerobot(
    lake: Lake,
    destination: Path,
    episode_ids: Sequence[str] | None = None,
    *,
    choices: Choices,
    on_unfit: Literal["fail", "skip"] = "fail",
    several: bool = False,
    data_file_mb: int = 100,
    video_file_mb: int = 200,
    progress: Callable[[ExportProgress], None] = lambda _: None,
) -> ExportReport:
    """Write episodes as a LeRobot dataset, or several.

    Everything is checked before anything is written; killed anywhere, nothing is at `destination`.

    Args:
        lake: where from.
        destination: a folder that is not there yet.
        episode_ids: which, None for all.
        choices: layout, and what is left out or renamed.
        on_unfit: whether an episode that LeRobot cannot express stops the export or is left out.
        several: write a folder of datasets, one for all episodes that agree.
        data_file_mb: v3.0: size at which the next data file begins.
        video_file_mb: v3.0: size at which the next video file begins.
        progress: told after each episode.

    Raises:
        ExportError: nothing to export, `destination` exists, an episode does not fit (unless
            skipped), or episodes do not agree (unless `several`).
        CorruptDataError: stored bytes do not match their checksums.
    """
    addresses = choose_episodes(lake, episode_ids)
    total = len(addresses)
    with new_folder(destination) as folder:
        plan = plan_export(
            lake,
            addresses,
            choices,
            lambda done: progress(ExportProgress(phase="check", done=done, total=total)),
        )
        _require_fit(plan, total, choices, on_unfit, several=several)
        total = sum(len(dataset.episodes) for dataset in plan.datasets)
        done = steps = 0

        def on_episode(episode: Episode) -> None:
            nonlocal done, steps
            done, steps = done + 1, steps + episode.num_steps
            progress(ExportProgress(phase="write", done=done, total=total, steps=steps))

        written: dict[Path, Written] = {}
        names = _folders([dataset.name for dataset in plan.datasets]) if several else [""]
        for name, dataset in zip(names, plan.datasets, strict=True):
            root = folder / name
            root.mkdir(exist_ok=True)
            layout = _layout(root, dataset.schema, choices, data_file_mb, video_file_mb)
            written[destination / name] = write_dataset(lake, dataset, root, layout, on_episode)
    return ExportReport(datasets=written, findings=tuple(plan.findings))


def _layout(
    root: Path, schema: Schema, choices: Choices, data_file_mb: int, video_file_mb: int
) -> Layout:
    if choices.version == "2.1":
        return LayoutV21(root, schema)
    return LayoutV3(root, schema, data_file_mb=data_file_mb, video_file_mb=video_file_mb)


def _require_fit(
    plan: ExportPlan,
    total: int,
    choices: Choices,
    on_unfit: Literal["fail", "skip"],
    *,
    several: bool,
) -> None:
    errors = [finding for finding in plan.findings if finding.severity == "error"]
    if errors and (on_unfit == "fail" or not plan.datasets):
        first: dict[tuple[str, str], Finding] = {}
        for error in errors:
            first.setdefault((error.reason, error.stream), error)
        shown = [
            f"episode {error.episode}{error.stream and f', {error.stream}'}: {error.detail}"
            for error in list(first.values())[:_SHOWN]
        ]
        more = f"; and {len(first) - _SHOWN} other reasons" if len(first) > _SHOWN else ""
        skip = "" if on_unfit == "skip" else "; --on-unfit skip exports the others"
        raise ExportError(
            f"{len(errors)} of {total} episodes cannot be written as lerobot-v{choices.version}:"
            f" {'; '.join(shown)}{more}{skip}"
        )
    if len(plan.datasets) > 1 and not several:
        one, other = plan.datasets[:2]
        raise ExportError(
            f"episodes do not fit into one dataset, they would be {len(plan.datasets)}: of"
            f" {one.episodes[0].episode_id} and {other.episodes[0].episode_id}"
            f" {difference(one.schema, other.schema)}; choose among them, leave out what differs"
            " (--leave-out), or write a folder of datasets (--several)"
        )


def _folders(names: Sequence[str]) -> list[str]:
    """A folder's name for each dataset, no two alike."""
    taken: dict[str, int] = {}
    result = []
    for name in names:
        plain = name.replace("/", "_").replace("\0", "_").strip(".") or "dataset"
        taken[plain] = taken.get(plain, 0) + 1
        result.append(plain if taken[plain] == 1 else f"{plain}-{taken[plain]}")
    return result

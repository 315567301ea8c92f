"""Which episodes make which datasets, found out before anything is written."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from numpy.typing import NDArray

from ingest.export.errors import ExportError, UnfitError
from ingest.export.facts import EpisodeFacts, read_facts
from ingest.export.lerobot.modality import modality
from ingest.export.lerobot.names import lerobot_keys
from ingest.export.lerobot.schema import (
    Schema,
    Version,
    camera_of,
    column_of,
    with_index_columns,
)
from ingest.export.lerobot.tasks import (
    TASK_INDEX,
    TaskUse,
    annotation_features,
    task_use,
)
from ingest.export.lerobot.timeline import (
    MAX_EPISODE_S,
    check_shown,
    fits_clock,
    place,
    step_times,
)
from ingest.source import Finding
from lake.spec import Spec
from lake.store import Lake

_READ: Final = ("timestamp", TASK_INDEX)  # by their names in the source
_DEFAULT_SPLIT: Final = "train"


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the user decides.

    Attributes:
        version: layout.
        left_out: names in the lake of features and cameras that are not written.
        renamed: names in the lake -> LeRobot's keys.
    """

    version: Version = "3.0"
    left_out: Collection[str] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PlannedEpisode:
    """An episode that fits: its row, its split and its tasks."""

    address: int
    episode_id: str
    split: str
    tasks: TaskUse


@dataclass(kw_only=True)
class PlannedDataset:
    """Episodes that one dataset can hold, in its order, which keeps splits together."""

    schema: Schema
    name: str
    episodes: list[PlannedEpisode]


@dataclass(kw_only=True)
class ExportPlan:
    """Datasets, and what was found: episodes that fit into none, and what goes missing."""

    datasets: list[PlannedDataset]
    findings: list[Finding]


def plan_export(
    lake: Lake,
    addresses: Sequence[int],
    choices: Choices,
    progress: Callable[[int], None] | None = None,
) -> ExportPlan:
    """Check every episode and put those that agree together.

    Args:
        lake: where.
        addresses: rows, in order.
        choices: of the user.
        progress: told how many episodes have been looked at.

    Raises:
        ExportError: a name among the choices that no episode has.
        CorruptDataError: stored values do not match their checksums.
    """
    datasets: dict[Schema, PlannedDataset] = {}
    findings: list[Finding] = []
    names: set[str] = set()
    for number, facts in enumerate(read_facts(lake, addresses, _small_features)):
        try:
            schema, episode = _check(facts, choices)
        except UnfitError as error:
            findings.append(_refused(facts.episode_id, error))
        else:
            dataset = datasets.setdefault(
                schema, PlannedDataset(schema=schema, name=facts.dataset, episodes=[])
            )
            dataset.episodes.append(episode)
            findings += _lost(facts, schema)
        names |= {feature.name for feature in facts.features}
        names |= {camera.name for camera in facts.signals.spec.cameras}
        if progress is not None:
            progress(number + 1)
    if unknown := sorted({*choices.left_out, *choices.renamed} - names):
        raise ExportError(
            f"no feature or camera is called {unknown[0]!r}; there are {', '.join(sorted(names))}"
        )
    for dataset in datasets.values():
        splits = list(dict.fromkeys(episode.split for episode in dataset.episodes))
        dataset.episodes.sort(key=lambda episode: splits.index(episode.split))
    return ExportPlan(datasets=list(datasets.values()), findings=findings)


def difference(a: Schema, b: Schema) -> str:
    """What keeps the episodes of two schemas from being one dataset."""
    for what in ("fps", "robot_type"):
        if (one := getattr(a, what)) != (other := getattr(b, what)):
            return f"{what} is {one!r} and {other!r}"
    ours = {part.key: part for part in a.parts()}
    theirs = {part.key: part for part in b.parts()}
    if only := sorted(ours.keys() ^ theirs.keys()):
        return f"only some have {', '.join(only)}"
    for key, part in ours.items():
        if part != theirs[key]:
            mine, other = a.declared()[key], b.declared()[key]
            facts = [name for name in mine if mine[name] != other[name]]
            first = facts[0] if facts else "name in the lake"
            return f"{key} differs: {first} is {mine.get(first)} and {other.get(first)}"
    return "the order of features" if a.modality == b.modality else "modality.json"


def _check(facts: EpisodeFacts, choices: Choices) -> tuple[Schema, PlannedEpisode]:
    """Schema and plan of an episode.

    Raises:
        UnfitError: LeRobot cannot express it.
    """
    features = [f for f in facts.features if f.name not in choices.left_out]
    for feature in features:
        if feature.name in facts.invalid:
            raise UnfitError(
                f"{facts.invalid[feature.name]} of {facts.signals.num_steps} steps are invalid, and"
                " LeRobot has no mark for that; split them off, or leave the feature out",
                reason="invalid-steps",
                stream=feature.name,
            )
    if facts.fps is None:
        raise UnfitError(
            "no rate is known; ingest the recording with --fps, or aligned to a grid of a rate",
            reason="no-rate",
        )
    if choices.version == "2.1" and not facts.fps.is_integer():
        raise UnfitError(
            f"{facts.fps:g} steps per second: LeRobot v2.1 has whole numbers; export as"
            " lerobot-v3.0",
            reason="unfit-rate",
        )
    specs = [c for c in facts.signals.spec.cameras if c.name in facts.cameras]
    specs = [c for c in specs if c.name not in choices.left_out]
    keys = lerobot_keys(facts.format, features, specs, choices.renamed)
    cameras = tuple(
        camera_of(c, facts.cameras[c.name], keys[c.name], choices.version) for c in specs
    )
    for camera in cameras:
        index = facts.cameras[camera.name]
        if camera.is_video:
            placement = place(camera.name, index)
            if choices.version == "2.1" and placement.first:
                raise UnfitError(
                    "the video begins with pictures before the first step, from which that one is"
                    " decoded; in LeRobot v2.1 a file begins with its first step: export as"
                    " lerobot-v3.0, or leave the camera out",
                    reason="pictures-before-start",
                    stream=camera.name,
                )
        else:
            check_shown(camera.name, index)
    episode = PlannedEpisode(
        address=facts.address,
        episode_id=facts.episode_id,
        split=facts.labels.split or _DEFAULT_SPLIT,
        tasks=task_use(facts, choices.left_out),
    )
    annotations = {
        keys[name]: annotation
        for name, annotation in annotation_features(facts.signals.spec).items()
        if name in episode.tasks.columns
    }
    columns = [column_of(feature, keys[feature.name]) for feature in features]
    schema = Schema(
        fps=facts.fps,
        robot_type=facts.embodiment,
        columns=with_index_columns(columns),
        cameras=cameras,
        modality=modality(facts.signals.spec, keys, cameras, annotations),
    )
    step_times(
        facts.signals.timestamps_ns, facts.fps, recorded_times(schema, facts.signals.features)
    )
    return schema, episode


def recorded_times(schema: Schema, features: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
    """Values of the feature that the column `timestamp` is, None where there is none."""
    column = next(column for column in schema.columns if column.key == "timestamp")
    return features[column.name] if column.name else None


def _small_features(spec: Spec) -> set[str]:
    """Features that are looked at before anything is written."""
    own = {feature.name for feature in spec.features if feature.source_name in _READ}
    return own | annotation_features(spec).keys()


def _refused(episode_id: str, error: UnfitError) -> Finding:
    return Finding(
        severity="error",
        reason=error.reason,
        where=episode_id,
        detail=str(error),
        episode=episode_id,
        stream=error.stream,
    )


def _lost(facts: EpisodeFacts, schema: Schema) -> list[Finding]:
    """What LeRobot has no place for in an episode that fits."""

    def lost(reason: str, detail: str, stream: str = "") -> Finding:
        return Finding(
            severity="info",
            reason=reason,
            where=facts.episode_id,
            detail=detail,
            episode=facts.episode_id,
            stream=stream,
        )

    found = []
    labels = facts.labels
    written = {column.name for column in schema.columns}
    features = [feature for feature in facts.features if feature.name in written]
    if labels.success is not None and not any(f.role in {"success", "reward"} for f in features):
        found.append(lost("success-not-written", "LeRobot has no label for success"))
    if labels.instruction and labels.task and labels.task != labels.instruction:
        found.append(lost("task-not-written", "the instruction is written, not the task's name"))
    if labels.quality is not None:
        found.append(lost("quality-not-written", "LeRobot has no label for quality"))
    if labels.tags:
        found.append(lost("tags-not-written", f"LeRobot has no tags: {', '.join(labels.tags)}"))
    if conventions := facts.signals.spec.conventions:
        detail = f"LeRobot has no place for conventions: {', '.join(sorted(conventions))}"
        found.append(lost("conventions-not-written", detail))
    if schema.videos and facts.signals.num_steps / schema.fps > MAX_EPISODE_S:
        detail = f"beyond {MAX_EPISODE_S:g} s LeRobot's own rounding may refuse pictures"
        found.append(lost("long-episode", detail))
    if not labels.text:
        found.append(lost("no-task", "neither instruction nor task; the text is empty"))
    times = recorded_times(schema, facts.signals.features)
    if times is not None and not fits_clock(times, schema.fps):
        found.append(lost("start-moved", "its times do not begin at 0; they are written from 0"))
    found += [
        lost("units-not-written", "LeRobot has no place for units", feature.name)
        for feature in features
        if feature.units is not None
    ]
    return found

"""A LeRobot dataset as a source: v2.0, v2.1 and v3.0."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

from ingest.errors import EpisodeError
from ingest.lerobot.cameras import CameraReader
from ingest.lerobot.consistency import check_files, check_metadata, drop_duplicates
from ingest.lerobot.episode import Rows, frame_index, read_rows, step_grid
from ingest.lerobot.episodes import EpisodeRecord
from ingest.lerobot.features import RecordedFeature, build_spec, declared_columns
from ingest.lerobot.info import read_info
from ingest.lerobot.labels import read_labels
from ingest.lerobot.layout_v2 import list_episodes_v2
from ingest.lerobot.layout_v3 import list_episodes_v3
from ingest.lerobot.modality import read_modality
from ingest.lerobot.rows import DataFile
from ingest.lerobot.tasks import read_tasks
from ingest.reader_name import reader_name
from ingest.source import (
    EpisodeEntry,
    EpisodeReading,
    Finding,
    Format,
    SourceOptions,
    file_fingerprint,
    printable,
)
from lake.episode import Episode, Provenance
from lake.spec import Spec

_MARKS: Final = ("meta/episodes.jsonl", "meta/episodes", "meta/tasks.jsonl", "meta/tasks.parquet")


class LeRobotSource:
    """An open LeRobot dataset.

    Args:
        root: folder that holds `meta/`.
        options: the user's choices; `images` does not apply, nothing is re-encoded.

    Raises:
        SourceError: metadata missing, empty or not understood.
    """

    def __init__(self, root: Path, options: SourceOptions) -> None:
        self.root = root
        self._name = printable(root.resolve().name)
        self._info = read_info(root)
        if options.fps is not None:
            self._info = replace(self._info, fps=options.fps)
        self._options = options
        self._tasks, found = read_tasks(root)
        self._modality, bad_modality = read_modality(root)
        list_episodes = list_episodes_v3 if self._info.version == "3.0" else list_episodes_v2
        listed, bad_lists = list_episodes(root, self._info)
        self._records, doubled = drop_duplicates(listed)
        self._cameras = CameraReader(root, self._info, self._records)
        self._findings = [*found, *bad_modality, *bad_lists, *doubled]
        self._data: DataFile | EpisodeError | None = None
        self._data_name = ""
        self._fingerprints: dict[str, str] = {}
        self._specs: dict[tuple[RecordedFeature, ...], Spec] = {}

    @property
    def format(self) -> str:
        """`lerobot-v2.0`, `lerobot-v2.1` or `lerobot-v3.0`."""
        return f"lerobot-v{self._info.version}"

    @property
    def dataset(self) -> str:
        """The user's name for the dataset, else the folder's."""
        return printable(self._options.dataset or self._name)

    @property
    def embodiment(self) -> str:
        """The user's robot type, else the declared one."""
        return self._options.embodiment or self._info.robot_type or "unknown"

    @cached_property
    def spec(self) -> Spec:
        """Spec as declared, with the types of the first data file that can be opened."""
        schema = None
        for name in dict.fromkeys(record.data_file for record in self._records):
            if (self.root / name).is_file():
                try:
                    schema = self._open(name).schema
                except EpisodeError:
                    continue
                break
        return build_spec(self._info, self._modality, declared_columns(self._info, schema))[0]

    def entries(self) -> Sequence[EpisodeEntry]:
        """All listed episodes by index, those whose files are missing too."""
        return [self._entry(record) for record in self._records]

    def findings(self) -> Sequence[Finding]:
        """What is wrong with the dataset as a whole, as far as known."""
        return [
            *self._findings,
            *check_metadata(self._info, self._records, self._tasks),
            *check_files(self.root, self._info, self._records, self._cameras.files),
        ]

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read one episode.

        Raises:
            EpisodeError: its rows are missing or damaged.
        """
        record = self._by_locator[entry.locator]
        data = self._open(record.data_file)
        table, findings = data.episode_rows(
            record,
            shared=self._info.version == "3.0",
            first_row=self._first_rows.get(record.data_file, 0),
        )
        rows = read_rows(self.root, self._info, record, table)
        values = rows.values()
        times, bad_times = step_grid(record, values, table.num_rows, self._info.fps)
        cut = self._cameras.cut(record, table.num_rows, frame_index(values))
        labels, bad_labels = read_labels(record, values, self._tasks, self._modality)
        spec = self._spec_of(rows)
        features = {feature.source_name: feature.name for feature in spec.features}
        cameras = {camera.source_name: camera.name for camera in spec.cameras}
        episode = Episode(
            episode_id=entry.episode_id,
            ingest_key=entry.ingest_key,
            source=self._name,
            dataset=self.dataset,
            embodiment=self.embodiment,
            spec=spec,
            fps=self._info.fps,
            timestamps_ns=times,
            features={features[key]: column.values for key, column in rows.columns.items()},
            valid={
                features[key]: column.valid
                for key, column in rows.columns.items()
                if column.valid is not None
            },
            cameras={cameras[key]: video for key, video in {**cut.videos, **rows.pictures}.items()},
            task=labels.instruction,
            instruction=labels.instruction,
            success=labels.success,
            split=self._info.split_of(record.index),
            tags=labels.tags,
            provenance=Provenance(
                format=self.format,
                files=(record.data_file, *cut.files),
                locator=record.locator,
                reader=reader_name("lerobot"),
            ),
        )
        found = (*findings, *rows.findings, *bad_times, *cut.findings, *bad_labels)
        return EpisodeReading(episode=episode, findings=found)

    def close(self) -> None:
        """Close data and video files."""
        self._cameras.close()
        if isinstance(self._data, DataFile):
            self._data.close()
        self._data, self._data_name = None, ""

    @cached_property
    def _by_locator(self) -> dict[str, EpisodeRecord]:
        return {record.locator: record for record in self._records}

    @cached_property
    def _first_rows(self) -> dict[str, int]:
        """Data file -> global row at which it starts."""
        first: dict[str, int] = {}
        for record in self._records:
            if record.row_range is not None:
                start = record.row_range[0]
                first[record.data_file] = min(start, first.get(record.data_file, start))
        return first

    def _entry(self, record: EpisodeRecord) -> EpisodeEntry:
        files = [record.data_file]
        for key, place in record.videos.items():
            files.append(self._cameras.files.find(key, place.file) or place.file)
        return EpisodeEntry.of(
            self, record.locator, [self._fingerprint(name) for name in files], record.length
        )

    def _fingerprint(self, name: str) -> str:
        if name not in self._fingerprints:
            self._fingerprints[name] = file_fingerprint(self.root / name)
        return self._fingerprints[name]

    def _open(self, name: str) -> DataFile:
        """The data file, opened; a failure is remembered for the other episodes in it."""
        if name != self._data_name or self._data is None:
            if isinstance(self._data, DataFile):
                self._data.close()
            self._data_name = name
            try:
                self._data = DataFile(self.root, name)
            except EpisodeError as error:
                self._data = error
            else:
                self._note_orphan_rows(self._data)
        if isinstance(self._data, EpisodeError):
            raise self._data
        return self._data

    def _note_orphan_rows(self, data: DataFile) -> None:
        if self._info.version != "3.0" or data.episode_index is None:
            return
        listed = [r.index for r in self._records if r.data_file == data.where]
        orphans = data.count_unlisted(listed)
        finding = Finding(
            severity="warning",
            reason="orphan-rows",
            where=data.where,
            detail=f"{orphans} of {data.num_rows} rows belong to no episode listed for this file;"
            " they are not read",
        )
        if orphans and finding not in self._findings:
            self._findings.append(finding)

    def _spec_of(self, rows: Rows) -> Spec:
        """Spec of an episode's own columns; what differs from the declaration is noted once."""
        recorded = {
            key: RecordedFeature(
                key=key,
                dtype="string" if column.values.dtype == object else str(column.values.dtype),
                shape=column.values.shape[1:],
                as_json=column.as_json,
            )
            for key, column in rows.columns.items()
        }
        declared = [key for key in self._info.features if key in recorded]
        others = sorted(key for key in recorded if key not in self._info.features)
        columns = tuple(recorded[key] for key in [*declared, *others])
        if columns not in self._specs:
            self._specs[columns], found = build_spec(self._info, self._modality, columns)
            self._findings += [finding for finding in found if finding not in self._findings]
        return self._specs[columns]


def recognises(path: Path) -> bool:
    """True for a folder with `meta/info.json`, or with an episode or task list under `meta/`."""
    try:
        if (path / "meta" / "info.json").is_file():
            return True
        return any((path / mark).exists() for mark in _MARKS)
    except OSError:
        return False


def _open(path: Path, options: SourceOptions) -> LeRobotSource:
    return LeRobotSource(path, options)


FORMAT: Final = Format(
    name="lerobot",
    looks_for="a folder with meta/info.json (LeRobot v2.0, v2.1, v3.0; GR00T)",
    recognises=recognises,
    open=_open,
)

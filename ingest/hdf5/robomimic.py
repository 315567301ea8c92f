"""robomimic, robosuite and LIBERO: one file, one group `/data/demo_N` per episode.

Layouts from robomimic's dataset documentation, robosuite's demonstration files and LIBERO's
`create_dataset.py`. Differences that matter: raw robosuite files hold simulator states and no
observations; LIBERO appends an observation *after* the step, so obs[j] is the result of action[j];
pictures rendered by OpenGL convention stand upside down.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from ingest.arrays.recorded import Recorded, proposed_spec, read_recorded
from ingest.arrays.streams import Stream, broken_streams, distinct_names
from ingest.errors import EpisodeError, SourceError
from ingest.hdf5.environment import Environment
from ingest.hdf5.files import (
    attribute_flag,
    attribute_number,
    attribute_text,
    child,
    child_names,
    datasets_below,
    is_dataset,
    is_group,
    is_hdf5_name,
    num_rows,
    open_file,
    read_rows,
)
from ingest.hdf5.rows import Hdf5Rows
from ingest.natural_order import natural_key
from ingest.source import (
    EpisodeEntry,
    EpisodeReading,
    Finding,
    Format,
    SourceOptions,
    file_fingerprint,
    printable,
)
from lake.spec import Role, Spec, canonical_name

_ROLES: Final[dict[str, Role]] = {
    "actions": "action",
    "rewards": "reward",
    "dones": "done",
}
_NAMES: Final = {
    "actions": "action",
    "states": "states",
    "rewards": "reward",
    "dones": "done",
}
# File names that say nothing of the dataset; the folder's name is put before them.
_BLAND: Final = ("demo", "data", "dataset", "image", "low_dim", "raw", "ph", "mh")


class RobomimicSource:
    """One open robomimic, robosuite or LIBERO file.

    Args:
        root: the file.
        options: the user's choices.

    Raises:
        MissingReaderError: h5py is not installed.
        SourceError: missing, empty, damaged, or without `/data`.
    """

    def __init__(self, root: Path, options: SourceOptions) -> None:
        self.root = root
        self._options = options
        self._file = open_file(root)
        self._data = child(self._file, "data")
        if not is_group(self._data):
            self._file.close()
            raise SourceError(f"{root}: no group /data", reason="no-data-group")
        try:
            groups = [n for n in child_names(self._data) if is_group(child(self._data, n))]
            self._masks, self._lost_masks = _read_masks(self._file)
        except SourceError:
            self._file.close()
            raise
        self._demos = {printable(name): name for name in sorted(groups, key=natural_key)}
        self._environment = Environment.of(self._data.attrs)

    @cached_property
    def format(self) -> str:
        """`hdf5-libero`, `hdf5-robomimic` (with observations) or `hdf5-robosuite` (raw)."""
        if self._environment.is_libero:
            return "hdf5-libero"
        has_observations = any(
            child(child(self._data, name), "obs") is not None for name in self._demos.values()
        )
        return "hdf5-robomimic" if has_observations else "hdf5-robosuite"

    @cached_property
    def dataset(self) -> str:
        """The user's name, else the file's stem, after the folder's where that says nothing."""
        if self._options.dataset:
            return printable(self._options.dataset)
        path = self.root.resolve()
        return printable(f"{path.parent.name}_{path.stem}" if path.stem in _BLAND else path.stem)

    @cached_property
    def spec(self) -> Spec:
        """Spec of the first episode that can be described."""
        reason: Exception | None = None
        for name in self._demos:
            try:
                return proposed_spec(self._describe(name), name, self._options)
            except (SourceError, EpisodeError) as error:
                reason = reason or error
        raise SourceError(f"{self.root}: no episode can be read: {reason}", reason="no-episode")

    def entries(self) -> Sequence[EpisodeEntry]:
        """The groups of `/data`, `demo_2` before `demo_10`."""
        return self._entries

    def findings(self) -> Sequence[Finding]:
        """A declared total that is wrong, masks that name missing episodes or are lost."""
        return [*self._check_total(), *self._check_masks(), *self._lost_masks]

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read one episode.

        Raises:
            EpisodeError: it has no actions, or its bytes cannot be read.
        """
        try:
            recorded = self._describe(entry.locator)
        except SourceError as error:
            raise EpisodeError(str(error), reason=error.reason) from error
        return read_recorded(
            recorded,
            entry,
            format_name=self.format,
            reader="hdf5",
            source=printable(self.root.name),
            dataset=self.dataset,
            options=self._options,
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @cached_property
    def _entries(self) -> list[EpisodeEntry]:
        fingerprint = file_fingerprint(self.root)
        return [
            EpisodeEntry.of(
                self, locator, [fingerprint], num_rows(child(child(self._data, name), "actions"))
            )
            for locator, name in self._demos.items()
        ]

    def _describe(self, locator: str) -> Recorded:
        demo = child(self._data, self._demos[locator])
        num_steps = num_rows(child(demo, "actions"))
        where = f"{printable(self.root.name)}:/data/{locator}"
        if num_steps == 0:
            raise EpisodeError(
                f"{where}: no dataset `actions` with a row per step",
                reason="no-action",
                stream="action",
            )
        has_observations = child(demo, "obs") is not None
        streams: list[Stream] = []
        findings = self._check_declared(demo, locator, num_steps)
        broken: list[str] = []
        for path, dataset in datasets_below(demo, broken):
            if path.startswith("next_obs/") and len(dataset.shape or ()) == 4:
                findings.append(_next_pictures(path, locator))
                continue
            streams.append(
                Stream(
                    path=path,
                    where=f"{where}/{path}",
                    rows=Hdf5Rows(dataset, f"{where}/{path}"),
                    name=_stream_name(path),
                    role=_stream_role(path, has_observations=has_observations),
                    may_be_pictures=path.startswith("obs/"),
                )
            )
        masks = [name for name, members in self._masks.items() if locator in members]
        return Recorded(
            streams=distinct_names(streams),
            num_steps=num_steps,
            fps=self._options.fps or self._environment.rate_hz,
            files=(printable(self.root.name),),
            conventions=self._environment.conventions,
            findings=(*findings, *broken_streams(broken, where, locator)),
            labels={
                "embodiment": self._environment.robots or "unknown",
                "task": self._environment.task,
                "instruction": self._environment.instruction
                or attribute_text(demo.attrs, "language_instruction", "instruction"),
                "success": attribute_flag(demo.attrs, "success"),
                "split": next((m for m in ("train", "valid", "test") if m in masks), None),
                "tags": tuple(f"mask:{name}" for name in masks),
            },
        )

    def _check_declared(self, demo: Any, locator: str, steps: int) -> list[Finding]:  # noqa: ANN401
        declared = attribute_number(demo.attrs, "num_samples")
        if declared is None or declared == steps:
            return []
        return [
            _finding(
                "wrong-count", locator, f"num_samples says {declared:g}, there are {steps} actions"
            )
        ]

    def _check_total(self) -> list[Finding]:
        declared = attribute_number(self._data.attrs, "total")
        steps = sum(entry.num_steps or 0 for entry in self.entries())
        if declared is None or declared == steps:
            return []
        return [
            _finding("wrong-count", "data", f"total says {declared:g} steps, there are {steps}")
        ]

    def _check_masks(self) -> list[Finding]:
        found = []
        for name, members in self._masks.items():
            missing = sorted(members - set(self._demos), key=natural_key)
            if missing:
                detail = f"names {len(missing)} episodes that are not there, first {missing[0]}"
                found.append(_finding("mask-without-episode", f"mask/{name}", detail))
        return found


def _read_masks(file: Any) -> tuple[dict[str, set[str]], list[Finding]]:  # noqa: ANN401
    """Filter name -> the episodes it names; and the filters that cannot be read."""
    masks: dict[str, set[str]] = {}
    lost: dict[str, str] = {}
    group, broken = child(file, "mask"), list[str]()
    for name, dataset in datasets_below(group, broken) if is_group(group) else ():
        try:
            if num_rows(dataset) and dataset.dtype.kind in "OS":
                members = np.ravel(read_rows(dataset, 0, num_rows(dataset), f"mask/{name}"))
                masks[name] = {
                    m.decode("utf-8", "replace") if isinstance(m, bytes) else str(m)
                    for m in members
                }
        except (EpisodeError, TypeError) as error:
            lost[name] = str(error)
    lost |= dict.fromkeys(broken, "leads to nothing, or to damaged bytes")
    return masks, [
        Finding(
            severity="error",
            reason="lost-mask",
            where=f"mask/{name}",
            detail=f"{why}; episodes go in without this tag",
        )
        for name, why in lost.items()
    ]


def _stream_name(path: str) -> str:
    if path in _NAMES:
        return _NAMES[path]
    if path.startswith("next_obs/"):
        return canonical_name(path)
    return canonical_name(path.removeprefix("obs/"))


def _stream_role(path: str, *, has_observations: bool) -> Role:
    """Observations are the policy's state; simulator states are where there is nothing else."""
    if path in _ROLES:
        return _ROLES[path]
    if path.startswith("obs/"):
        return "state"
    return "state" if path == "states" and not has_observations else "other"


def _next_pictures(path: str, locator: str) -> Finding:
    return Finding(
        severity="info",
        reason="next-pictures-left-out",
        where=locator,
        detail="pictures under next_obs repeat those of obs one step later; they are not stored"
        " a second time",
        episode=locator,
        stream=canonical_name(path),
    )


def _finding(reason: str, where: str, detail: str) -> Finding:
    return Finding(
        severity="warning", reason=reason, where=where, detail=f"{detail}; the data counts"
    )


def recognises(path: Path) -> bool:
    """True for an HDF5 file with a group `/data` of groups that hold `actions`."""
    try:
        if not path.is_file() or not is_hdf5_name(path):
            return False
        with open_file(path) as file:
            data = child(file, "data")
            if not is_group(data):
                return False
            return any(
                is_dataset(child(child(data, name), "actions")) for name in child_names(data)
            )
    except (OSError, SourceError):
        return False


FORMAT: Final = Format(
    name="hdf5-robomimic",
    looks_for="an HDF5 file with /data/demo_N/actions (robomimic, robosuite, LIBERO)",
    recognises=recognises,
    open=RobomimicSource,
    needs=("h5py",),
    extra="hdf5",
)

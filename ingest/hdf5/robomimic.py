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

from ingest.errors import EpisodeError, SourceError
from ingest.hdf5.files import (
    attribute_flag,
    attribute_json,
    attribute_number,
    attribute_text,
    child,
    datasets_below,
    is_dataset,
    is_hdf5_name,
    open_file,
)
from ingest.hdf5.source import Recorded, proposed_spec, read_recorded
from ingest.hdf5.streams import Stream, distinct_names
from ingest.natural_order import natural_key
from ingest.source import (
    EpisodeEntry,
    EpisodeReading,
    Finding,
    Format,
    SourceOptions,
    file_fingerprint,
    ingest_key,
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
        data = child(self._file, "data")
        if data is None or not hasattr(data, "keys"):
            self._file.close()
            raise SourceError(f"{root}: no group /data", reason="no-data-group")
        self._data = data
        self._environment = {
            **attribute_json(data.attrs, "env_info"),
            **attribute_json(data.attrs, "env_args"),
        }
        self._problem = attribute_json(data.attrs, "problem_info")

    @property
    def format(self) -> str:
        """`hdf5-libero`, `hdf5-robomimic` (with observations) or `hdf5-robosuite` (raw)."""
        if self._problem or attribute_text(self._data.attrs, "bddl_file_name"):
            return "hdf5-libero"
        has_observations = any("obs" in self._data[name] for name in self._names)
        return "hdf5-robomimic" if has_observations else "hdf5-robosuite"

    @property
    def dataset(self) -> str:
        """The user's name, else the file's stem, after the folder's where that says nothing."""
        if self._options.dataset:
            return self._options.dataset
        path = self.root.resolve()
        return f"{path.parent.name}_{path.stem}" if path.stem in _BLAND else path.stem

    @cached_property
    def spec(self) -> Spec:
        """Spec of the first episode that can be described."""
        reason: Exception | None = None
        for name in self._names:
            try:
                return proposed_spec(self._describe(name), name, self._options)
            except EpisodeError as error:
                reason = reason or error
        raise SourceError(f"{self.root}: no episode can be read: {reason}", reason="no-episode")

    def entries(self) -> Sequence[EpisodeEntry]:
        """The groups of `/data`, `demo_2` before `demo_10`."""
        return self._entries

    def findings(self) -> Sequence[Finding]:
        """A declared total that is wrong, and masks that name missing episodes."""
        return [*self._check_total(), *self._check_masks()]

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read one episode.

        Raises:
            EpisodeError: it has no actions, or its bytes cannot be read.
        """
        return read_recorded(
            self._describe(entry.locator),
            entry,
            format_name=self.format,
            source=self.root.name,
            dataset=self.dataset,
            options=self._options,
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @cached_property
    def _names(self) -> list[str]:
        groups = [name for name in self._data if hasattr(child(self._data, name), "keys")]
        return sorted(groups, key=natural_key)

    @cached_property
    def _entries(self) -> list[EpisodeEntry]:
        fingerprint = file_fingerprint(self.root)
        entries = []
        for name in self._names:
            key = ingest_key(self.format, self.dataset, name, [fingerprint])
            actions = child(self._data[name], "actions")
            entries.append(
                EpisodeEntry(
                    ingest_key=key,
                    episode_id=f"{self.dataset}/{name}-{key[:12]}",
                    locator=name,
                    num_steps=int(actions.shape[0]) if is_dataset(actions) else None,
                )
            )
        return entries

    @cached_property
    def _masks(self) -> dict[str, set[str]]:
        """Filter name -> the episodes it names."""
        masks: dict[str, set[str]] = {}
        group = child(self._file, "mask")
        if group is not None and hasattr(group, "keys"):
            for name, dataset in datasets_below(group):
                if dataset.dtype.kind in "OS":
                    masks[name] = {
                        v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v)
                        for v in np.ravel(dataset[()])
                    }
        return masks

    def _describe(self, locator: str) -> Recorded:
        demo = self._data[locator]
        actions = child(demo, "actions")
        where = f"{self.root.name}:/data/{locator}"
        if not is_dataset(actions) or actions.ndim == 0 or actions.shape[0] == 0:
            raise EpisodeError(
                f"{where}: no dataset `actions` with a row per step",
                reason="no-action",
                stream="action",
            )
        has_observations = "obs" in demo
        streams: list[Stream] = []
        findings = self._check_declared(demo, locator, int(actions.shape[0]))
        for path, dataset in datasets_below(demo):
            if path.startswith("next_obs/") and dataset.ndim == 4:
                findings.append(_next_pictures(path, locator))
                continue
            streams.append(
                Stream(
                    path=path,
                    where=f"{where}/{path}",
                    dataset=dataset,
                    name=_stream_name(path),
                    role=_stream_role(path, has_observations=has_observations),
                    may_be_pictures=path.startswith("obs/"),
                )
            )
        masks = [name for name, members in self._masks.items() if locator in members]
        return Recorded(
            streams=distinct_names(streams),
            num_steps=int(actions.shape[0]),
            fps=self._rate(),
            files=(self.root.name,),
            conventions=self._conventions(),
            findings=tuple(findings),
            labels={
                "embodiment": self._embodiment(),
                "task": self._environment.get("env_name")
                or attribute_text(self._data.attrs, "env", "env_name"),
                "instruction": self._instruction(demo),
                "success": attribute_flag(demo.attrs, "success"),
                "split": next((m for m in ("train", "valid", "test") if m in masks), None),
                "tags": tuple(f"mask:{name}" for name in masks),
            },
        )

    def _rate(self) -> float | None:
        if self._options.fps:
            return self._options.fps
        arguments = self._environment.get("env_kwargs")
        nested = arguments if isinstance(arguments, dict) else {}
        return attribute_number({**self._environment, **nested}, "control_freq") or (
            attribute_number(self._data.attrs, "control_freq", "fps")
        )

    def _embodiment(self) -> str:
        arguments = self._environment.get("env_kwargs")
        nested = arguments if isinstance(arguments, dict) else {}
        robots = nested.get("robots") or self._environment.get("robots")
        if isinstance(robots, list):
            robots = "+".join(str(robot) for robot in robots)
        return robots if isinstance(robots, str) and robots else "unknown"

    def _instruction(self, demo: Any) -> str | None:  # noqa: ANN401  h5py ships no types
        told = self._problem.get("language_instruction")
        if isinstance(told, list):
            told = "".join(str(part) for part in told)
        if isinstance(told, str) and told.strip():
            return told.strip().strip('"')
        return attribute_text(demo.attrs, "language_instruction", "instruction")

    def _conventions(self) -> dict[str, str]:
        known = {"gripper": "robosuite: action -1 opens, +1 closes"}
        if self.format == "hdf5-libero":
            known["action_timing"] = "obs[t] is the result of action[t]"
            known["image_origin"] = attribute_text(self._data.attrs, "macros_image_convention") or (
                "opengl (upside down)"
            )
        return known

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
            missing = sorted(members - set(self._names), key=natural_key)
            if missing:
                detail = f"names {len(missing)} episodes that are not there, first {missing[0]}"
                found.append(_finding("mask-without-episode", f"mask/{name}", detail))
        return found


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
            if data is None or not hasattr(data, "keys"):
                return False
            return any(is_dataset(child(data[name], "actions")) for name in data)
    except (OSError, SourceError, AttributeError, TypeError):
        return False


FORMAT: Final = Format(
    name="hdf5-robomimic",
    looks_for="an HDF5 file with /data/demo_N/actions (robomimic, robosuite, LIBERO)",
    recognises=recognises,
    open=RobomimicSource,
)

"""Streams of numbers and texts from the values of a channel, whatever its type.

- Scalars side by side in one structure and of one type are a vector, their names its names: a
  `Vector3` is `[x, y, z]`. Arrays are streams of their own.
- Where a message names its elements (`JointState.name`), the order is that of the first message;
  messages in another order are put into it.
- The stamp of a header is the clock `header`. Frame ids that never change are conventions.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.messages.columns import Block
from ingest.messages.ros_types import FILLER
from ingest.timed import Clocks, QuaternionOrder, TimedValues
from lake.spec import Role, canonical_name

_STAMPS: Final = ("header.stamp", "stamp", "timestamp")
_FRAMES: Final = ("header.frame_id", "frame_id", "child_frame_id")
_SEQUENCE: Final = "header.seq"
_NAMES: Final = ("name", "names", "joint_names", "joint_name")
_QUATERNIONS: Final[Mapping[tuple[str, ...], QuaternionOrder]] = {
    ("x", "y", "z", "w"): "xyzw",
    ("w", "x", "y", "z"): "wxyz",
}
_ACTION_WORDS: Final = ("action", "command", "cmd", "target", "goal", "setpoint", "desired")
_STATE_WORDS: Final = ("observation", "state", "joint", "qpos", "odom", "pose", "imu", "wrench")


@dataclass(kw_only=True)
class ChannelValues:
    """What a channel gives.

    Attributes:
        streams: that can be aligned.
        conventions: facts about them, with the name of the channel's streams before them.
        refused: name of a stream -> reason code and sentence.
    """

    streams: list[TimedValues] = field(default_factory=list)
    conventions: dict[str, str] = field(default_factory=dict)
    refused: dict[str, tuple[str, str]] = field(default_factory=dict)


def header_stamps(block: Block) -> NDArray[np.int64] | None:
    """int64 [k] ns of the messages that could be read, None where they have none, or all are 0."""
    for path in _STAMPS:
        stamps = block.values.get(path)
        if stamps is not None and stamps.dtype.kind == "M" and stamps.ndim == 1:
            found: NDArray[np.int64] = stamps.view(np.int64)
            return found if found.any() else None
    return None


def channel_values(block: Block, *, topic: str, clocks: Clocks) -> ChannelValues:
    """Streams of a channel.

    Args:
        block: values of its messages.
        topic: of it.
        clocks: stamps of the messages that could be read.
    """
    work = _Work(topic=topic, clocks=clocks)
    for path, why in block.refused.items():
        if _is_value(path):
            work.refuse(path, "ragged-stream", why)
    values = {
        path: array
        for path, array in block.values.items()
        if _is_value(path) and 0 not in array.shape[1:]
    }
    values, names = _in_one_order(_without_layout(values, work), work)
    groups: dict[tuple[str, str, int], list[str]] = {}
    for path, array in values.items():
        if array.dtype == object:
            work.add_text(path, array)
        elif array.dtype.kind in "mM":
            work.add(path, array.view(np.int64), names=None, units="ns")
        elif array.ndim - 1 == path.count("[]"):
            parent = path.rpartition(".")[0]
            groups.setdefault((parent, array.dtype.name, array.ndim), []).append(path)
        else:
            fits = names if array.ndim == 2 and array.shape[1] == len(names or ()) else None
            work.add(path, array, names=fits)
    shared = [parent for (parent, _, _), paths in groups.items() if len(paths) > 1]
    for (parent, dtype, _), paths in groups.items():
        if len(paths) == 1:
            work.add(paths[0], values[paths[0]], names=None)
            continue
        path = parent if shared.count(parent) == 1 else f"{parent}.{dtype}".strip(".")
        members = tuple(each.rpartition(".")[2] for each in paths)
        work.add(path, np.stack([values[each] for each in paths], axis=-1), names=members)
    return work.found


def _is_value(path: str) -> bool:
    return path not in {_SEQUENCE, *_STAMPS} and not path.endswith(FILLER)


@dataclass(kw_only=True)
class _Work:
    topic: str
    clocks: Clocks
    found: ChannelValues = field(default_factory=ChannelValues)

    def name(self, path: str) -> str:
        """Of a stream: the topic and the path, where that is not just `data`."""
        topic = canonical_name(self.topic.strip("/"))
        return topic if path in {"", "data"} else canonical_name(f"{topic}.{path}")

    def refuse(self, path: str, reason: str, detail: str) -> None:
        self.found.refused[self.name(path)] = (reason, f"{self.topic}: {path} {detail}")

    def add(
        self, path: str, array: NDArray[Any], *, names: tuple[str, ...] | None, units: str = ""
    ) -> None:
        name = self.name(path)
        size = int(np.prod(array.shape[1:], dtype=np.int64))
        order = _QUATERNIONS.get(names or ()) if array.dtype.kind == "f" else None
        try:
            stream = TimedValues(
                name=name,
                source_name=f"{self.topic}:{path}" if path else self.topic,
                clocks=self.clocks,
                values=np.ascontiguousarray(array),
                role=role_of(self.topic),
                continuous="gripper" not in name,
                quaternion=order if array.shape[1:] == (4,) else None,
                names=names if names and len(names) == size else None,
                units=(units,) * size if units else None,
            )
        except EpisodeError as error:
            self.found.refused[name] = (error.reason, str(error))
        else:
            self.found.streams.append(stream)

    def add_text(self, path: str, array: NDArray[Any]) -> None:
        if path in _FRAMES and array.ndim == 1 and (array == array[0]).all():
            if array[0]:
                frame = path.rpartition(".")[2]
                self.found.conventions[f"{self.name('')}.{frame}"] = array[0]
            return
        if array.ndim > 1:
            texts = np.empty(len(array), object)
            texts[:] = [json.dumps(row.tolist(), ensure_ascii=False) for row in array]
            array = texts
        self.add(path, array, names=None)


def role_of(topic: str) -> Role:
    """What a topic's numbers are for, by the words in its name."""
    words = canonical_name(topic.strip("/"))
    if any(word in words for word in _ACTION_WORDS):
        return "action"
    return "state" if any(word in words for word in _STATE_WORDS) else "other"


def _without_layout(values: dict[str, NDArray[Any]], work: _Work) -> dict[str, NDArray[Any]]:
    """Without the layout of a multi-array that is the same in every message: a convention."""
    layout = {path: array for path, array in values.items() if path.startswith("layout.")}
    if "data" not in values or not all((array == array[0]).all() for array in layout.values()):
        return values
    facts = {path.removeprefix("layout."): array[0].tolist() for path, array in layout.items()}
    if any(facts.values()):
        work.found.conventions[f"{work.name('')}.layout"] = json.dumps(facts)
    return {path: array for path, array in values.items() if path not in layout}


def _in_one_order(
    values: dict[str, NDArray[Any]], work: _Work
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...] | None]:
    """Elements in the order in which the first message names them, and those names."""
    path = next((name for name in _NAMES if name in values), None)
    if path is None or values[path].dtype != object or values[path].ndim != 2:
        return values, None
    named = values[path]
    first = tuple(named[0])
    rest = {other: array for other, array in values.items() if other != path}
    same = (named == named[0]).all(axis=1)
    if same.all():
        return rest, first
    fitting = [o for o, a in rest.items() if a.ndim == 2 and a.shape[1] == len(first)]
    changed = np.flatnonzero([sorted(row) != sorted(first) for row in named])
    if changed.size or len(set(first)) < len(first):
        for other in fitting:
            work.refuse(
                other,
                "names-change",
                f"belongs to other names from message {int(np.flatnonzero(~same)[0])} on"
                f" ({', '.join(named[~same][0][:8])}; before {', '.join(first[:8])})",
            )
            del rest[other]
        return rest, None
    position = np.array([[list(row).index(name) for name in first] for row in named[~same]])
    for other in fitting:
        mapped = rest[other].copy()
        mapped[~same] = np.take_along_axis(mapped[~same], position, axis=1)
        rest[other] = mapped
    return rest, first

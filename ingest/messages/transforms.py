"""Transforms of tf: a stream for each frame, whatever messages they came in.

Source: tf2_msgs/TFMessage, a list of geometry_msgs/TransformStamped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ingest.messages.values import ChannelValues
from ingest.timed import TimedValues
from lake.spec import canonical_name

_CHILD: Final = "transforms[].child_frame_id"
_PARENT: Final = "transforms[].header.frame_id"
_STAMP: Final = "transforms[].header.stamp"
_TRANSLATION: Final = tuple(f"transforms[].transform.translation.{axis}" for axis in "xyz")
_ROTATION: Final = tuple(f"transforms[].transform.rotation.{axis}" for axis in "xyzw")


def is_tf(schema_name: str, fields: Mapping[str, Any]) -> bool:
    """Whether messages of this type, and with these fields, hold transforms."""
    known = schema_name.replace("/msg/", "/") in {"tf2_msgs/TFMessage", "tf/tfMessage"}
    return known and fields.keys() >= {_CHILD, _PARENT, _STAMP, *_TRANSLATION, *_ROTATION}


@dataclass(kw_only=True)
class _Frame:
    parent: str
    rows: list[tuple[float, ...]] = field(default_factory=list)
    stamps: list[tuple[int, int, int]] = field(default_factory=list)
    other_parent: str | None = None


@dataclass(kw_only=True)
class Transforms:
    """Gathers the messages of a topic."""

    topic: str
    _frames: dict[str, _Frame] = field(default_factory=dict)

    def add(self, fields: Mapping[str, Any], log_time_ns: int, publish_time_ns: int) -> None:
        """Take a message."""
        children = fields[_CHILD]
        stamps = np.asarray(fields[_STAMP]).view(np.int64).tolist()
        rows = np.stack([fields[path] for path in (*_TRANSLATION, *_ROTATION)], axis=1).tolist()
        for child, parent, stamp, row in zip(children, fields[_PARENT], stamps, rows, strict=True):
            frame = self._frames.setdefault(child, _Frame(parent=parent))
            if parent != frame.parent:
                frame.other_parent = parent
            frame.rows.append(row)
            frame.stamps.append((log_time_ns, publish_time_ns, stamp))

    def values(self) -> ChannelValues:
        """Translation and rotation of each frame."""
        found = ChannelValues()
        for child, frame in self._frames.items():
            name = canonical_name(f"{self.topic.strip('/')}.{child}")
            if frame.other_parent is not None:
                detail = f"{child} is given in {frame.parent} and in {frame.other_parent}"
                found.refused[name] = ("frame-changes", f"{self.topic}: {detail}")
                continue
            stamps = np.array(frame.stamps, np.int64)
            clocks = dict(zip(("log", "publish", "header"), stamps.T.copy(), strict=True))
            rows = np.array(frame.rows, np.float64)
            found.streams += [
                TimedValues(
                    name=f"{name}_translation",
                    source_name=f"{self.topic}:{child}",
                    clocks=clocks,
                    values=rows[:, :3].copy(),
                    names=("x", "y", "z"),
                ),
                TimedValues(
                    name=f"{name}_rotation",
                    source_name=f"{self.topic}:{child}",
                    clocks=clocks,
                    values=rows[:, 3:].copy(),
                    names=("x", "y", "z", "w"),
                    quaternion="xyzw",
                ),
            ]
            found.conventions[f"{name}.frame_id"] = frame.parent
        return found

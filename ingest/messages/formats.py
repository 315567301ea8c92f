"""Logs of messages as registered formats."""

from pathlib import Path
from typing import Final

from ingest.messages.mcap.log import open_mcap, recognises_mcap
from ingest.messages.ros1.bag import open_bag, recognises_bag
from ingest.messages.ros2.bag import open_rosbag2, recognises_rosbag2
from ingest.messages.source import LogSource
from ingest.source import Format, SourceOptions


def _open_mcap(path: Path, options: SourceOptions) -> LogSource:
    return LogSource(path, open_mcap(path), options)


def _open_bag(path: Path, options: SourceOptions) -> LogSource:
    return LogSource(path, open_bag(path), options)


def _open_rosbag2(path: Path, options: SourceOptions) -> LogSource:
    return LogSource(path, open_rosbag2(path), options)


MCAP: Final = Format(
    name="mcap",
    looks_for="an .mcap file",
    recognises=recognises_mcap,
    open=_open_mcap,
    needs=("lz4", "zstandard", "google.protobuf", "rosbags"),
    extra="ros",
)
ROS1_BAG: Final = Format(
    name="ros1-bag",
    looks_for="a .bag file of version 2.0 (ROS 1)",
    recognises=recognises_bag,
    open=_open_bag,
    needs=("lz4", "rosbags"),
    extra="ros",
)
ROS2_BAG: Final = Format(
    name="ros2-bag",
    looks_for="a folder with metadata.yaml and storage files, or a .db3 file (ROS 2)",
    recognises=recognises_rosbag2,
    open=_open_rosbag2,
    needs=("zstandard", "ruamel.yaml", "rosbags"),
    extra="ros",
)

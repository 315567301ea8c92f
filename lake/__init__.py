"""The lake: episodes as columns and packets, on disk or in an object store.

```python
import lake

robots = lake.create_lake("robots.lake")
with lake.EpisodeWriter(robots) as writer:
    writer.add(episode)
rows = lake.visible_episodes(robots, ["episode_id", "num_steps"])
signals = lake.read_signals(robots, rows["address"].to_pylist(), ["state", "action"])
```

Names are imported when first used, so `import lake` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lake.create import create_lake as create_lake
    from lake.episode import CameraVideo as CameraVideo
    from lake.episode import Episode as Episode
    from lake.episode import Provenance as Provenance
    from lake.feature_stats import FeatureStats as FeatureStats
    from lake.feature_stats import combine as combine
    from lake.find import find_episode as find_episode
    from lake.frames import read_frames as read_frames
    from lake.insert import insert_new as insert_new
    from lake.quarantine import QuarantineEntry as QuarantineEntry
    from lake.raw import RawChunk as RawChunk
    from lake.raw import RawMessage as RawMessage
    from lake.raw import RawStream as RawStream
    from lake.raw_chunks import chunk_messages as chunk_messages
    from lake.raw_read import raw_streams as raw_streams
    from lake.raw_read import read_raw as read_raw
    from lake.raw_read import read_raw_messages as read_raw_messages
    from lake.read import Signals as Signals
    from lake.read import read_episode as read_episode
    from lake.read import read_signals as read_signals
    from lake.read import read_steps as read_steps
    from lake.read_video import ByteRange as ByteRange
    from lake.read_video import EpisodeVideos as EpisodeVideos
    from lake.read_video import read_ranges as read_ranges
    from lake.read_video import read_video_indexes as read_video_indexes
    from lake.spec import CameraSpec as CameraSpec
    from lake.spec import FeatureSpec as FeatureSpec
    from lake.spec import Spec as Spec
    from lake.store import Lake as Lake
    from lake.store import open_lake as open_lake
    from lake.tables import TABLES as TABLES
    from lake.video_index import VideoIndex as VideoIndex
    from lake.video_runs import verify_packets as verify_packets
    from lake.visible import visible_episodes as visible_episodes
    from lake.writer import EpisodeWriter as EpisodeWriter
    from lake.writer import WriteReport as WriteReport

_HOMES = {
    "lake.create": ("create_lake",),
    "lake.episode": ("CameraVideo", "Episode", "Provenance"),
    "lake.feature_stats": ("FeatureStats", "combine"),
    "lake.insert": ("insert_new",),
    "lake.quarantine": ("QuarantineEntry",),
    "lake.find": ("find_episode",),
    "lake.raw": ("RawChunk", "RawMessage", "RawStream"),
    "lake.raw_chunks": ("chunk_messages",),
    "lake.raw_read": ("raw_streams", "read_raw", "read_raw_messages"),
    "lake.read": ("Signals", "read_episode", "read_signals", "read_steps"),
    "lake.frames": ("read_frames",),
    "lake.read_video": (
        "ByteRange",
        "EpisodeVideos",
        "read_ranges",
        "read_video_indexes",
    ),
    "lake.spec": ("CameraSpec", "FeatureSpec", "Spec"),
    "lake.store": ("Lake", "open_lake"),
    "lake.tables": ("TABLES",),
    "lake.video_index": ("VideoIndex",),
    "lake.video_runs": ("verify_packets",),
    "lake.visible": ("visible_episodes",),
    "lake.writer": ("EpisodeWriter", "WriteReport"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)  # noqa: PLE0605 - a list of str, built from the one list of names


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'lake' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)

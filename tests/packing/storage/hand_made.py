"""Packs and facts small enough to compute every figure by hand."""

from typing import Any

import numpy as np

from packing.storage.facts import GopProfile, StorageFacts
from packing.storage.packs import ReadPacks

FRAME_BYTES, DECODED_BYTES = 100, 1000


def one_reader(packs: int, *, cold: bool = True) -> ReadPacks:
    """One rank with a pack per step."""
    numbers = np.arange(packs)
    return ReadPacks(
        row=numbers,
        reader=np.zeros(packs, np.int64),
        position=numbers,
        rank_step=numbers,
        step=numbers[None],
        measured=np.ones((1, packs), np.bool_),
        cold=cold,
        world_size=1,
        num_workers=1,
        per_step=1,
    )


def facts_of(
    episodes: int = 2, *, cameras: int = 1, steps: int = 100, gop: int = 4, **changes: Any
) -> StorageFacts:
    """Episodes of which a key frame takes two frames' bytes and each other one half of that."""
    shape = (episodes, cameras)
    per_frame = np.arange(2, gop + 2).astype(np.float64)

    def everywhere(value: int) -> Any:
        return np.full(shape, value, np.int64)

    fields = {
        "address": np.arange(episodes, dtype=np.uint64) * np.uint64(1000),
        "num_steps": np.full(episodes, steps, np.int64),
        "frames": everywhere(steps),
        "video_bytes": everywhere(steps * FRAME_BYTES),
        "video_offset": everywhere(0) + np.arange(cameras) * steps * FRAME_BYTES,
        "frame_bytes": everywhere(DECODED_BYTES),
        "gop_frames": everywhere(gop),
        "profile": everywhere(0),
        "profiles": (GopProfile(gop_frames=gop, frames_to=per_frame),),
        "index_bytes": np.full(episodes, 3000, np.int64),
        "cameras_stored": np.full(episodes, cameras, np.int64),
        "feature_bytes": (np.full(episodes, 2000, np.int64),),
        "features_stored": np.ones(episodes, np.int64),
        "fetch_block_bytes": 4096,
    }
    return StorageFacts(**{**fields, **changes})

"""From the bytes of a stream format's sample (see `write_streams`) to window samples."""

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from tools.peers.window_stream import Sample, sample, windows


def episode_windows(raw: dict[str, Any], chunk: int) -> Iterator[Sample]:
    """Every window of a sample that is an episode."""
    meta = json.loads(raw["meta.json"])
    first = {camera.rpartition(".")[2]: count for camera, count in meta["first"].items()}
    yield from windows(
        meta["episode"],
        np.load(io.BytesIO(raw["state.npy"])),
        np.load(io.BytesIO(raw["action.npy"])),
        {name: (raw[f"{name}.mp4"], count) for name, count in first.items()},
        chunk,
    )


def step_window(raw: dict[str, Any]) -> Sample:
    """The window of a sample that is a step."""
    meta = json.loads(raw["meta.json"])
    return sample(
        meta["episode"],
        meta["step"],
        np.load(io.BytesIO(raw["state.npy"])),
        np.load(io.BytesIO(raw["action.npy"])),
        {
            name.removesuffix(".jpg"): np.array(Image.open(io.BytesIO(data)))
            for name, data in raw.items()
            if name.endswith(".jpg")
        },
    )

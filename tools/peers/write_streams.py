"""Writes a LeRobot dataset in the formats of webdataset and Mosaic streaming, for their loaders.

- `episodes`: a sample is an episode: its cut of every camera's video as MP4, packets copied, and
  its states and actions;
- `steps`: a sample is a window: a JPEG of every camera and its chunk of actions. Tar files hold
  them in a shuffled order, since they are read in the order in which they lie.
"""

import importlib
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from tools.peers.episode_files import EpisodeFile, action_chunk, decode, episodes

JPEG_QUALITY: Final = 90
_SHARDS: Final = 16


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Write what a job asks for and tell its size.

    Args:
        job: `source` (LeRobot dataset), `target` (folder to make), `format` (`webdataset` or
            `mosaic`), `form` (`episodes` or `steps`), `chunk`, `seed`.
    """
    source, target = Path(job["source"]), Path(job["target"])
    found = episodes(source)
    if job["form"] == "episodes":
        samples = (_episode_sample(episode) for episode in found)
    else:
        samples = (one for episode in found for one in _step_samples(episode, job["chunk"]))
    if job["format"] == "mosaic":
        count = _write_mosaic(samples, target)
    else:
        count = _write_webdataset(samples, target, job["seed"])
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    return {"samples": count, "bytes": size}


def _episode_sample(episode: EpisodeFile) -> dict[str, bytes]:
    return {
        "meta.json": json.dumps({"episode": episode.episode, "first": episode.first}).encode(),
        "state.npy": _npy(episode.state),
        "action.npy": _npy(episode.action),
        **{f"{_short(camera)}.mp4": video for camera, video in episode.videos.items()},
    }


def _step_samples(episode: EpisodeFile, chunk: int) -> Iterator[dict[str, bytes]]:
    steps = len(episode.state)
    cameras = [
        decode(video, episode.first[camera], steps) for camera, video in episode.videos.items()
    ]
    names = [f"{_short(camera)}.jpg" for camera in episode.videos]
    for step, pictures in enumerate(zip(*cameras, strict=True)):
        yield {
            "meta.json": json.dumps({"episode": episode.episode, "step": step}).encode(),
            "state.npy": _npy(episode.state[step]),
            "action.npy": _npy(action_chunk(episode.action, step, chunk)),
            **{name: _jpeg(picture) for name, picture in zip(names, pictures, strict=True)},
        }


def _write_webdataset(samples: Iterator[dict[str, bytes]], target: Path, seed: int) -> int:
    webdataset: Any = importlib.import_module("webdataset")
    target.mkdir(parents=True)
    held = list(samples)
    random.Random(seed).shuffle(held)  # noqa: S311  # no secret
    for shard in range(_SHARDS):
        with webdataset.TarWriter(str(target / f"{shard:04d}.tar")) as writer:
            for number in range(shard, len(held), _SHARDS):
                writer.write({"__key__": f"{number:08d}", **held[number]})
    return len(held)


def _write_mosaic(samples: Iterator[dict[str, bytes]], target: Path) -> int:
    streaming: Any = importlib.import_module("streaming")
    first = next(samples)
    count = 1
    with streaming.MDSWriter(out=str(target), columns=dict.fromkeys(first, "bytes")) as writer:
        writer.write(first)
        for one in samples:
            writer.write(one)
            count += 1
    return count


def _short(camera: str) -> str:
    return camera.rpartition(".")[2]


def _npy(array: Any) -> bytes:  # noqa: ANN401  # a numpy array
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _jpeg(picture: Any) -> bytes:  # noqa: ANN401  # a numpy array
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()

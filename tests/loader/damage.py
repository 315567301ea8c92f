"""Damage to the files of a lake on local disk, and spans of batches one by one."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lake import Lake, open_lake
from lake.video_index import VideoIndex
from loader.batch import NumpyBatch

SpanKey = tuple[int, int, int]
"""Epoch, span id, occurrence."""


def damaged_copy(lake: Lake, folder: Path, needles: Sequence[bytes], *, mask: int = 4) -> Lake:
    """A copy of a lake in which a bit in the middle of each of some stored byte strings differs."""
    shutil.copytree(lake.uri, folder)
    for needle in needles:
        flip(folder / "trajectories.lance" / "data", needle, mask=mask)
    return open_lake(folder)


def flip(folder: Path, needle: bytes, *, mask: int = 4) -> None:
    """Change the middle byte of the one place in the files of a folder that holds `needle`."""
    places = [
        (file, at)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        for at in _places(file.read_bytes(), needle)
    ]
    assert len(places) == 1, f"{needle!r} is stored {len(places)} times"
    ((file, at),) = places
    content = bytearray(file.read_bytes())
    content[at + len(needle) // 2] ^= mask
    file.write_bytes(content)


def packet(index: VideoIndex, payload: bytes | memoryview, number: int) -> bytes:
    """The bytes of one packet of a camera."""
    start, stop = index.packet_offsets()[number : number + 2]
    return bytes(payload[start:stop])


def spans_of(batch: NumpyBatch) -> dict[SpanKey, dict[str, NDArray[Any]]]:
    """Each span of a batch with all that is its own, wherever in the batch it stands."""
    pictures = [picture for bucket in batch.images for picture in bucket]
    found = {}
    for row in range(batch.num_spans):
        tokens = slice(*batch.cu_seqlens[row : row + 2])
        states = slice(*batch.cu_seqlens_state[row : row + 2])
        actions = slice(*batch.cu_seqlens_action[row : row + 2])
        images = np.flatnonzero(batch.image_span_ids == row)
        values = {
            "input_ids": batch.input_ids[tokens],
            "position_ids": batch.position_ids[tokens],
            "token_modality": batch.token_modality[tokens],
            "labels": batch.labels[tokens],
            "loss_weights": batch.loss_weights[tokens],
            "image_camera_ids": batch.image_camera_ids[images],
            "image_step_index": batch.image_step_index[images],
            "state": batch.state[states],
            "state_dim_mask": batch.state_dim_mask[states],
            "state_step_index": batch.state_step_index[states],
            "actions": batch.actions[actions],
            "action_dim_mask": batch.action_dim_mask[actions],
            "action_position_ids": batch.action_position_ids[actions],
            "action_loss_weights": batch.action_loss_weights[actions],
            "embodiment_id": batch.embodiment_ids[row],
            "dataset_id": batch.dataset_ids[row],
            "stats_id": batch.stats_ids[row],
            "episode_id": batch.episode_ids[row],
            "step_index": batch.step_index[row],
            "sample_weight": batch.sample_weights[row],
            **{f"image {number}": pictures[image] for number, image in enumerate(images)},
        }
        key = (batch.epoch, int(batch.span_ids[row]), int(batch.occurrence_ids[row]))
        assert key not in found
        found[key] = {name: np.array(value) for name, value in values.items()}
    return found


def _places(content: bytes, needle: bytes) -> list[int]:
    places, at = [], content.find(needle)
    while at >= 0:
        places.append(at)
        at = content.find(needle, at + 1)
    return places

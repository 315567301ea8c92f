"""An episode as rows of a data file, typed as LeRobot's writer types them."""

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.export.lerobot.schema import IMAGE_TYPE, Camera, Column, Schema
from lake.episode import CameraVideo

_SUFFIX: Final = {"mjpeg": "jpg", "png": "png"}


def arrow_schema(schema: Schema, list_type: str) -> pa.Schema:
    """Schema of the data files, with what the `datasets` library keeps in it.

    Args:
        schema: of the dataset.
        list_type: that library's name of a list of one length: `List`, before its version 4
            `Sequence`.
    """
    fields, features = [], {}
    for part in schema.parts():
        if isinstance(part, Column):
            fields.append((part.key, part.type))
            features[part.key] = part.hugging_face(list_type)
        elif not part.is_video:
            fields.append((part.key, IMAGE_TYPE))
            features[part.key] = {"_type": "Image"}
    metadata = json.dumps({"info": {"features": features}})
    return pa.schema(fields, metadata={b"huggingface": metadata.encode()})


def episode_rows(
    target: pa.Schema,
    schema: Schema,
    values: Mapping[str, NDArray[Any]],
    cameras: Mapping[str, CameraVideo],
) -> pa.Table:
    """The rows of an episode of T steps.

    Args:
        target: as `arrow_schema` gives it.
        schema: of the dataset.
        values: key -> [T, *shape] of every column.
        cameras: name in the lake -> video.
    """
    arrays = []
    for part in schema.parts():
        if isinstance(part, Column):
            arrays.append(_array(values[part.key], part))
        elif not part.is_video:
            arrays.append(_pictures(part, cameras[part.name]))
    return pa.Table.from_arrays(arrays, schema=target)


def _array(values: NDArray[Any], column: Column) -> pa.Array:
    if column.dtype == "string":
        return pa.array(values.ravel().tolist(), pa.string())
    array = pa.array(np.ascontiguousarray(values).ravel())
    if len(column.shape) == 1:
        return pa.FixedSizeListArray.from_arrays(array, type=column.type)
    size = 1
    for side in reversed(column.shape):
        size = len(array) // side
        offsets = np.arange(0, (size + 1) * side, side, dtype=np.int32)
        array = pa.ListArray.from_arrays(pa.array(offsets), array)
    return array.cast(column.type)


def _pictures(camera: Camera, video: CameraVideo) -> pa.Array:
    index = video.index
    offsets = index.packet_offsets()
    packet = np.empty(index.num_frames, np.int64)
    packet[index.packet_frame] = np.arange(len(index.packet_frame))
    payload = memoryview(video.payload)
    suffix = _SUFFIX[camera.codec]
    rows = [
        {
            "bytes": bytes(payload[offsets[number] : offsets[number + 1]]),
            "path": f"frame-{step:06d}.{suffix}",
        }
        for step, number in enumerate(packet[index.step_to_frame].tolist())
    ]
    return pa.array(rows, IMAGE_TYPE)

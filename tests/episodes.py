"""Synthetic episodes: with packets of noise, which needs no codec, or with real video."""

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from lake import CameraSpec, CameraVideo, Episode, FeatureSpec, Provenance, Spec, VideoIndex

STATE_NAMES = ("x", "y", "z", "grip")


def noise_video(
    rng: np.random.Generator, steps: int, *, packet_bytes: int = 200, gop: int = 5
) -> CameraVideo:
    """A camera with one packet of random bytes per step; the codec name is honest: raw data."""
    sizes = rng.integers(1, 2 * packet_bytes, steps, dtype=np.int32)
    packets = [rng.bytes(int(size)) for size in sizes]
    key = np.zeros(steps, np.bool_)
    key[::gop] = True
    index = VideoIndex(
        codec="bin_data",
        width=64,
        height=48,
        pix_fmt="gray",
        time_base=(1, 10),
        packet_size=sizes,
        packet_frame=np.arange(steps, dtype=np.int32),
        packet_pts=np.arange(steps, dtype=np.int64),
        packet_checksum=np.array([xxhash.xxh3_64_intdigest(p) for p in packets], np.uint64),
        packet_key=key,
        step_to_frame=np.arange(steps, dtype=np.int32),
    )
    return CameraVideo(index=index, payload=b"".join(packets))


def make_spec(*, dtype: str = "float32", cameras: tuple[str, ...] = ()) -> Spec:
    """State (4 named elements), action (3) and a text per step."""
    return Spec(
        features=(
            FeatureSpec(
                name="state",
                source_name="observation.state",
                dtype=dtype,
                shape=(4,),
                names=STATE_NAMES,
                role="state",
            ),
            FeatureSpec(
                name="action", source_name="action", dtype="float32", shape=(3,), role="action"
            ),
            FeatureSpec(name="note", source_name="note", dtype="string", shape=(), role="language"),
        ),
        cameras=tuple(
            CameraSpec(name=name, source_name=f"observation.images.{name}", height=48, width=64)
            for name in cameras
        ),
    )


def make_episode(
    number: int = 0,
    *,
    steps: int = 12,
    dtype: str = "float32",
    dataset: str = "synthetic",
    camera_names: tuple[str, ...] = (),
    packet_bytes: int = 200,
    cameras: Mapping[str, CameraVideo] | None = None,
    **changes: Any,
) -> Episode:
    """The episode of a number: the same arguments give the same episode, bit for bit.

    Args:
        number: seeds the content and names the episode.
        steps: T.
        dtype: of the state.
        dataset: name of the dataset.
        camera_names: cameras filled with noise packets of about `packet_bytes`.
        packet_bytes: see `camera_names`.
        cameras: cameras to use in place of noise.
        **changes: fields of `Episode` to set.
    """
    rng = np.random.default_rng([number, steps])
    key = hashlib.sha256(f"{dataset}/{number}/{steps}".encode()).hexdigest()
    videos = dict(cameras or {})
    for name in camera_names:
        videos[name] = noise_video(rng, steps, packet_bytes=packet_bytes)
    state: NDArray[Any] = (rng.normal(size=(steps, 4)) * 5).astype(dtype)
    notes = np.array([f"note {number}.{step} \u00e9" for step in range(steps)], dtype=object)
    fields: dict[str, Any] = {
        "episode_id": f"{dataset}/episode_{number:06d}-{key[:12]}",
        "ingest_key": key,
        "source": dataset,
        "dataset": dataset,
        "embodiment": "test-arm",
        "spec": make_spec(dtype=dtype, cameras=tuple(videos)),
        "fps": 10.0,
        "timestamps_ns": np.arange(steps, dtype=np.int64) * 100_000_000,
        "features": {
            "state": state,
            "action": rng.normal(size=(steps, 3)).astype(np.float32),
            "note": notes,
        },
        "cameras": videos,
        "provenance": Provenance(
            format="synthetic", files=("a.bin",), locator=f"episode {number}", reader="tests/1"
        ),
        "task": "lift",
        "instruction": f"lift block {number}",
        "success": bool(number % 2),
        "split": "train",
        "tags": ("synthetic",),
    }
    return Episode(**{**fields, **changes})


def moving_pictures(count: int, height: int = 48, width: int = 64) -> list[NDArray[np.uint8]]:
    """`count` pictures, uint8 [height, width, 3]: a gradient that moves, so that all differ."""
    y, x = np.mgrid[0:height, 0:width]
    return [
        np.stack([x * 3 + t * 7, y * 4 + t * 3, x + y + t * 11], axis=-1).astype(np.uint8)
        for t in range(count)
    ]


def make_filmed_episode(
    number: int = 0,
    *,
    steps: int = 12,
    camera_names: tuple[str, ...] = ("top",),
    codec: Literal["h264", "png"] = "h264",
    gop: int = 5,
    height: int = 48,
    width: int = 64,
    **changes: Any,
) -> Episode:
    """As `make_episode`, with real video: `moving_pictures`, encoded, one frame per step."""
    from lake.video_encode import encode_frames

    videos = {
        name: encode_frames(
            moving_pictures(steps, height, width),
            fps=10,
            step_to_frame=np.arange(steps, dtype=np.int32),
            codec=codec,
            gop=gop,
        )
        for name in camera_names
    }
    return make_episode(number, steps=steps, cameras=videos, **changes)

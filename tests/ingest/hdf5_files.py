"""HDF5 recordings written by the tests, in the layouts that real tools write."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from PIL import Image


def pictures(steps: int, *, height: int = 48, width: int = 64, seed: int = 0) -> NDArray[np.uint8]:
    """uint8 [T, H, W, 3], smooth and different from step to step."""
    rows = np.linspace(0, 200, height)[:, None, None]
    columns = np.linspace(0, 50, width)[None, :, None]
    shift = (np.arange(steps) * 3 + seed * 17)[:, None, None, None]
    tint = np.array([0, 20, 40])
    scene: NDArray[np.uint8] = ((rows + columns + shift + tint) % 256).astype(np.uint8)
    return scene


def jpeg(picture: NDArray[np.uint8], quality: int = 90) -> bytes:
    """The picture as a JPEG file."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def write_aloha(
    path: Path,
    *,
    steps: int = 12,
    seed: int = 0,
    cameras: tuple[str, ...] = ("cam_high", "cam_low"),
    compress: bool = False,
    attributes: Mapping[str, Any] | None = None,
) -> dict[str, NDArray[Any]]:
    """Write one episode as ACT's recorder does; returns the arrays by path."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, NDArray[Any]] = {
        "observations/qpos": rng.normal(size=(steps, 14)),
        "observations/qvel": rng.normal(size=(steps, 14)),
        "observations/effort": rng.normal(size=(steps, 14)),
        "action": rng.normal(size=(steps, 14)),
    }
    with h5py.File(path, "w") as file:
        file.attrs["sim"] = False
        file.attrs["compress"] = compress
        file.attrs.update(attributes or {})
        for name, values in arrays.items():
            file[name] = values
        lengths = []
        for number, camera in enumerate(cameras):
            seen = pictures(steps, seed=seed + number)
            arrays[f"observations/images/{camera}"] = seen
            if not compress:
                file.create_dataset(
                    f"observations/images/{camera}", data=seen, chunks=(1, *seen.shape[1:])
                )
                continue
            packed = [jpeg(picture) for picture in seen]
            lengths.append([len(data) for data in packed])
            longest = max(len(data) for data in packed) + 100
            padded = np.stack(
                [np.frombuffer(data.ljust(longest, b"\0"), np.uint8) for data in packed]
            )
            file[f"observations/images/{camera}"] = padded
        if compress:
            file["compress_len"] = np.array(lengths, np.float32)
    return arrays


def write_robomimic(
    path: Path,
    *,
    demos: int = 11,
    attributes: Mapping[str, Any] | None = None,
    masks: Mapping[str, tuple[str, ...]] | None = None,
) -> dict[str, dict[str, NDArray[Any]]]:
    """Write a robomimic file; returns demo -> arrays by path."""
    written: dict[str, dict[str, NDArray[Any]]] = {}
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        for number in range(demos):
            steps = 4 + number
            rng = np.random.default_rng(number)
            arrays: dict[str, NDArray[Any]] = {
                "actions": rng.uniform(-1, 1, (steps, 7)),
                "states": rng.normal(size=(steps, 20)),
                "rewards": np.zeros(steps),
                "dones": np.zeros(steps, np.int64),
                "obs/robot0_eef_pos": rng.normal(size=(steps, 3)),
                "obs/robot0_gripper_qpos": rng.normal(size=(steps, 2)).astype(np.float32),
                "obs/agentview_image": pictures(steps, height=32, width=32, seed=number),
                "next_obs/robot0_eef_pos": rng.normal(size=(steps, 3)),
                "next_obs/agentview_image": pictures(steps, height=32, width=32, seed=number),
            }
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = steps
            for name, values in arrays.items():
                demo[name] = values
            written[f"demo_{number}"] = arrays
        data.attrs["total"] = sum(4 + number for number in range(demos))
        data.attrs.update(attributes or {})
        for name, members in (masks or {}).items():
            file[f"mask/{name}"] = np.array(members, dtype="S")
    return written

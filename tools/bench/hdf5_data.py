"""ALOHA recordings on disk for benches: HDF5 files that hold raw pictures, one episode each."""

from pathlib import Path

import h5py
import numpy as np

from tools.bench.lerobot_data import DatasetShape
from tools.bench.looped_video import panned


def write_aloha(root: Path, shape: DatasetShape, *, steps: int) -> Path:
    """Write `shape.episodes` files and return their folder.

    Args:
        root: folder to create.
        shape: cameras, picture size, rate and vector length; codec and GOP do not apply.
        steps: steps of each episode, at most 240.
    """
    root.mkdir(parents=True)
    rng = np.random.default_rng(shape.seed)
    for episode in range(shape.episodes):
        with h5py.File(root / f"episode_{episode}.hdf5", "w") as file:
            file.attrs["fps"] = float(shape.fps)
            for name in ("observations/qpos", "action"):
                file[name] = rng.normal(size=(steps, shape.dims)).astype(np.float32)
            for number, camera in enumerate(shape.cameras):
                seed = shape.seed + episode * len(shape.cameras) + number
                clip = panned(shape.height, shape.width, seed)
                file.create_dataset(
                    f"observations/images/{camera}",
                    data=np.stack(clip[:steps]),
                    chunks=(1, shape.height, shape.width, 3),
                )
    return root

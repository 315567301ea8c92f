"""Run by a Python that has the real LeRobot: what its dataset gives, compared with an archive.

    python lerobot_items.py ROOT ARCHIVE BACKEND

The archive has `<key>` [N, ...] for each key of all N items, texts as Unicode, pictures of cameras
as uint8 [N, 3, H, W]. Prints a JSON object: how many items and keys agree to the bit, and whether a
policy finds what it needs.
"""

import json
import sys
from pathlib import Path

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset


def main(root: Path, archive: Path, backend: str) -> None:
    dataset = LeRobotDataset("local/exported", root=root, video_backend=backend, return_uint8=True)
    expected = np.load(archive)
    assert len(dataset) == len(expected["index"]), f"{len(dataset)} items"
    values = 0
    for number in range(len(dataset)):
        item = dataset[number]
        assert set(item) == set(expected.files), set(item) ^ set(expected.files)
        for key in expected.files:
            value, wanted = item[key], expected[key][number]
            if isinstance(value, str):
                assert value == str(wanted), (number, key, value)
            else:
                got = value.numpy()
                if got.dtype != wanted.dtype:  # pictures in rows come as floats in [0, 1]
                    assert got.dtype == np.float32, (number, key, got.dtype)
                    got = np.rint(got * 255).astype(wanted.dtype)
                assert got.tobytes() == wanted.tobytes(), (number, key)
            values += 1
    meta = dataset.meta
    stats = {key: list(of) for key, of in meta.stats.items()}
    episodes = [meta.episodes[i]["tasks"] for i in range(meta.total_episodes)]
    json.dump(
        {"items": len(dataset), "values": values, "stats": stats, "tasks": episodes}, sys.stdout
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])

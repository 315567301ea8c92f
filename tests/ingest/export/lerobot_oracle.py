"""Run by a Python that has the real LeRobot: an exported dataset against `oracle.json`.

    python lerobot_oracle.py ROOT ORACLE

The oracle has items as the library gave them of the dataset that it had recorded itself: values,
and SHA-256 of every tensor of pictures (uint8, channels first). Prints how many agreed, as JSON.
"""

import hashlib
import json
import sys
from pathlib import Path

from lerobot.datasets.lerobot_dataset import LeRobotDataset


def main(root: Path, oracle: Path) -> None:
    known = json.loads(oracle.read_text())
    times = {
        key: [offset / known["fps"] for offset in offsets]
        for key, offsets in known["delta_timestamps"].items()
    }
    items = pictures = 0
    for backend, expected in known["items"].items():
        dataset = LeRobotDataset(
            "local/exported",
            root=root,
            delta_timestamps=times,
            video_backend=backend,
            return_uint8=True,
        )
        for wanted in expected:
            item = dataset[wanted["index"][0]]
            for key, value in wanted.items():
                if isinstance(value, dict):
                    digest = hashlib.sha256(item[key].numpy().tobytes()).hexdigest()
                    assert digest == value["sha256"], (backend, wanted["index"], key)
                    pictures += 1
                elif isinstance(value, str):
                    assert item[key] == value, (wanted["index"], key)
                else:
                    got = item[key].reshape(-1).tolist()
                    flat = value
                    while flat and isinstance(flat[0], list):
                        flat = [one for row in flat for one in row]
                    assert got == flat, (wanted["index"], key)
            items += 1
    json.dump({"items": items, "pictures": pictures}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

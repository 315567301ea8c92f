from pathlib import Path

import av
import numpy as np
import pytest

from ingest.contact_sheet import write_contact_sheet
from ingest.errors import IngestError
from ingest.inspect import file_tree, inspect_source
from tests.ingest.lerobot_data import open_source, read_all, reasons, v2_data, write_v2

CAMERAS = ("observation.images.top", "observation.images.wrist")


def test_counts_mapping_and_sample(tmp_path: Path) -> None:
    root = write_v2(tmp_path / "toy", cameras=CAMERAS)
    inspection = inspect_source(open_source(root))
    assert (inspection.episodes, inspection.steps) == (2, 12)
    assert inspection.sample is not None
    assert inspection.sample.episode.provenance.locator == "episode_000000"
    assert inspection.findings == ()
    assert "  meta/" in inspection.tree


def test_the_first_episode_that_can_be_read_is_the_sample(tmp_path: Path) -> None:
    root = write_v2(tmp_path / "toy", lengths=(3, 4, 5))
    (root / v2_data(0)).unlink()
    (root / v2_data(1)).write_bytes(b"")
    inspection = inspect_source(open_source(root))
    assert inspection.sample is not None
    assert inspection.sample.episode.provenance.locator == "episode_000002"
    assert "missing-data-file" in reasons(inspection.findings)


def test_a_dataset_without_readable_episode(tmp_path: Path) -> None:
    root = write_v2(tmp_path / "toy")
    for index in (0, 1):
        (root / v2_data(index)).unlink()
    inspection = inspect_source(open_source(root))
    assert inspection.sample is None
    assert "missing-data-file" in reasons(inspection.findings)


def test_long_folders_are_shortened(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"f_{number}").write_bytes(b"x" * 2048)
    tree = file_tree(tmp_path)
    assert tree[1:3] == ["  f_0  2.0 KiB", "  f_1  2.0 KiB"]
    assert tree[-1] == "  ... 24 more"
    assert file_tree(tmp_path / "f_1") == ["f_1  2.0 KiB"]


def test_the_picture_shows_first_middle_and_last_frame_of_every_camera(tmp_path: Path) -> None:
    episode = read_all(write_v2(tmp_path / "toy", lengths=(9,), cameras=CAMERAS))[0].episode
    path = tmp_path / "sheet.png"
    assert write_contact_sheet(episode, path) == ("top", "wrist")
    with av.open(str(path)) as container:
        picture = next(container.decode(video=0)).to_ndarray(format="rgb24")
    height, width = 180, 240
    assert picture.shape == (2 * height + 4, 3 * width + 2 * 4, 3)
    # Frames are grey by their number (5 a frame), lighter from left to right.
    greys = [np.median(picture[20:160, x + 120 : x + 200]) for x in (0, width + 4, 2 * width + 8)]
    assert greys == pytest.approx([0, 20, 40], abs=4)


def test_no_camera_no_picture(tmp_path: Path) -> None:
    episode = read_all(write_v2(tmp_path / "toy", cameras=()))[0].episode
    with pytest.raises(IngestError, match="no camera"):
        write_contact_sheet(episode, tmp_path / "sheet.png")


def test_a_picture_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    episode = read_all(write_v2(tmp_path / "toy"))[0].episode
    with pytest.raises(IngestError, match="cannot be written"):
        write_contact_sheet(episode, tmp_path / "no/such/folder.png")

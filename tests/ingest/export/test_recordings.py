"""Datasets of others, through a lake and out again: every packet and value as it was."""

import json
from pathlib import Path

import pytest

from ingest.export.lerobot.schema import Version
from ingest.pipeline import ingest_sources
from lake import Episode, create_lake
from tests.ingest.export.lakes import LABELS, episodes_of, exported, ingested

MOST = 6  # episodes of a dataset
INDICES = ("episode_index", "frame_index", "index", "task_index", "timestamp")


def compare(before: Episode, after: Episode) -> None:
    """All but indices, without decoding: packets and what decoders need are equal."""
    for name, values in before.features.items():
        if name not in INDICES and not name.startswith("annotation_"):
            assert after.features[name].tobytes() == values.tobytes(), name
    for name in ("fps", "embodiment", *LABELS):
        assert getattr(before, name) == getattr(after, name), name
    ours, theirs = (
        [feature for feature in episode.spec.features if feature.name not in INDICES]
        for episode in (before, after)
    )
    assert ours == theirs
    assert after.spec.slices == before.spec.slices
    assert after.spec.conventions == before.spec.conventions
    assert after.cameras.keys() == before.cameras.keys()
    for name, video in before.cameras.items():
        again = after.cameras[name]
        assert bytes(again.payload) == bytes(video.payload)
        for fact in ("codec", "width", "height", "pix_fmt", "color_range", "color_space"):
            assert getattr(again.index, fact) == getattr(video.index, fact), fact
        assert again.index.packet_frame.tolist() == video.index.packet_frame.tolist()
        assert again.index.step_to_frame.tolist() == video.index.step_to_frame.tolist()


@pytest.mark.parametrize("version", ["3.0", "2.1"])
@pytest.mark.parametrize(
    "name",
    [
        "lerobot_v3_by_lerobot_multi",
        "lerobot_v3_by_lerobot_h264",
        "lerobot_v21_unitree_g1",
        "lerobot_v2_gr00t_picknplace",
    ],
)
def test_a_recording_comes_back(
    tmp_path: Path, recordings: Path, name: str, version: Version
) -> None:
    source = recordings / name
    if not source.is_dir():
        pytest.skip(f"no recording {source}")
    lake = create_lake(tmp_path / "robots.lake")
    ingest_sources([source], lake)  # some of them lack files of most episodes
    before = episodes_of(lake)[:MOST]
    exported(lake, tmp_path / "out", version, episode_ids=[e.episode_id for e in before])
    after = episodes_of(ingested(tmp_path / "out", tmp_path / "after.lake"))
    assert len(after) == len(before)
    for one, other in zip(before, after, strict=True):
        compare(one, other)
        if "by_lerobot" in name:  # from their first episode on, so that numbers stay as well
            assert one.spec == other.spec
            assert one.content_sha256() == other.content_sha256()
    modality = source / "meta/modality.json"
    if modality.is_file():
        ours = json.loads((tmp_path / "out/meta/modality.json").read_text())
        theirs = json.loads(modality.read_text())
        assert ours["state"] == theirs["state"]
        assert ours["action"] == theirs["action"]
        assert ours["annotation"] == theirs["annotation"]

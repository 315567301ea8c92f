import json
from pathlib import Path
from typing import Any

import pytest

from ingest.lerobot.modality import Modality, read_modality
from tests.ingest.lerobot_data import (
    edit_rows,
    open_source,
    read_all,
    reasons,
    replace_column,
    v2_data,
    write_v2,
)


def write(root: Path, content: object) -> Path:
    (root / "meta").mkdir(exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (root / "meta/modality.json").write_text(text)
    return root


GOOD: dict[str, Any] = {
    "state": {
        "arm": {"start": 0, "end": 2, "rotation_type": "quaternion", "range": [0, 1]},
        "grip": {"start": 2, "end": 3},
    },
    "action": {"all": {"start": 0, "end": 3, "absolute": True, "original_key": "action"}},
    "video": {"front": {"original_key": "observation.images.top"}},
    "annotation": {"human.validity": {}, "human.task": {"original_key": "task_index"}},
}


def test_no_file_is_an_empty_modality(tmp_path: Path) -> None:
    assert read_modality(tmp_path) == (Modality(), [])


def test_slices_are_named_in_the_spec_with_their_attributes(tmp_path: Path) -> None:
    root = write(write_v2(tmp_path / "d"), GOOD)
    spec = open_source(root).spec
    parts = {(part.feature, part.name): part for part in spec.slices}
    assert (parts["state", "arm"].start, parts["state", "arm"].stop) == (0, 2)
    assert parts["state", "arm"].attributes == {"rotation_type": "quaternion", "range": "[0, 1]"}
    assert parts["action", "all"].attributes == {"absolute": "true", "original_key": "action"}
    assert spec.conventions["modality_camera:top"] == "front"


def test_annotations_become_tags_by_the_task_table(tmp_path: Path) -> None:
    root = write(write_v2(tmp_path / "d"), GOOD)
    edit_rows(
        root / v2_data(0), lambda table: replace_column(table, "annotation.human.validity", [1] * 5)
    )
    first = read_all(root)[0].episode
    assert first.instruction == "pick the cube"
    assert first.tags == ("human.validity=open the drawer",)
    assert first.features["annotation_human_validity"].tolist() == [1] * 5
    assert "task_index" in first.spec.conventions["annotation:human.task"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "empty-file"),
        ("nonsense", "bad-json"),
        ({"state": {"arm": {"start": 2, "end": 2}}}, "bad-slice"),
        ({"state": {"arm": {"start": 0, "end": "2"}}}, "bad-slice"),
        ({"state": []}, "bad-modality"),
        ({"video": []}, "bad-modality"),
        ({"annotation": {"a": 3}}, "bad-modality"),
    ],
)
def test_damage_is_a_finding(tmp_path: Path, content: object, reason: str) -> None:
    modality, findings = read_modality(write(tmp_path, content))
    assert reasons(findings) == {reason}
    assert modality.slices == ()


@pytest.mark.parametrize(
    "part", [{"start": 0, "end": 9}, {"start": 0, "end": 1, "original_key": "no"}]
)
def test_a_slice_outside_its_column_is_a_finding_not_a_failure(tmp_path: Path, part: Any) -> None:
    root = write(write_v2(tmp_path / "d"), {"state": {"arm": part}})
    source = open_source(root)
    assert source.spec.slices == ()
    source.read(source.entries()[0])
    assert "bad-slice" in reasons(source.findings())

"""Names, dtypes and conventions: checked on the way in, the same after JSON."""

from typing import Any

import numpy as np
import pytest

from lake import CameraSpec, FeatureSpec, Spec
from lake.errors import SpecError
from lake.spec import DTYPES, FeatureSlice, canonical_name


def feature(name: str = "state", **changes: Any) -> FeatureSpec:
    fields: dict[str, Any] = {"source_name": name, "dtype": "float32", "shape": (3,)}
    return FeatureSpec(name=name, **{**fields, **changes})


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("observation.state", "state"),
        ("observation.images.top", "top"),
        ("observation.image.cam_0", "cam_0"),
        ("obs/joint_pos", "joint_pos"),
        ("next.reward", "next_reward"),
        ("Left Arm/Gripper-Pos", "left_arm_gripper_pos"),
        ("observation.", "observation"),
        ("0th", "f_0th"),
        ("__", "f_"),
        ("速度", "f_"),
        ("action", "action"),
    ],
)
def test_canonical_names(source: str, name: str) -> None:
    assert canonical_name(source) == name
    assert feature(name).name == name


@pytest.mark.parametrize("name", ["", "State", "1st", "a.b", "a:b", "a b", "_x", "é"])
def test_illegal_names_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match="use lower-case letters"):
        feature(name)
    with pytest.raises(SpecError, match="use lower-case letters"):
        CameraSpec(name=name, source_name="c", height=1, width=1)


@pytest.mark.parametrize("dtype", ["complex64", ">f4", "float", "object", "datetime64[ns]", "nope"])
def test_dtypes_that_cannot_be_kept_are_refused(dtype: str) -> None:
    with pytest.raises(SpecError, match=r"cannot be stored; use one of bool, int8"):
        feature(dtype=dtype)


def test_every_dtype_is_numpys_own_name() -> None:
    assert [np.dtype(d).name for d in DTYPES if d != "string"] == list(DTYPES[:-1])


@pytest.mark.parametrize(("shape", "size"), [((), 1), ((3,), 3), ((2, 3), 6), ((0,), 0)])
def test_sizes(shape: tuple[int, ...], size: int) -> None:
    assert feature(shape=shape).size == size


def test_names_count_the_elements() -> None:
    assert feature(shape=(2, 2), names=("a", "b", "c", "d")).names == ("a", "b", "c", "d")
    with pytest.raises(SpecError, match="2 element names for 3 elements"):
        feature(names=("a", "b"))


def test_units_count_the_elements() -> None:
    with pytest.raises(SpecError, match="1 units for 3 elements"):
        feature(units=("m",))


def test_names_are_unicode() -> None:
    with pytest.raises(SpecError, match="not Unicode"):
        full_spec(conventions={"made by": "\udcff"})


def full_spec(**changes: Any) -> Spec:
    fields: dict[str, Any] = {
        "features": (
            feature(names=("x", "y", "z"), units=("m", "m", "m"), role="state"),
            feature("note", dtype="string", shape=()),
        ),
        "cameras": (CameraSpec(name="top", source_name="t", height=4, width=6, is_depth=True),),
        "slices": (
            FeatureSlice(name="xy", feature="state", start=0, stop=2, attributes={"kind": "abs"}),
        ),
        "conventions": {"gripper": "1 is open", "b": "é"},
    }
    return Spec(**{**fields, **changes})


def test_json_keeps_everything() -> None:
    spec = full_spec()
    back = Spec.from_json(spec.to_json())
    assert back == spec
    assert back.spec_id == spec.spec_id
    assert len(spec.spec_id) == 16


def test_the_id_changes_with_any_content_but_not_with_order_of_conventions() -> None:
    changed = [
        full_spec(),
        full_spec(conventions={}),
        full_spec(cameras=()),
        full_spec(slices=()),
        full_spec(features=tuple(reversed(full_spec().features))),
    ]
    assert len({spec.spec_id for spec in changed}) == len(changed)
    turned = dict(reversed(list(full_spec().conventions.items())))
    assert full_spec(conventions=turned).spec_id == full_spec().spec_id


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": (feature(), feature())}, "feature names used twice: state"),
        (
            {"cameras": (CameraSpec(name="a", source_name="a", height=1, width=1),) * 2},
            "camera names used twice: a",
        ),
        (
            {"slices": (FeatureSlice(name="s", feature="state", start=1, stop=4),)},
            r"\[1, 4\) is outside state with 3",
        ),
        ({"slices": (FeatureSlice(name="s", feature="no", start=0, stop=1),)}, "no feature called"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        full_spec(**changes)

"""The picture of a plan."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lake import Lake
from packing.errors import PackingError
from packing.make_plan import make_plan
from packing.mixture import Mixture
from packing.plan import Plan
from packing.plan_picture import draw_plan
from packing.trajectory_spans import TrajectorySpans


@pytest.fixture
def plan(ten: Lake) -> Plan:
    return make_plan(ten, spans=TrajectorySpans(), budget_tokens=512, slots_per_step=2)


def test_png_of_a_readable_size(plan: Plan, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `packing`")
    path = tmp_path / "plan.png"
    draw_plan(plan, path)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (1800, 900)


def test_a_mixture_is_drawn_beside_what_was_recorded(ten: Lake, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `packing`")
    mixture = Mixture(weights={"even": 1, "odd": 3})
    mixed = make_plan(
        ten, spans=TrajectorySpans(), budget_tokens=512, slots_per_step=2, mixture=mixture
    )
    draw_plan(mixed, tmp_path / "plan.svg")
    drawn = (tmp_path / "plan.svg").read_text(encoding="utf-8")
    for word in ("recorded", "planned", "even", "odd"):
        assert f"<!-- {word} -->" in drawn


def test_long_names_and_many_of_them_leave_room(plan: Plan, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `packing`")
    source = plan.header.audit[0]
    names = [f"a_dataset_of_a_very_long_name_{'x' * 40}_{n:02d}" for n in range(40)]
    audit = tuple(replace(source, dataset=name) for name in names)
    segments = (replace(plan.header.newest, audit=audit),)
    draw_plan(replace(plan, header=replace(plan.header, segments=segments)), tmp_path / "plan.svg")
    drawn = (tmp_path / "plan.svg").read_text(encoding="utf-8")
    for n in range(40):
        assert f"<!-- a_dataset_of_a\u2026xxxxxxxxxxxx_{n:02d} -->" in drawn


def test_unknown_suffix_and_missing_folder(plan: Plan, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `packing`")
    for path in (tmp_path / "plan.xyz", tmp_path / "no" / "plan.png"):
        with pytest.raises(PackingError, match="cannot be written"):
            draw_plan(plan, path)


def test_without_matplotlib_the_extra_is_named(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PackingError, match=r"headrace\[packing\]"):
        draw_plan(plan, tmp_path / "plan.png")

"""Packs whose pictures were scaled and encoded anew: close to the episodes', and said to be so."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lake import Lake, open_lake
from lake.video_index import VideoIndex
from loader import LoaderError, PackLoader
from loader.batch import NumpyBatch
from loader.cursor import Cursor
from loader.fetch.plan_rows import PlanRows
from loader.materialized.materialize import materialize
from loader.materialized.pack import PackContent, pack_from_bytes
from loader.materialized.pack_set import MaterializedSet
from loader.materialized.report import report_of
from loader.materialized.settings import MaterializedSettings
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.window_spans import WindowSpans
from tests.loader import scenes

_INLINE: dict[str, Any] = {"process": "inline", "framework": "numpy"}
SIZE = (24, 40)
LOSSY = [
    MaterializedSettings(codec="h264", image_size=SIZE),
    MaterializedSettings(codec="mjpeg", image_size=SIZE, quality=2),
    MaterializedSettings(codec="h264", image_size=(23, 41), quality=10),
    MaterializedSettings(codec="mjpeg"),
]


@pytest.fixture(scope="module")
def plan(scene: Lake) -> Plan:
    """Windows whose histories overlap, so that a pack shows pictures more than once."""
    return scenes.scene_plan(scene, spans=WindowSpans(horizon=4, history=3), budget_tokens=384)


@pytest.fixture(scope="module")
def lake(scene: Lake, plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("reencode") / "x.lake"
    shutil.copytree(scene.uri, folder)
    made = open_lake(folder)
    save_plan(made, plan)
    return made


def _batches(lake: Lake, plan: Plan, **options: Any) -> list[NumpyBatch]:
    with PackLoader(lake, plan, **_INLINE, **options) as loader:
        return list(loader)


def _equal_but_pixels(one: NumpyBatch, other: NumpyBatch) -> bool:
    ours, theirs = dict(one.arrays()), dict(other.arrays())
    return ours.keys() == theirs.keys() and all(
        np.array_equal(array, theirs[name])
        for name, array in ours.items()
        if not name.startswith("images.")
    )


def _pixels(batches: list[NumpyBatch]) -> NDArray[np.uint8]:
    return np.concatenate([bucket.reshape(-1) for batch in batches for bucket in batch.images])


@pytest.mark.parametrize("size", [SIZE, None], ids=str)
def test_png_equals_what_the_loader_would_have_scaled(
    lake: Lake, plan: Plan, size: tuple[int, int] | None
) -> None:
    settings = MaterializedSettings(codec="png", image_size=size)
    report = report_of(materialize(lake, plan, settings, workers=0, chunk_packs=9), plan)
    assert (report.psnr_db, report.exact) == (None, False)
    expected = [scenes.digest(b) for b in _batches(lake, plan, image_size=size)]
    found = [scenes.digest(b) for b in _batches(lake, plan, materialized=settings.name)]
    assert found == expected


@pytest.mark.parametrize("settings", LOSSY, ids=lambda settings: settings.name)
def test_lossy_codecs_change_pixels_only_and_say_how_much(
    lake: Lake, plan: Plan, settings: MaterializedSettings
) -> None:
    target = materialize(lake, plan, settings, workers=0)
    expected = _batches(lake, plan, image_size=settings.image_size)
    found = _batches(lake, plan, materialized=settings.name)
    assert all(map(_equal_but_pixels, found, expected))
    ours, theirs = _pixels(found).astype(np.int64), _pixels(expected).astype(np.int64)
    psnr = 10 * np.log10(255**2 / np.mean((ours - theirs) ** 2))
    stated = report_of(target, plan).psnr_db
    assert stated is not None
    # Stated over distinct pictures; here each counts as often as it is shown.
    assert stated == pytest.approx(psnr, abs=0.5)
    assert stated > 18  # noise at full contrast is the hardest that can be encoded


def _content(target: MaterializedSet, plan: Plan, pack: int) -> PackContent:
    cursor = Cursor(
        plan_hash=plan.plan_hash,
        num_steps=plan.num_steps,
        slots_per_step=plan.header.slots_per_step,
        rank=0,
        world_size=1,
    )
    rows = PlanRows(plan)
    (row,) = rows.read([cursor.place(pack)])
    data = target.take([pack], ["data"])["data"][0].as_buffer()
    return pack_from_bytes(memoryview(data), row, rows, {})


def test_a_picture_shown_twice_is_encoded_once_in_a_stream_per_size(lake: Lake, plan: Plan) -> None:
    target = materialize(lake, plan, MaterializedSettings(codec="png"), workers=0)
    copied = materialize(lake, plan, workers=0)
    repeated = several = 0
    for pack in range(plan.packs.num_rows):
        new, old = _content(target, plan, pack), _content(copied, plan, pack)
        shown = set(zip(old.images.stream.tolist(), old.images.frame.tolist(), strict=True))
        indexes: list[VideoIndex] = [run.stream.index for run in new.runs]
        assert sum(len(index.packet_size) for index in indexes) == len(shown)
        sizes = [(index.height, index.width) for index in indexes]
        assert sizes == sorted(set(sizes))
        repeated += len(shown) < len(new.images)
        several += len(sizes) > 1
    assert repeated > 0
    assert several > 0


def test_key_frames_are_near(lake: Lake, plan: Plan) -> None:
    target = materialize(lake, plan, MaterializedSettings(codec="h264", image_size=SIZE), workers=0)
    longest = 0
    for pack in range(plan.packs.num_rows):
        for run in _content(target, plan, pack).runs:
            keys = np.flatnonzero(run.stream.index.packet_key)
            assert keys[0] == 0
            assert (np.diff(keys) == 15).all()
            longest = max(longest, len(run.stream.index.packet_key))
    assert longest > 15


def test_processes_and_restarts_give_the_same_bytes(lake: Lake, plan: Plan, tmp_path: Path) -> None:
    settings = MaterializedSettings(codec="h264", image_size=(16, 16), quality=30)
    other = tmp_path / "x.lake"
    shutil.copytree(lake.uri, other)
    one = materialize(lake, plan, settings, workers=0)
    two = materialize(open_lake(other), plan, settings, workers=2, chunk_packs=5)
    assert one.dataset.to_table().combine_chunks().equals(two.dataset.to_table().combine_chunks())


def test_the_loader_says_and_keeps_the_size_of_a_set(lake: Lake, plan: Plan) -> None:
    settings = MaterializedSettings(codec="png", image_size=SIZE)
    materialize(lake, plan, settings, workers=0)
    with PackLoader(lake, plan, **_INLINE, materialized=settings.name, image_size=SIZE) as loader:
        assert loader.source == "materialized 24x40-png"
        assert {bucket.shape[2:] for batch in loader for bucket in batch.images} == {SIZE}
    with pytest.raises(LoaderError, match=r"size \(24, 40\), not \(8, 8\): leave image_size out"):
        PackLoader(lake, plan, materialized=settings.name, image_size=(8, 8))
    native = MaterializedSettings(codec="png")
    materialize(lake, plan, native, workers=0)
    scaled = _batches(lake, plan, materialized=native.name, image_size=(8, 8))
    assert {bucket.shape[2:] for batch in scaled for bucket in batch.images} == {(8, 8)}


def test_yuv_comes_as_it_was_encoded(lake: Lake, plan: Plan) -> None:
    settings = MaterializedSettings(codec="h264", image_size=SIZE)
    materialize(lake, plan, settings, workers=0)
    for batch in _batches(lake, plan, materialized=settings.name, image_format="yuv"):
        assert {bucket.shape[1:] for bucket in batch.images} == {(36, 40)}

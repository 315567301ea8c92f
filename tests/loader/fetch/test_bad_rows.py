"""Damaged rows of episodes: in whatever column, on the way or in the lake; what is still known."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lake import CameraSpec, FeatureSpec, Lake, Spec
from lake.errors import CorruptDataError, EpisodeNotFoundError, LakeError
from loader.errors import LoaderError
from loader.fetch.bad_rows import MOST_REREADS, picture_sizes
from loader.fetch.episodes import EpisodeData, EpisodeReader
from loader.fetch.plan_rows import PlanRows
from loader.observe.metrics import LoaderMetrics
from loader.storage.settings import StorageSettings
from loader.storage.tiers import Tiers
from packing.plan import Plan
from tests.loader.scenes import EPISODES, scene_episode

_VICTIM = 5  # has two cameras of different sizes

Change = Callable[[Any, int], Any]
"""Makes a wrong value of a right one, and of how many reads there were."""


class _Damaging(Tiers):
    """Tiers in which a column of one row is wrong."""

    def __init__(
        self, lake: Lake, rows: PlanRows, address: int, column: str, change: Change
    ) -> None:
        super().__init__(lake, rows.content_key, StorageSettings(), LoaderMetrics())
        self._victim = address
        self._column = column
        self._change = change
        self.past_caches: list[bool] = []

    def rows(
        self, addresses: Sequence[int], columns: Sequence[str], *, past_caches: bool = False
    ) -> pa.Table:
        found = super().rows(addresses, columns, past_caches=past_caches)
        self.past_caches.append(past_caches)
        if self._column not in columns:
            return found
        values = found[self._column].to_pylist()
        if self._victim in addresses:
            number = list(addresses).index(self._victim)
            values[number] = self._change(values[number], len(self.past_caches))
        at = found.column_names.index(self._column)
        field = found.schema.field(at)
        return found.set_column(at, field, pa.array(values, field.type))


def _read(
    lake: Lake, plan: Plan, column: str, change: Change
) -> tuple[dict[int, EpisodeData], _Damaging]:
    """All episodes of a plan by their numbers, one of them with a wrong value in its row."""
    rows = PlanRows(plan)
    numbers = [int(name.split("episode_")[1][:6]) for name in rows.episode_id.to_pylist()]
    address = int(rows.address[numbers.index(_VICTIM)])
    tiers = _Damaging(lake.at(plan.header.versions), rows, address, column, change)
    found = EpisodeReader(tiers, rows).read(range(len(numbers)))
    return {number: found[row] for row, number in enumerate(numbers)}, tiers


@pytest.fixture(scope="module")
def sound(scene: Lake, plan: Plan) -> dict[int, EpisodeData]:
    return _read(scene, plan, "state", lambda value, _: value)[0]


def _first(change: Callable[[Any], Any]) -> Change:
    """Changes the first of several values."""
    return lambda values, _: [change(values[0]), *values[1:]]


def _text(text: str) -> str:
    return chr(ord(text[0]) ^ 1) + text[1:]


_COLUMNS: dict[str, tuple[Change, str]] = {
    "timestamps_ns": (_first(lambda ns: ns + 1), "timestamps_ns does not match its checksum"),
    "timestamps_checksum": (lambda value, _: value ^ 1, "timestamps_ns does not match"),
    "state": (_first(lambda value: -value), "^state does not match its checksum$"),
    "action": (_first(lambda value: -value), "^action does not match its checksum$"),
    "feature_checksums": (_first(lambda value: value ^ 1), "does not match its checksum"),
    "features": (_first(_text), "its facts do not match their checksum"),
    "num_steps": (lambda value, _: value + 4, "timestamps for .* steps"),
    "spec_id": (lambda value, _: _text(value), "its facts do not match"),
    "episode_id": (lambda value, _: _text(value), "its facts do not match"),
    "cameras": (_first(_text), "its facts do not match"),
    "camera_bytes": (_first(lambda value: value + 1), "the row says .* bytes of video"),
    "video_indexes": (
        _first(lambda value: value[:40] + bytes([value[40] ^ 1]) + value[41:]),
        "camera top: video index does not match its checksum",
    ),
    "video_index_checksums": (_first(lambda value: value ^ 1), "camera top: video index"),
}


@pytest.mark.parametrize("column", _COLUMNS)
def test_a_damaged_row_gives_up_its_episode_and_no_other(
    scene: Lake, plan: Plan, sound: dict[int, EpisodeData], column: str
) -> None:
    change, reason = _COLUMNS[column]
    found, tiers = _read(scene, plan, column, change)
    assert tiers.past_caches == [False, True, True]
    lost = found[_VICTIM]
    assert lost.damage is not None
    assert lost.damage.camera == ""
    assert re.search(reason, lost.damage.reason)
    whole = sound[_VICTIM]
    for name in ("state", "action", "shown"):
        assert getattr(lost, name).shape == getattr(whole, name).shape
    assert not lost.state.any()
    assert not lost.action.any()
    assert lost.cameras.keys() == whole.cameras.keys()
    for camera, stream in lost.cameras.items():
        there = whole.cameras[camera].index
        nominal = column == "cameras" and camera == min(whole.cameras)  # it has lost its name
        size = (48, 64) if nominal else (there.height, there.width)
        assert (stream.index.height, stream.index.width) == size
    for number in range(EPISODES):
        if number != _VICTIM:
            assert found[number].damage is None
            for name in ("state", "action", "shown"):
                np.testing.assert_array_equal(
                    getattr(found[number], name), getattr(sound[number], name)
                )


def test_a_row_that_a_further_read_gives_right_is_whole(
    scene: Lake, plan: Plan, sound: dict[int, EpisodeData]
) -> None:
    def change(value: int, reads: int) -> int:
        return value ^ reads if reads < 3 else value

    found, tiers = _read(scene, plan, "timestamps_checksum", change)
    assert tiers.past_caches == [False, True, True]
    assert found[_VICTIM].damage is None
    np.testing.assert_array_equal(found[_VICTIM].state, sound[_VICTIM].state)


def test_a_row_that_differs_with_every_read_is_an_error(scene: Lake, plan: Plan) -> None:
    message = rf"000005-\w+: state does not match its checksum, and each of {MOST_REREADS} further"
    with pytest.raises(CorruptDataError, match=message):
        _read(scene, plan, "state", lambda values, reads: [values[0] + reads, *values[1:]])


def _no_content(value: bytes, reads: int) -> bytes:
    return bytes(len(value)) if reads else value


def test_a_sound_row_of_another_lake_is_an_error(scene: Lake, plan: Plan) -> None:
    with pytest.raises(LoaderError, match="the plan was made of another lake"):
        _read(scene, plan, "content_sha256", _no_content)


def test_a_damaged_spec_is_no_fault_of_its_episodes(
    scene: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spec(_: Lake, spec_id: str) -> Spec:
        raise CorruptDataError(f"spec {spec_id}: its text does not match its id")

    monkeypatch.setattr(Lake, "spec", spec)
    with pytest.raises(CorruptDataError, match="its text does not match its id"):
        _read(scene, plan, "state", lambda value, _: value)


@pytest.mark.parametrize("kind", [LakeError, EpisodeNotFoundError])
def test_a_store_that_fails_is_an_error(
    scene: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch, kind: type[LakeError]
) -> None:
    take = Tiers.rows

    def rows(self: Tiers, *args: Any, past_caches: bool = False) -> pa.Table:
        if past_caches:
            raise kind("gone")
        return take(self, *args)

    monkeypatch.setattr(Tiers, "rows", rows)
    with pytest.raises(kind, match="gone"):
        _read(scene, plan, "timestamps_checksum", lambda value, _: value ^ 1)


def test_sizes_of_pictures_come_from_the_row_then_the_spec_then_nowhere() -> None:
    spec = Spec(
        features=(FeatureSpec(name="a", source_name="a", dtype="float32", shape=()),),
        cameras=tuple(
            CameraSpec(name=name, source_name=name, height=height, width=4 * height)
            for name, height in (("top", 10), ("wrist", 20), ("side", 0))
        ),
    )

    def row(**columns: Any) -> pa.Table:
        return pa.table({name: [values] for name, values in columns.items()})

    told = row(cameras=["top", "wrist"], camera_heights=[32, 48], camera_widths=[64, 1 << 30])
    sizes = picture_sizes(told, spec, ["top", "wrist", "side", "back"])
    assert sizes == {"top": (32, 64), "wrist": (20, 80), "side": (16, 16), "back": (16, 16)}
    cut = row(cameras=["top", "wrist"], camera_heights=[32], camera_widths=[64, 64])
    assert picture_sizes(cut, spec, ["top"]) == {"top": (10, 40)}


def test_the_scene_has_what_these_tests_are_about() -> None:
    sizes = {(v.index.height, v.index.width) for v in scene_episode(_VICTIM).cameras.values()}
    assert len(sizes) == 2

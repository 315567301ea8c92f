"""Only bad bytes in the lake become padding, and only so many; all else stays an error."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake import Lake, open_lake
from lake.errors import CorruptDataError, LakeError
from loader import PackLoader
from loader.bad_spans import BadSpan
from loader.errors import BadDataError
from loader.storage.settings import StorageSettings
from loader.storage.tiers import Tiers
from packing.plan import Plan
from tests.guarantees.bad_bytes_truth import (
    CASES,
    SLOTS,
    Spans,
    assert_equal,
    assert_padding,
    feature_bytes,
    planned_rows,
    sound_lake,
    streamed,
)
from tests.loader import scenes
from tests.loader.damage import damaged_copy, spans_of


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return sound_lake(Path(tmp_path_factory.mktemp("sound")))


@pytest.fixture(scope="module")
def plan(lake: Lake) -> Plan:
    return scenes.scene_plan(lake, slots_per_step=SLOTS)


@pytest.fixture(scope="module")
def sound(lake: Lake, plan: Plan) -> Spans:
    """Every span as the sound lake gives it."""
    return streamed(lake, plan)[0]


@pytest.fixture(scope="module")
def damaged(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """All kinds of damage at once."""
    return damaged_copy(
        lake, Path(tmp_path_factory.mktemp("damaged")) / "robots.lake", CASES["all kinds"]()[0]
    )


@pytest.fixture(scope="module")
def reference(damaged: Lake, plan: Plan) -> list[BadSpan]:
    """The bad spans, in their order."""
    return streamed(damaged, plan)[1]


class _Transient(Tiers):
    """Every read but those past the caches brings a flipped bit."""

    def ranges(self, ranges: Any, *, past_caches: bool = False) -> list[bytes]:
        found = super().ranges(ranges, past_caches=past_caches)
        return found if past_caches else [_with_a_flip(part) for part in found]

    def rows(self, addresses: Any, columns: Any, *, past_caches: bool = False) -> Any:
        found = super().rows(addresses, columns, past_caches=past_caches)
        name = "timestamps_checksum"
        if past_caches or name not in columns:
            return found
        wrong = [value ^ 1 for value in found[name].to_pylist()]
        return found.set_column(columns.index(name), name, pa.array(wrong, pa.uint64()))


def _with_a_flip(part: bytes) -> bytes:
    flipped = bytearray(part)
    flipped[len(part) // 2] ^= 1
    return bytes(flipped)


def test_damage_on_the_way_changes_nothing(
    lake: Lake, plan: Plan, sound: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loader.stream.Tiers", _Transient)
    with PackLoader(lake, plan, process="inline", framework="numpy", max_bad_share=0) as loader:
        spans = {key: values for batch in loader for key, values in spans_of(batch).items()}
    assert loader.bad_spans == []
    assert loader.metrics.counts["reread_bytes"] > 0
    for key, values in sound.items():
        assert_equal(spans[key], values)


class _Failing(Tiers):
    """The store fails."""

    def ranges(self, ranges: Any, *, past_caches: bool = False) -> list[bytes]:
        if past_caches:
            raise LakeError("connection reset")
        return super().ranges(ranges)


class _NeverTheSame(Tiers):
    """Whatever is read again has another bit flipped."""

    reads = 0

    def ranges(self, ranges: Any, *, past_caches: bool = False) -> list[bytes]:
        found = []
        for part in super().ranges(ranges, past_caches=past_caches):
            flipped = bytearray(part)
            flipped[len(part) // 2] ^= 1 + self.reads
            found.append(bytes(flipped))
        self.reads += past_caches
        return found


@pytest.mark.parametrize(
    ("tiers", "kind", "message"),
    [
        (_Failing, LakeError, "connection reset"),
        (_NeverTheSame, CorruptDataError, "damaged on the way, not in the lake"),
    ],
)
def test_what_the_lake_is_not_to_blame_for_is_an_error(
    damaged: Lake,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    tiers: type[Tiers],
    kind: type[Exception],
    message: str,
) -> None:
    monkeypatch.setattr("loader.stream.Tiers", tiers)
    with (
        PackLoader(damaged, plan, process="inline", framework="numpy", max_bad_share=1) as loader,
        pytest.raises(kind, match=message),
    ):
        list(loader)


@pytest.mark.parametrize("process", ["inline", "child"])
def test_above_the_ceiling_it_is_an_error_that_says_what_to_do(
    damaged: Lake, plan: Plan, reference: list[BadSpan], process: Any
) -> None:
    total = len(planned_rows(plan))
    allowed = len(reference) - 1
    options: dict[str, Any] = {"process": process, "framework": "numpy"}
    handed_out: list[tuple[int, int]] = []
    with (
        PackLoader(damaged.uri, plan, **options, max_bad_share=(allowed + 0.5) / total) as loader,
        pytest.raises(BadDataError) as raised,
    ):
        handed_out.extend((batch.step, batch.slot) for batch in loader)
    # The one that is too many: of several in a pack, the last.
    last = max(reversed(reference), key=lambda span: (span.step, span.slot))
    for part in (
        rf"\(step {last.step}, slot {last.slot}\)",
        f"episode {last.episode_id}",
        last.reason,
        f"{len(reference)} spans of this rank are bad so far",
        f"of the plan's {total} allows {allowed}",
        "headrace doctor",
        "max_bad_share",
    ):
        assert raised.match(part)
    assert (last.step, last.slot) not in handed_out
    assert all((span.step, span.slot) in handed_out for span in loader.bad_spans)
    with PackLoader(damaged, plan, **options, max_bad_share=len(reference) / total) as loader:
        assert len(list(loader)) == plan.packs.num_rows


def test_what_one_rank_may_stream_any_number_of_them_may(
    damaged: Lake, plan: Plan, reference: list[BadSpan]
) -> None:
    share = len(reference) / len(planned_rows(plan))
    world_size = plan.header.slots_per_step
    bad = []
    for rank in range(world_size):
        with PackLoader(
            damaged,
            plan,
            rank,
            world_size,
            process="inline",
            framework="numpy",
            max_bad_share=share,
        ) as loader:
            assert sum(1 for _ in loader) == plan.packs.num_rows // world_size
            bad += loader.bad_spans
    assert sorted(bad, key=str) == sorted(reference, key=str)


@pytest.mark.parametrize("share", [0, 1e-4])
def test_a_small_plan_allows_no_bad_span(damaged: Lake, plan: Plan, share: float) -> None:
    with (
        PackLoader(
            damaged, plan, process="inline", framework="numpy", max_bad_share=share
        ) as loader,
        pytest.raises(BadDataError, match=r"max_bad_share=.* allows 0"),
    ):
        list(loader)


def test_each_damaged_camera_and_row_is_warned_of_once(
    damaged: Lake, plan: Plan, reference: list[BadSpan], caplog: pytest.LogCaptureFixture
) -> None:
    streamed(damaged, plan)
    warned = [each.getMessage() for each in caplog.records if each.name == "headrace.loader"]
    wheres = {span.where for span in reference}
    assert len(warned) == len(wheres)
    assert {message.partition(" is damaged")[0] for message in warned} == wheres


def test_a_lake_of_which_nothing_is_left_is_still_streamed_to_its_end(
    lake: Lake, plan: Plan, sound: Spans, tmp_path: Path
) -> None:
    needles = [feature_bytes(number, "state") for number in range(scenes.EPISODES + 1)]
    spans, bad = streamed(damaged_copy(lake, tmp_path / "damaged.lake", needles), plan)
    assert len(bad) == len(sound) == len(spans)
    for key, values in spans.items():
        assert_padding(values, sound[key], pictures_known=True)
    with pytest.raises(BadDataError):
        streamed(open_lake(tmp_path / "damaged.lake"), plan, max_bad_share=0.99)


def test_what_the_node_s_cache_holds_is_served_though_the_lake_is_damaged_since(
    lake: Lake, plan: Plan, sound: Spans, damaged: Lake, tmp_path: Path
) -> None:
    """These bytes match their checksums, wherever they come from."""
    storage = StorageSettings(cache_dir=str(tmp_path / "cache"))
    streamed(lake, plan, storage=storage)
    spans, bad = streamed(damaged, plan, storage=storage, max_bad_share=0)
    assert bad == []
    for key, values in sound.items():
        assert_equal(spans[key], values)

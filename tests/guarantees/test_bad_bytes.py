"""Bad bytes in the lake, and only those, become padding: recorded, bounded, and the same for all.

Bits of stored files are flipped. Every span that does not need them must come out as if nothing had
happened; those that do are handed out once, with no weight. Which they are is worked out here from
the lake that was damaged, packet by packet.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from lake import EpisodeWriter, Lake, create_lake
from lake.episode import Episode
from lake.errors import CorruptDataError, LakeError
from lake.video_index import VideoIndex
from loader import PackLoader
from loader.bad_spans import BadSpan
from loader.batch import IGNORED_LABEL
from loader.errors import BadDataError
from loader.plan_rows import PlanRows
from loader.storage.settings import StorageSettings
from loader.storage.tiers import Tiers
from packing.known_layouts import KNOWN_LAYOUTS
from packing.plan import Plan
from packing.state_text import state_bins
from packing.tokenizer import find_tokenizer
from tests.episodes import make_episode
from tests.loader import scenes
from tests.loader.damage import SpanKey, damaged_copy, packet, spans_of
from tests.loader.video_kinds import bframe_video
from tests.packing.small_tokenizers import gemma_like, write

_SLOTS = 3
_REORDERED = scenes.EPISODES  # the episode with B-frames and open groups of pictures

Spans = dict[SpanKey, dict[str, NDArray[Any]]]


@functools.cache
def _episode(number: int) -> Episode:
    if number < scenes.EPISODES:
        return scenes.scene_episode(number)
    return make_episode(number, steps=30, cameras={"top": bframe_video(30, gop=8)})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = create_lake(Path(tmp_path_factory.mktemp("sound")) / "robots.lake")
    with EpisodeWriter(made) as writer:
        for number in range(scenes.EPISODES + 1):
            writer.add(_episode(number))
    made.refresh()
    return made


@pytest.fixture(scope="module")
def plan(lake: Lake) -> Plan:
    return scenes.scene_plan(lake, slots_per_step=_SLOTS)


@pytest.fixture(scope="module")
def sound(lake: Lake, plan: Plan) -> Spans:
    """Every span as the sound lake gives it."""
    return _streamed(lake, plan)[0]


def _streamed(lake: Lake, plan: Plan, **options: Any) -> tuple[Spans, list[BadSpan]]:
    """Every span, each once, and the bad ones."""
    chosen = {"process": "inline", "max_bad_share": 1.0, **options}
    spans: Spans = {}
    with PackLoader(lake, plan, framework="numpy", **chosen) as loader:
        for batch in loader:
            for key, values in spans_of(batch).items():
                assert key not in spans
                spans[key] = values
        assert loader.metrics.counts["bad_spans"] == len(loader.bad_spans)
        return spans, loader.bad_spans


def _rows(plan: Plan) -> list[dict[str, Any]]:
    """The spans of a plan as rows, read without the loader."""
    columns = ("span_id", "occurrence", "episode", "start", "stop", "stride")
    return [
        {
            "step": pack["step"],
            "slot": pack["slot"],
            "epoch": pack["epoch"],
            **dict(zip(columns, values, strict=True)),
        }
        for pack in plan.packs.to_pylist()
        for values in zip(*(pack[name] for name in columns), strict=True)
    ]


def _number(plan: Plan, episode: int) -> int:
    """The number of the episode that stands in a row of the plan's episodes."""
    name: str = plan.episodes["episode_id"][episode].as_py()
    return int(name.partition("episode_")[2].partition("-")[0])


def _needs(index: VideoIndex, frame: int) -> set[int]:
    """The packets without which a frame cannot be had."""
    own = index.packet_frame.tolist().index(frame)
    starts = [
        key
        for key in np.flatnonzero(index.packet_key).tolist()
        if key <= own and (index.packet_pts[key] <= index.packet_pts[own] or key == 0)
    ]
    return set(range(max(starts), own + 1))


def _lost(
    plan: Plan, packets: Mapping[tuple[int, str], set[int]], rows: set[int]
) -> dict[SpanKey, tuple[str, str]]:
    """Spans that need damaged packets (episode, camera) or rows -> episode and camera to blame."""
    found = {}
    for row in _rows(plan):
        number, key = (
            _number(plan, row["episode"]),
            (row["epoch"], row["span_id"], row["occurrence"]),
        )
        name = plan.episodes["episode_id"][row["episode"]].as_py()
        if number in rows:
            found[key] = (name, "")
            continue
        for camera in sorted(_episode(number).cameras):
            damaged = packets.get((number, camera), set())
            index = _episode(number).cameras[camera].index
            shown = index.step_to_frame[row["start"] : row["stop"] : row["stride"]].tolist()
            if any(frame >= 0 and damaged & _needs(index, frame) for frame in shown):
                found.setdefault(key, (name, camera))
    return found


def _packet(number: int, camera: str, packet_number: int) -> bytes:
    video = _episode(number).cameras[camera]
    return packet(video.index, video.payload, packet_number)


def _index(number: int, camera: str) -> bytes:
    return _episode(number).cameras[camera].index.to_bytes()


def _feature(number: int, name: str) -> bytes:
    return bytes(_episode(number).features[name].ravel()[4:12].tobytes())


_Case = tuple[list[bytes], dict[tuple[int, str], set[int]], set[int]]
_CASES: dict[str, Callable[[], _Case]] = {
    "inside a group of pictures": lambda: ([_packet(5, "top", 6)], {(5, "top"): {6}}, set()),
    "key": lambda: ([_packet(5, "wrist", 8)], {(5, "wrist"): {8}}, set()),
    "the last": lambda: ([_packet(5, "top", 28)], {(5, "top"): {28}}, set()),
    "several, of both cameras": lambda: (
        [_packet(3, "top", 1), _packet(3, "wrist", 7), _packet(3, "wrist", 16)],
        {(3, "top"): {1}, (3, "wrist"): {7, 16}},
        set(),
    ),
    **{
        f"reordered {number}": lambda number=number: (  # type: ignore[misc]
            [_packet(_REORDERED, "top", number)],
            {(_REORDERED, "top"): {number}},
            set(),
        )
        for number in (1, 7, 8, 9, 16, 29)
    },
    "state": lambda: ([_feature(1, "state")], {}, {1}),
    "action": lambda: ([_feature(2, "action")], {}, {2}),
    "the index of a camera with gaps": lambda: ([_index(2, "top")], {}, {2}),
    "the index of one of two cameras": lambda: ([_index(5, "wrist")], {}, {5}),
    "an episode without cameras": lambda: ([_feature(4, "state")], {}, {4}),
    "an id": lambda: ([_episode(6).episode_id.encode()], {}, {6}),
    "all kinds": lambda: (
        [
            _packet(5, "top", 6),
            _packet(_REORDERED, "top", 8),
            _feature(1, "state"),
            _index(2, "top"),
        ],
        {(5, "top"): {6}, (_REORDERED, "top"): {8}},
        {1, 2},
    ),
}


@pytest.mark.parametrize("case", _CASES)
def test_only_spans_that_need_the_bad_bytes_are_bad(
    lake: Lake, plan: Plan, sound: Spans, tmp_path: Path, case: str
) -> None:
    needles, packets, rows = _CASES[case]()
    spans, bad = _streamed(damaged_copy(lake, tmp_path / "damaged.lake", needles), plan)
    expected = _lost(plan, packets, rows)
    assert expected
    assert spans.keys() == sound.keys()
    found = {(each.epoch, each.span_id, each.occurrence): each for each in bad}
    assert {key: (each.episode_id, each.camera) for key, each in found.items()} == expected
    places = {
        (r["epoch"], r["span_id"], r["occurrence"]): (r["step"], r["slot"]) for r in _rows(plan)
    }
    for key, values in spans.items():
        if key in expected:
            assert (found[key].step, found[key].slot) == places[key]
            gaps = expected[key][0] == _episode(2).episode_id
            _assert_padding(values, sound[key], pictures_known=not (gaps and 2 in rows))
        else:
            _assert_equal(values, sound[key])


_SAME_IN_PADDING = (
    *("input_ids", "position_ids", "token_modality", "labels", "loss_weights"),
    *("state_step_index", "action_dim_mask", "action_position_ids"),
    *("embodiment_id", "dataset_id", "stats_id", "episode_id", "step_index"),
)
_ZERO_IN_PADDING = ("state", "state_dim_mask", "actions", "action_loss_weights", "sample_weight")


def _assert_equal(values: Mapping[str, NDArray[Any]], others: Mapping[str, NDArray[Any]]) -> None:
    assert values.keys() == others.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(value, others[name], name)


def _assert_padding(
    values: Mapping[str, NDArray[Any]], others: Mapping[str, NDArray[Any]], *, pictures_known: bool
) -> None:
    assert values.keys() == others.keys()  # as many pictures
    for name in _SAME_IN_PADDING:
        np.testing.assert_array_equal(values[name], others[name], name)
    for name in _ZERO_IN_PADDING:
        assert values[name].shape == others[name].shape
        assert not values[name].any()
    assert (values["labels"] == IGNORED_LABEL).all()
    for name, value in values.items():
        if name.startswith("image "):
            assert not value.any()
            assert value.shape == others[name].shape
        elif name.startswith("image_") and pictures_known:
            np.testing.assert_array_equal(value, others[name], name)


@pytest.fixture(scope="module")
def damaged(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """All kinds of damage at once."""
    return damaged_copy(
        lake, Path(tmp_path_factory.mktemp("damaged")) / "robots.lake", _CASES["all kinds"]()[0]
    )


Sequence = tuple[dict[tuple[int, int], str], set[BadSpan]]


def _global_sequence(lake: Lake, plan: Plan, world_size: int, **options: Any) -> Sequence:
    """(step, slot) -> digest over all ranks, and all bad spans."""
    digests: dict[tuple[int, int], str] = {}
    bad: list[BadSpan] = []
    chosen = {"process": "inline", "max_bad_share": 1.0, **options}
    for rank in range(world_size):
        with PackLoader(lake, plan, rank, world_size, framework="numpy", **chosen) as loader:
            for batch in loader:
                if batch.slot < _SLOTS:
                    digests[batch.step, batch.slot] = scenes.digest(batch)
            bad += loader.bad_spans
    assert len(set(bad)) == len(bad)
    return digests, set(bad)


@pytest.fixture(scope="module")
def reference(damaged: Lake, plan: Plan) -> Sequence:
    found = _global_sequence(damaged, plan, 1)
    assert found[1]
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"world_size": 2},
        {"world_size": 3},
        {"buffer_bytes": 1 << 20},
        {"buffer_bytes": 1 << 22, "world_size": 2},
        {"process": "child"},
        {"process": "child", "num_workers": 3, "buffer_bytes": 1 << 21},
        {"process": "child", "num_workers": 2, "world_size": 2},
    ],
    ids=str,
)
def test_what_is_bad_depends_on_lake_and_plan_alone(
    damaged: Lake, plan: Plan, reference: Sequence, options: dict[str, Any]
) -> None:
    world_size = options.get("world_size", 1)
    rest = {name: value for name, value in options.items() if name != "world_size"}
    assert _global_sequence(damaged, plan, world_size, **rest) == reference


def test_a_cache_changes_nothing(
    damaged: Lake, plan: Plan, reference: Sequence, tmp_path: Path
) -> None:
    storage = StorageSettings(cache_dir=str(tmp_path / "cache"))
    for _ in range(2):  # the second time, what was read before is there
        assert _global_sequence(damaged, plan, 1, storage=storage) == reference


def test_going_on_in_the_middle_finds_the_same(
    damaged: Lake, plan: Plan, reference: Sequence
) -> None:
    for step in range(1, plan.num_steps, 7):
        loader = PackLoader(damaged, plan, process="inline", framework="numpy", max_bad_share=1.0)
        state = {**loader.state_dict(), "next_step": step}
        loader.load_state_dict(state)
        digests = {(batch.step, batch.slot): scenes.digest(batch) for batch in loader}
        assert digests == {key: value for key, value in reference[0].items() if key[0] >= step}
        assert set(loader.bad_spans) == {span for span in reference[1] if span.step >= step}


def test_another_picture_size_and_format_find_the_same(
    lake: Lake, damaged: Lake, plan: Plan
) -> None:
    options: dict[str, Any] = {"image_size": (24, 32), "image_format": "yuv"}
    whole, _ = _streamed(lake, plan, **options)
    spans, bad = _streamed(damaged, plan, **options)
    keys = {(each.epoch, each.span_id, each.occurrence) for each in bad}
    assert keys == _lost(plan, *_CASES["all kinds"]()[1:]).keys()
    for key, values in spans.items():
        if key in keys:
            _assert_padding(values, whole[key], pictures_known=False)
        else:
            _assert_equal(values, whole[key])


def test_a_state_written_as_text_is_that_of_a_state_of_zero(
    lake: Lake, damaged: Lake, tmp_path: Path
) -> None:
    layout = dataclasses.replace(KNOWN_LAYOUTS["pi0.5"].layout, image_tokens=4)
    tokenizer = find_tokenizer(write(tmp_path, "gemma.model", gemma_like()))
    plan = scenes.scene_plan(lake, layout=layout, tokenizer=tokenizer, budget_tokens=384)
    whole, _ = _streamed(lake, plan)
    spans, bad = _streamed(damaged, plan)
    text = plan.header.prompt_ids.state_text
    assert text is not None
    keys = {(each.epoch, each.span_id, each.occurrence) for each in bad}
    assert keys == _lost(plan, *_CASES["all kinds"]()[1:]).keys()
    q01, q99 = PlanRows(plan).state_quantiles
    for key, values in spans.items():
        if key not in keys:
            _assert_equal(values, whole[key])
            continue
        spec = int(values["stats_id"])
        size = plan.header.specs[spec].state_size
        zero = state_bins(np.zeros((1, q01.shape[1]), np.float32), q01[[spec]], q99[[spec]])
        ids = ",".join(map(str, text.ids(zero[0, :size].tolist())))
        assert ids in ",".join(map(str, values["input_ids"].tolist()))


def test_a_batch_without_its_bad_spans_counts_without_them(damaged: Lake, plan: Plan) -> None:
    bad: set[SpanKey] = set()
    with PackLoader(
        damaged, plan, process="inline", framework="numpy", max_bad_share=1.0
    ) as loader:
        for batch in loader:
            bad = {(each.epoch, each.span_id, each.occurrence) for each in loader.bad_spans}
            good = [values for key, values in spans_of(batch).items() if key not in bad]
            counted = [
                int((values["action_loss_weights"][:, None] * values["action_dim_mask"]).sum())
                for values in good
            ]
            assert batch.num_action_items == sum(counted)
            assert batch.num_items_in_batch == 0
            assert batch.num_spans == len(spans_of(batch))
    assert bad


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
        _assert_equal(spans[key], values)


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
    damaged: Lake, plan: Plan, reference: Sequence, process: Any
) -> None:
    total = len(_rows(plan))
    allowed = len(reference[1]) - 1
    options: dict[str, Any] = {"process": process, "framework": "numpy"}
    handed_out: list[tuple[int, int]] = []
    with (
        PackLoader(damaged.uri, plan, **options, max_bad_share=(allowed + 0.5) / total) as loader,
        pytest.raises(BadDataError) as raised,
    ):
        handed_out.extend((batch.step, batch.slot) for batch in loader)
    last = max(reference[1], key=lambda span: (span.step, span.slot))
    for part in (
        rf"\(step {last.step}, slot {last.slot}\)",
        f"episode {last.episode_id}",
        last.reason,
        f"{len(reference[1])} of this rank's {total} spans are bad so far",
        f"allows {allowed}",
        "headrace doctor",
        "max_bad_share",
    ):
        assert raised.match(part)
    assert (last.step, last.slot) not in handed_out
    assert all((span.step, span.slot) in handed_out for span in loader.bad_spans)
    with PackLoader(damaged, plan, **options, max_bad_share=len(reference[1]) / total) as loader:
        assert len(list(loader)) == plan.packs.num_rows


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
    damaged: Lake, plan: Plan, reference: Sequence, caplog: pytest.LogCaptureFixture
) -> None:
    _streamed(damaged, plan)
    warned = [each.getMessage() for each in caplog.records if each.name == "headrace.loader"]
    wheres = {span.where for span in reference[1]}
    assert len(warned) == len(wheres)
    assert {message.partition(" is damaged")[0] for message in warned} == wheres

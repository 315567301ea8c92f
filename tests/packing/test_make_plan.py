"""Plans of a real lake."""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from catalog import freeze_selection, load_selection
from lake import Episode, FeatureSpec, Lake, Spec, read_signals, visible_episodes
from lake.errors import HeadraceError
from packing.choose_episodes import READ_TABLES
from packing.cost import CostModel
from packing.errors import PackingError, PlanError
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.plan_header import PlanHeader
from packing.plan_store import save_plan
from packing.planned_spans import source_spans
from packing.runs import RUN_LENGTH
from packing.spans import EpisodeSteps, SpanLimits, SpanSet
from packing.tokenizer import Utf8Bytes
from packing.trajectory_spans import TrajectorySpans
from packing.verify import verify_plan
from packing.window_spans import WindowSpans
from tests.episodes import make_spec, noise_video
from tests.packing.conftest import LENGTHS

Write = Callable[[Sequence[Episode]], Lake]


def encoded(text: str) -> tuple[int, ...]:
    """Begin, bytes, end; nothing for no text."""
    return (1, *Utf8Bytes().encode(text), 2) if text else ()


def plan_of(lake: Lake, episodes: Any = None, **changes: Any) -> Plan:
    options: dict[str, Any] = {
        "spans": WindowSpans(horizon=4),
        "budget_tokens": 256,
        "slots_per_step": 3,
        **changes,
    }
    return make_plan(lake, episodes, **options)


@pytest.mark.parametrize("packer", ["shuffle-fill", "bfd"])
@pytest.mark.parametrize(
    "spans",
    [WindowSpans(horizon=4, history=3, history_stride=2), TrajectorySpans(observe_every=2)],
    ids=["window", "trajectory"],
)
def test_plans_hold_every_promise(ten: Lake, spans: Any, packer: str) -> None:
    plan = plan_of(ten, spans=spans, packer=packer, epochs=3, max_images=6, max_spans=5)
    assert len(verify_plan(plan)) == 5
    assert plan.header.epochs == 3
    epochs = plan.packs["epoch"].to_numpy()
    first = [plan.packs["span_id"][int(np.argmax(epochs == e))].as_py() for e in range(3)]
    assert first[0] != first[1] != first[2], "each epoch is packed afresh"


def test_absent_cameras_missing_frames_and_text_cost_nothing(
    write: Write, make_episode: Callable[..., Episode]
) -> None:
    rng = np.random.default_rng(0)
    gappy = noise_video(rng, 6)
    shown = np.array([-1, 0, 1, -1, 2, 3], np.int32)
    gappy = replace(gappy, index=replace(gappy.index, step_to_frame=shown))
    lake = write(
        [
            make_episode(0, steps=6, cameras={"top": gappy}, camera_names=("wrist",)),
            make_episode(1, steps=6, instruction=None, task="push"),
            make_episode(2, steps=6, instruction=None, task=None, camera_names=("top",)),
        ]
    )
    layout = TokenLayout(image_tokens=10, state_tokens=1, action_tokens=1)
    plan = plan_of(lake, layout=layout)
    spans = source_spans(plan)
    by_episode = [spans.take(spans.episode == e) for e in range(3)]
    assert by_episode[0].images.tolist() == [1, 2, 2, 1, 2, 2]
    assert by_episode[1].images.tolist() == [0] * 6
    assert by_episode[2].images.tolist() == [1] * 6
    texts = plan.texts.to_pylist()
    assert [t["text"] for t in texts] == ["", "lift block 0", "push"]
    assert [tuple(t["token_ids"]) for t in texts] == [encoded(t["text"]) for t in texts]
    assert by_episode[0].prefix_tokens.tolist() == [
        14 + 10 * images + 1 for images in (1, 2, 2, 1, 2, 2)
    ]
    assert by_episode[1].prefix_tokens.tolist() == [6 + 1] * 6
    assert by_episode[2].prefix_tokens.tolist() == [0 + 10 + 1] * 6
    assert plan.header.cameras == ("top", "wrist")
    assert plan.episodes["cameras"].to_pylist() == [[0, 1], [], [0]]


@pytest.mark.parametrize("marked", [True, False], ids=["marked invalid", "only not finite"])
def test_invalid_states_are_refused_and_counted_invalid_actions_listed(
    write: Write, make_episode: Callable[..., Episode], *, marked: bool
) -> None:
    base = make_episode(0, steps=8)
    state, action = base.features["state"].copy(), base.features["action"].copy()
    state[2], action[5:7] = np.nan, np.nan
    valid = {"state": np.arange(8) != 2, "action": ~np.isin(np.arange(8), (5, 6))}
    state[2, 1:] = np.nan if marked else 0.5  # a single bad element spoils its step
    features = {**base.features, "state": state, "action": action}
    lake = write(
        [replace(base, features=features, valid=valid if marked else {}), make_episode(1, steps=4)]
    )
    windows = plan_of(lake, spans=WindowSpans(horizon=3, history=2))
    # The window at 2 observes step 2, and so does that at 3.
    assert windows.header.audit[0].refused == {"window-touches-invalid-state": 2}
    assert windows.header.num_spans == 8 - 2 + 4
    assert windows.episodes["invalid_action_steps"].to_pylist() == [[5, 6], []]
    assert windows.header.audit[0].unscored == 2
    whole = plan_of(lake, spans=TrajectorySpans())
    assert whole.header.audit[0].refused == {"step-with-invalid-state": 1}
    assert whole.header.audit[0].split == 1
    spans = source_spans(whole)
    assert [*zip(spans.start.tolist(), spans.stop.tolist(), strict=True)] == [
        (0, 2),
        (3, 8),
        (0, 4),
    ]
    for plan in (windows, whole):
        verify_plan(plan)


def test_frozen_statistics_equal_those_of_the_values(ten: Lake) -> None:
    plan = plan_of(ten, "num_steps > 10")
    rows = visible_episodes(ten, ["episode_id", "num_steps"])
    chosen = [r["address"] for r in rows.to_pylist() if r["num_steps"] > 10]
    signals = read_signals(ten, chosen)
    assert sorted(plan.episodes["address"].to_pylist()) == sorted(chosen)
    for spec in plan.header.specs:
        mine = [s for s in signals if s.spec.spec_id == spec.spec_id]
        for feature in ("state", "action"):
            values = np.concatenate([s.features[feature] for s in mine]).astype(np.float64)
            stats = plan.header.stats_of(spec.spec_id, feature)
            assert stats.count == len(values)
            np.testing.assert_allclose(stats.mean, values.mean(axis=0), rtol=1e-6, atol=1e-7)
            np.testing.assert_allclose(stats.std, values.std(axis=0), rtol=1e-6)
            assert stats.min == tuple(values.min(axis=0).tolist())
            assert stats.max == tuple(values.max(axis=0).tolist())
            assert (np.array(stats.q01) <= np.array(stats.q99)).all()
    with pytest.raises(PlanError, match="no statistics for reward"):
        plan.header.stats_of(plan.header.specs[0].spec_id, "reward")


def test_episodes_by_selection_name_condition_ids_or_all(ten: Lake) -> None:
    selection = freeze_selection(ten, "success", name="good")
    ids = list(selection.episode_ids)
    plans = [plan_of(ten, e) for e in (selection, "good", "success", ids, ids[::-1])]
    assert len({plan.plan_hash for plan in plans}) == 1
    assert [plan.header.selection_hash for plan in plans] == [selection.hash] * 3 + [None] * 2
    assert plan_of(ten).episodes.num_rows == len(LENGTHS)
    assert set(plans[0].header.versions) == set(READ_TABLES) - {"edits"}


def test_planning_writes_nothing_and_saving_keeps_the_selection(ten: Lake) -> None:
    before = ten.versions()
    plan = plan_of(ten, "success and num_steps > 1")
    ten.refresh()
    assert ten.versions() == before
    save_plan(ten, plan, "mix")
    assert plan.header.selection_hash
    kept = load_selection(ten, plan.header.selection_hash)
    assert kept.episode_ids == tuple(plan.episodes["episode_id"].to_pylist())
    assert "num_steps > 1" in kept.sql


def test_a_plan_is_of_the_versions_of_its_selection(
    ten: Lake, write: Write, make_episode: Callable[..., Episode]
) -> None:
    selection = freeze_selection(ten, "true", name="before")
    before = plan_of(ten, selection)
    write([make_episode(99, dataset="later")])
    after = plan_of(ten, selection)
    assert after.plan_hash == before.plan_hash
    assert plan_of(ten).episodes.num_rows == len(LENGTHS) + 1


def test_audit_counts_per_dataset(ten: Lake) -> None:
    plan = plan_of(ten, epochs=2)
    audits = {audit.dataset: audit for audit in plan.header.audit}
    for name, lengths in (("even", LENGTHS[::2]), ("odd", LENGTHS[1::2])):
        audit = audits[name]
        assert (audit.episodes, audit.steps, audit.spans) == (5, sum(lengths), sum(lengths))
        assert audit.planned == 2 * audit.spans
        assert (audit.omitted, audit.repeated, audit.dropped, audit.cut) == (0, 0, 0, 0)
    assert sum(a.tokens for a in audits.values()) * 2 == sum(plan.packs["tokens"].to_pylist())


def test_cameras_can_be_chosen(ten: Lake) -> None:
    plan = plan_of(ten, cameras=["wrist"])
    assert plan.header.cameras == ("wrist",)
    assert sum(map(len, plan.episodes["cameras"].to_pylist())) == 4
    no_images = plan_of(ten, layout=TokenLayout(image_tokens=0))
    assert (no_images.header.cameras, no_images.header.shape.images) == ((), 0)
    with pytest.raises(PlanError, match="no selected episode has a camera rear; there are: top, w"):
        plan_of(ten, cameras=["rear"])


def test_runs_follow_the_key_frames(ten: Lake) -> None:
    """Of GOP 5, and of 12 episodes of which a third has no camera."""
    plan = plan_of(ten)
    assert plan.header.settings.run_length == RUN_LENGTH
    lengths: defaultdict[int, list[int]] = defaultdict(list)
    for run in plan.runs.to_pylist():
        lengths[run["episode"]].append(run["num_spans"])
    for cameras, runs in zip(plan.episodes["cameras"].to_pylist(), lengths.values(), strict=True):
        assert set(runs[:-1]) <= ({10} if cameras else {8})
    shorter = plan_of(ten, run_length=3)
    assert shorter.header.settings.run_length == 3
    assert shorter.runs.num_rows > plan.runs.num_rows
    whole = plan_of(ten, spans=TrajectorySpans())
    assert (whole.header.settings.run_length, whole.runs.num_rows) == (1, whole.header.num_spans)


def test_open_runs_follow_the_size_of_a_step(ten: Lake) -> None:
    assert plan_of(ten).header.settings.open_runs == 256
    assert plan_of(ten, open_runs=9).header.settings.open_runs == 9
    large = plan_of(ten, slots_per_step=100)
    mean = sum(a.tokens for a in large.header.audit) / large.header.num_spans
    assert large.header.settings.open_runs == -(-2 * 100 * 256 // mean)


def test_header_json_round_trip(ten: Lake) -> None:
    header = plan_of(ten, epochs=2).header
    assert PlanHeader.from_json(header.to_json()) == header


def test_header_of_another_layout_or_no_header(ten: Lake) -> None:
    raw = json.loads(plan_of(ten).header.to_json())
    with pytest.raises(PlanError, match="layout version 99, this Headrace reads 2"):
        PlanHeader.from_json(json.dumps({**raw, "layout_version": 99}))
    for text in ("", "[]", "{}", json.dumps({**raw, "extra": 1}), json.dumps({**raw, "shape": 0})):
        with pytest.raises(PlanError, match="header cannot be read"):
            PlanHeader.from_json(text)


@pytest.mark.parametrize(
    ("episodes", "changes", "match"),
    [
        ([], {}, "no episode selected"),
        (["nobody"], {}, "1 of 1 episodes are not in the lake.*first nobody"),
        (["a", "a"], {}, "given twice"),
        ("num_steps > 1000", {}, "none of 10 episodes matches"),
        ("nosuch", {}, "'nosuch' names no selection .* and is no condition"),
        (None, {"state": ["qpos"]}, r"--state qpos: .*state\[4\] \(state\), action\[3\] \(action"),
        (None, {"action": ["note"]}, "--action note: a spec .* none of these as numbers"),
        (None, {"state": ["none"]}, "spends state tokens"),
        (None, {"budget_tokens": 100}, "multiple of 128"),
        (None, {"budget_tokens": 128, "layout": TokenLayout(image_tokens=128)}, "do not fit"),
        (
            None,
            {"layout": TokenLayout(tokenizer="x")},
            "tokenizer .x. is neither a file nor built in",
        ),
    ],
)
def test_bad_requests_say_what_is_there(
    ten: Lake, episodes: Any, changes: dict[str, Any], match: str
) -> None:
    with pytest.raises(HeadraceError, match=match):
        plan_of(ten, episodes, **changes)


def test_empty_lake(lake: Lake) -> None:
    with pytest.raises(PlanError, match="no episode selected"):
        plan_of(lake)


def test_spans_without_a_token_and_without_a_valid_step(
    write: Write, make_episode: Callable[..., Episode]
) -> None:
    blank = make_episode(0, steps=3, instruction=None, task=None)
    state = np.full((3, 4), np.nan, np.float32)
    dead = replace(
        make_episode(1, steps=3),
        features={**make_episode(1, steps=3).features, "state": state},
        valid={"state": np.zeros(3, np.bool_)},
    )
    lake = write([blank, dead])
    with pytest.raises(PlanError, match=r"costs no token"):
        plan_of(lake, [blank.episode_id], layout=TokenLayout(state_tokens=0, action_tokens=0))
    with pytest.raises(PlanError, match="no span can be made of the 1 selected episodes"):
        plan_of(lake, [dead.episode_id])


def test_mixed_specs_with_other_names(write: Write, make_episode: Callable[..., Episode]) -> None:
    joints = FeatureSpec(name="qpos", source_name="qpos", dtype="float32", shape=(2,), role="state")
    other = Spec(features=(joints, make_spec().feature("action")))
    base = make_episode(1, dataset="other", steps=6)
    episode = replace(
        base,
        spec=other,
        features={"qpos": np.ones((6, 2), np.float32), "action": base.features["action"]},
    )
    lake = write([make_episode(0), episode])
    with pytest.raises(PlanError, match=r"2 specs whose state features differ: .*has qpos"):
        plan_of(lake)
    mixed = plan_of(lake, state=["state", "qpos"])
    sizes = {spec.state: spec.state_size for spec in mixed.header.specs}
    assert sizes == {("state",): 4, ("qpos",): 2}
    joined = plan_of(lake, [episode.episode_id], state=["qpos+action"])
    assert (joined.header.specs[0].state, joined.header.specs[0].state_size) == (
        ("qpos", "action"),
        5,
    )


def test_an_episode_recorded_without_the_feature_is_named(
    write: Write, make_episode: Callable[..., Episode]
) -> None:
    base = make_episode(1)
    lake = write([make_episode(0), replace(base, features={"action": base.features["action"]})])
    with pytest.raises(PlanError, match=r"1 of 2 selected .* first \S+episode_000001.*lacks state"):
        plan_of(lake)


def test_unknown_span_maker(ten: Lake) -> None:
    class Mine:
        def make(self, steps: EpisodeSteps, layout: TokenLayout, limits: SpanLimits) -> SpanSet:
            return WindowSpans(horizon=2).make(steps, layout, limits)

    with pytest.raises(PackingError, match="unknown span maker Mine"):
        plan_of(ten, spans=Mine())


def test_measured_cost_decides_balance_and_hash(ten: Lake) -> None:
    cost = CostModel(per_token=1, per_square=0, per_image=1 << 20)
    plans = [plan_of(ten), plan_of(ten, d_model=1024), plan_of(ten, cost=cost)]
    assert plans[0].plan_hash == plans[1].plan_hash != plans[2].plan_hash
    header = PlanHeader.from_json(plans[2].header.to_json())
    assert header.settings.cost == cost
    verify_plan(plans[2])
    packs = plans[2].packs["images"].to_pylist()
    images = np.array([sum(row) for row in packs]).reshape(-1, 3)
    full = images[np.array([len(row) > 0 for row in packs]).reshape(-1, 3).all(axis=1)]
    # Images are all that counts here, so packs of as many stand together.
    assert header.quality.max_over_mean[3] == pytest.approx(
        full.max(axis=1).sum() / full.mean(axis=1).sum(), rel=1e-2
    )


def test_cost_and_width_together_are_refused(ten: Lake) -> None:
    with pytest.raises(PlanError, match="both given"):
        plan_of(ten, cost=CostModel(per_token=1, per_square=0), d_model=8)

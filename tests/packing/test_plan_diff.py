"""What `diff_plans` says of plans of which the difference is known."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lake import Episode, EpisodeWriter, Lake, create_lake
from lake.visible import visible_episodes
from packing.extend_plan import extend_plan
from packing.make_plan import make_plan
from packing.plan import PACKS_SCHEMA, Plan
from packing.plan_diff import FieldDiff, diff_plans
from packing.plan_store import load_plan, save_plan
from packing.window_spans import WindowSpans
from tools.cli import build_app


def _plan(lake: Lake, episodes: Any = None, *, horizon: int = 4, **changes: Any) -> Plan:
    settings = {"budget_tokens": 256, "slots_per_step": 2, **changes}
    return make_plan(lake, episodes, spans=WindowSpans(horizon=horizon), **settings)


def _with_packs(plan: Plan, change: Callable[[list[dict[str, Any]]], None]) -> Plan:
    rows = plan.packs.to_pylist()
    change(rows)
    return replace(plan, packs=pa.Table.from_pylist(rows, schema=PACKS_SCHEMA)).sealed()


def _swap(rows: list[dict[str, Any]], one: int, other: int) -> None:
    """Exchange what two rows hold."""
    for name in set(PACKS_SCHEMA.names) - {"pack", "epoch", "step", "slot"}:
        rows[one][name], rows[other][name] = rows[other][name], rows[one][name]


@pytest.fixture
def plan(ten: Lake) -> Plan:
    plan = _plan(ten)
    assert plan.num_steps > 4
    return plan


def test_the_same_plan(ten: Lake, plan: Plan) -> None:
    diff = diff_plans(plan, _plan(ten))
    assert diff.same
    assert (diff.header, diff.only_a, diff.only_b, diff.changed, diff.stats) == ((), (), (), (), ())
    assert diff.texts == (0, 0)
    assert not any(figure.differs for figure in diff.quality)
    assert (diff.first_step_spans, diff.first_step_slots) == (None, None)
    assert all(pair[0] == pair[1] for row in diff.datasets for pair in (row.episodes, row.planned))


def test_first_step_of_other_spans_and_of_other_slots(plan: Plan) -> None:
    slots = _with_packs(plan, lambda rows: _swap(rows, 4, 5))  # both of step 2
    assert (diff := diff_plans(plan, slots)).first_step_spans is None
    assert diff.first_step_slots == 2
    assert not diff.same
    steps = _with_packs(plan, lambda rows: _swap(rows, 3, 6))  # of steps 1 and 3
    diff = diff_plans(plan, steps)
    assert (diff.first_step_spans, diff.first_step_slots) == (1, 1)

    def reverse(rows: list[dict[str, Any]]) -> None:
        for name, value in rows[2].items():
            if isinstance(value, list):
                rows[2][name] = value[::-1]

    assert len(plan.packs["span_id"][2]) > 1
    diff = diff_plans(plan, _with_packs(plan, reverse))
    assert (diff.first_step_spans, diff.first_step_slots) == (None, 1)


def test_every_figure_is_one_value(ten: Lake, plan: Plan) -> None:
    figures = {figure.name: figure for figure in diff_plans(plan, _plan(ten, horizon=5)).quality}
    assert all(isinstance(f.a, int | float) for f in figures.values())
    whole, shared = plan.header.quality.storage
    assert (whole.world_size, shared.world_size) == (1, 2)
    assert figures["storage ranks 1 requests_per_step"].a == whole.requests_per_step
    assert figures["storage ranks 2 mb_per_step"].a == shared.bytes_per_step / 1e6


def test_a_plan_that_ends_earlier(ten: Lake, plan: Plan) -> None:
    longer = _plan(ten, epochs=2)
    diff = diff_plans(plan, longer)
    assert (diff.first_step_spans, diff.first_step_slots) == (plan.num_steps, plan.num_steps)
    assert FieldDiff(name="epochs", a=1, b=2) in diff.header
    for row in diff.datasets:
        assert row.spans[0] == row.spans[1] == row.planned[0]
        assert row.planned[1] == 2 * row.planned[0]
        assert row.tokens[1] == 2 * row.tokens[0]


def test_settings_and_spans(ten: Lake, plan: Plan) -> None:
    other = _plan(ten, horizon=6, seed=5, cameras=["top"])
    diff = diff_plans(plan, other)
    changed = {field.name: (field.a, field.b) for field in diff.header}
    assert changed["span maker horizon"] == (4, 6)
    assert changed["seed"] == (0, 5)
    assert changed["cameras"] == (("top", "wrist"), ("top",))
    assert "budget_tokens" not in changed
    assert diff.first_step_spans == 0
    assert [row.dataset for row in diff.datasets] == ["even", "odd"]
    assert diff.stats == ()
    figures = {figure.name: (figure.a, figure.b) for figure in diff.quality}
    assert figures["padding"] == (plan.header.quality.padding, other.header.quality.padding)
    assert figures["packs_over_bound"][0] == plan.header.certificate.packs_over_bound
    assert "shuffle 1" in figures
    assert "max_over_mean 2" in figures


def test_episodes_datasets_and_statistics(ten: Lake) -> None:
    a, b = _plan(ten, "num_steps < 20"), _plan(ten, "dataset = 'even'")
    diff = diff_plans(a, b)
    assert a.episodes.num_rows == 8  # all but those of 30 (even) and 21 (even) steps
    assert diff.changed == ()
    assert all(episode.startswith("odd/") for episode in diff.only_a)
    assert (len(diff.only_a), len(diff.only_b)) == (5, 2)
    even, odd = diff.datasets
    assert (even.episodes, odd.episodes) == ((3, 5), (5, 0))
    steps = (5 + 14 + 11, 5 + 14 + 30 + 21 + 11)  # a window begins at every step
    assert even.spans == even.planned == steps
    tokens = [sum(s["tokens"] for s in plan.packs.to_pylist()) for plan in (a, b)]
    assert (even.tokens[0] + odd.tokens[0], even.tokens[1] + odd.tokens[1]) == tuple(tokens)
    assert odd.tokens[1] == 0
    # One spec has both cameras, one the top one, one none.
    for feature in ("action", "state"):
        counts = {s.counts for s in diff.stats if s.feature == feature}
        assert counts == {(5 + 7 + 17, 5 + 21), (9 + 8, 30), (14 + 12 + 11, 14 + 11)}
    first = diff.stats[0]
    ours, theirs = (p.header.stats_of(first.spec_id, first.feature) for p in (a, b))
    pairs = list(zip(ours.mean, theirs.mean, ours.std, theirs.std, strict=True))
    assert first.mean_shift == pytest.approx(max(abs(m - n) / s for m, n, s, _ in pairs))
    assert first.std_ratio == pytest.approx(max(max(s, t) / min(s, t) for _, _, s, t in pairs))


def test_an_episode_whose_content_changed(
    tmp_path: Any, make_episode: Callable[..., Episode]
) -> None:
    def plan_of(name: str, episodes: Sequence[Episode]) -> Plan:
        lake = create_lake(tmp_path / name)
        with EpisodeWriter(lake) as writer:
            for episode in episodes:
                writer.add(episode)
        lake.refresh()
        return _plan(lake, budget_tokens=128)

    old = [make_episode(number) for number in range(3)]
    features = {**old[1].features, "action": np.ones((12, 3), np.float32)}
    a, b = plan_of("a", old), plan_of("b", [old[0], replace(old[1], features=features), old[2]])
    diff = diff_plans(a, b)
    assert diff.changed == (old[1].episode_id,)
    assert (diff.only_a, diff.only_b) == ((), ())
    first = min(row["step"] for row in a.packs.to_pylist() if 1 in row["episode"])
    assert diff.first_step_spans == first
    assert [s.feature for s in diff.stats] == ["action"]


def test_a_constant_element_has_moved_infinitely(
    write: Callable[..., Lake], make_episode: Callable[..., Episode]
) -> None:
    still = {**make_episode(0).features, "action": np.zeros((12, 3), np.float32)}
    lake = write([make_episode(0, features=still), make_episode(1)])
    ids = sorted(visible_episodes(lake)["episode_id"].to_pylist())
    save_plan(lake, _plan(lake, ids[:1]), "a")
    save_plan(lake, _plan(lake, ids[1:]), "b")
    diff = diff_plans(load_plan(lake, "a"), load_plan(lake, "b"))
    action = next(s for s in diff.stats if s.feature == "action")
    assert (action.mean_shift, action.std_ratio) == (np.inf, np.inf)
    arguments = ["plan", "diff", lake.uri, "a", "b", "--json"]
    text = CliRunner().invoke(build_app(), arguments).stdout

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    document = json.loads(text, parse_constant=refuse)
    assert "inf" in {s["mean_shift"] for s in document["stats"]}


def test_texts(write: Callable[..., Lake], make_episode: Callable[..., Episode]) -> None:
    lake = write([make_episode(number, instruction=f"t{number}") for number in range(4)])
    ids = lake.dataset("trajectories").to_table(columns=["episode_id"])["episode_id"].to_pylist()
    assert diff_plans(_plan(lake, ids[:3]), _plan(lake, ids[2:])).texts == (2, 1)


def test_a_grown_plan_differs_from_where_it_grew(
    plan: Plan,
    write: Callable[..., Lake],
    make_episode: Callable[..., Episode],
) -> None:
    lake = write([make_episode(50 + n, steps=25, dataset="new") for n in range(2)])
    grown = extend_plan(lake, plan)
    diff = diff_plans(plan, grown)
    assert (diff.first_step_spans, diff.first_step_slots) == (plan.num_steps, plan.num_steps)
    assert (diff.only_a, diff.changed) == ((), ())
    assert [episode.split("/")[0] for episode in diff.only_b] == ["new", "new"]
    [new] = [row for row in diff.datasets if row.dataset == "new"]
    assert (new.episodes, new.spans, new.planned) == ((0, 2), (0, 50), (0, 50))
    appended = grown.packs.to_pylist()[plan.packs.num_rows :]
    assert new.tokens == (0, sum(row["tokens"] for row in appended))
    changed = {field.name: (field.a, field.b) for field in diff.header}
    assert changed["segment 1: steps"] == (None, grown.num_steps - plan.num_steps)
    assert "segment 0: steps" not in changed


def test_command(ten: Lake) -> None:
    save_plan(ten, _plan(ten, "num_steps < 20"), "a")
    save_plan(ten, _plan(ten, "dataset = 'even'", seed=3), "b")

    def run(*args: str) -> tuple[int, str]:
        result = CliRunner().invoke(build_app(), ["plan", "diff", ten.uri, *args])
        return result.exit_code, result.stdout

    code, text = run("a", "a")
    assert (code, text.split(",")[0]) == (0, "a and a are the same plan")
    code, text = run("a", "b")
    assert code == 1
    for part in ("seed", "5 episodes only in a", "29 -> 26", "other spans are consumed from step"):
        assert part in text
    code, text = run("a", "b", "--json")
    document = json.loads(text)
    assert code == 1
    assert document["same"] is False
    assert len(document["only_b"]) == 2
    assert document["first_step_spans"] == 0

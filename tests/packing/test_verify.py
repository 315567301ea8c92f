"""A plan that breaks a promise is found out even when its hash is right."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lake import Lake
from packing.errors import PlanError
from packing.make_plan import make_plan
from packing.plan import EPISODES_SCHEMA, PACKS_SCHEMA, Plan
from packing.verify import verify_plan
from packing.window_spans import Tail, WindowSpans


@pytest.fixture
def plan(ten: Lake) -> Plan:
    return make_plan(
        ten, spans=WindowSpans(horizon=4), budget_tokens=256, slots_per_step=3, epochs=2
    )


def changed(plan: Plan, **columns: Any) -> Plan:
    """The plan with columns of `packs` changed by functions of their rows, sealed anew."""
    rows = plan.packs.to_pydict()
    for name, change in columns.items():
        rows[name] = change(rows[name])
    return replace(plan, packs=pa.table(rows, schema=PACKS_SCHEMA)).sealed()


def with_first_span(value: int) -> Any:
    return lambda rows: [[value, *rows[0][1:]], *rows[1:]]


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"span_id": with_first_span(1)}, "occurs . times, not exactly once, in epoch 0"),
        ({"span_id": with_first_span(10**6)}, "span_id 1000000 is not one of its source spans"),
        ({"action_stop": with_first_span(99)}, "not inside its episode"),
        ({"prefix_tokens": with_first_span(1)}, "prefix tokens are not the layout's"),
        ({"images": with_first_span(7)}, "images of absent cameras"),
        ({"tokens": lambda rows: [rows[0] - 1, *rows[1:]]}, "pack 0: tokens"),
        ({"sum_sq": lambda rows: [rows[0] - 1, *rows[1:]]}, "pack 0: sum_sq"),
        ({"step": lambda rows: rows[::-1]}, "step number"),
        ({"epoch": lambda rows: rows[::-1]}, "epochs out of order"),
    ],
)
def test_broken_promises(plan: Plan, columns: dict[str, Any], match: str) -> None:
    with pytest.raises(PlanError, match=match):
        verify_plan(changed(plan, **columns))


@pytest.mark.parametrize(
    ("tail", "longer", "match"),
    [
        ("short", 1, "not inside its episode"),
        ("short", -1, "acts on other steps than asked"),
        ("drop", -1, "acts on other steps than asked"),
        ("pad", 1, "acts on other steps than asked"),
        ("pad", -1, "acts on other steps than asked"),
    ],
)
def test_chunk_that_its_tail_does_not_allow(ten: Lake, tail: Tail, longer: int, match: str) -> None:
    plan = make_plan(
        ten, spans=WindowSpans(horizon=4, tail=tail), budget_tokens=256, slots_per_step=1
    )
    verify_plan(plan)
    stops = plan.packs["action_stop"].to_pylist()
    steps = plan.episodes["num_steps"].to_numpy()
    episodes = plan.packs["episode"].to_pylist()
    pack, span = next(
        (pack, span)
        for pack, row in enumerate(stops)
        for span, stop in enumerate(row)
        if stop >= steps[episodes[pack][span]]
    )
    stops[pack][span] += longer
    with pytest.raises(PlanError, match=match):
        verify_plan(changed(plan, action_stop=lambda _: stops))


def test_masked_states_that_nobody_asked_for(plan: Plan) -> None:
    rows = plan.episodes.to_pydict()
    rows["invalid_state_steps"][3] = [1]
    masked = replace(plan, episodes=pa.table(rows, schema=EPISODES_SCHEMA)).sealed()
    with pytest.raises(PlanError, match="episode 3: has masked states, and no span was told to"):
        verify_plan(masked)


def test_occurrence_that_differs_between_epochs(plan: Plan) -> None:
    last = int(np.flatnonzero([len(r) > 0 for r in plan.packs["span_id"].to_pylist()])[-1])

    def shorten(rows: list[list[int]]) -> list[list[int]]:
        return [*rows[:last], [rows[last][0] + 1, *rows[last][1:]], *rows[last + 1 :]]

    with pytest.raises(PlanError, match=r"action_start .*differs between occurrences"):
        verify_plan(changed(plan, action_start=shorten))


def test_budget_and_certificate_are_checked_against_the_spans(plan: Plan) -> None:
    header = plan.header
    (segment,) = header.segments

    def with_segment(**changes: Any) -> Plan:
        return replace(plan, header=replace(header, segments=(replace(segment, **changes),)))

    tight = replace(header.settings, budget_tokens=128)
    with pytest.raises(PlanError, match="is over its tokens"):
        verify_plan(with_segment(settings=tight).sealed())
    lying = replace(header.certificate, bound=header.certificate.bound + 1)
    with pytest.raises(PlanError, match="certificate is"):
        verify_plan(with_segment(certificate=lying))
    lossy = (replace(header.audit[0], omitted=1), *header.audit[1:])
    with pytest.raises(
        PlanError,
        match=r"audit of even counts \(\d+, 0, 1\) planned, repeated and omitted, the tables hold",
    ):
        verify_plan(with_segment(audit=lossy))


def test_hash_is_checked_first(plan: Plan) -> None:
    wrong = replace(plan, header=replace(plan.header, plan_hash="0" * 32))
    with pytest.raises(PlanError, match="does not match the hash"):
        verify_plan(wrong)

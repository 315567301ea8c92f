"""Plans of mixtures that were tampered with are found out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lake import Episode, Lake
from packing.errors import PlanError
from packing.extend_plan import extend_plan
from packing.plan import PACKS_SCHEMA, RUNS_SCHEMA, Plan
from packing.verify import verify_plan
from tests.packing.mixed_plans import EVEN_AND_ODD, plan_of

Write = Callable[[Sequence[Episode]], Lake]


@pytest.fixture
def mixed(ten: Lake) -> Plan:
    return plan_of(ten, EVEN_AND_ODD, epochs=2)


def tampered(plan: Plan, **columns: Any) -> Plan:
    """The plan with columns of `packs` changed by functions of their rows, sealed anew."""
    rows = plan.packs.to_pydict()
    for name, change in columns.items():
        rows[name] = change(rows[name])
    return replace(plan, packs=pa.table(rows, schema=PACKS_SCHEMA)).sealed()


def with_runs(plan: Plan, **columns: Any) -> Plan:
    rows = plan.runs.to_pydict()
    for name, change in columns.items():
        rows[name] = change(rows[name])
    return replace(plan, runs=pa.table(rows, schema=RUNS_SCHEMA)).sealed()


def with_segment(plan: Plan, **changes: Any) -> Plan:
    (segment,) = plan.header.segments
    header = replace(plan.header, segments=(replace(segment, **changes),))
    return replace(plan, header=header).sealed()


def test_an_occurrence_too_few_is_found(mixed: Plan) -> None:
    lists = [name for name in PACKS_SCHEMA.names if pa.types.is_list(PACKS_SCHEMA.field(name).type)]
    at = next(i for i, row in enumerate(mixed.packs["span_id"].to_pylist()) if len(row) > 1)

    def shorten(rows: list[list[int]]) -> list[list[int]]:
        return [*rows[:at], rows[at][1:], *rows[at + 1 :]]

    with pytest.raises(
        PlanError, match=r"occurs \d times, not \d times as its mixture says, in ep"
    ):
        verify_plan(tampered(mixed, **dict.fromkeys(lists, shorten)))


def test_an_occurrence_of_another_span_instead_is_found(mixed: Plan) -> None:
    def swap(rows: list[list[int]]) -> list[list[int]]:
        return [[rows[0][0] ^ 1, *rows[0][1:]], *rows[1:]]

    with pytest.raises(PlanError, match="as its mixture says"):
        verify_plan(tampered(mixed, span_id=swap))


def test_wrong_occurrence_numbers_are_found(mixed: Plan) -> None:
    numbers = mixed.packs["occurrence"].to_pylist()
    at = next(i for i, row in enumerate(numbers) if 1 in row)

    def reset(rows: list[list[int]]) -> list[list[int]]:
        return [*rows[:at], [0] * len(rows[at]), *rows[at + 1 :]]

    with pytest.raises(PlanError, match="occurrence number"):
        verify_plan(tampered(mixed, occurrence=reset))


def test_repeats_without_a_mixture_are_found(mixed: Plan) -> None:
    with pytest.raises(PlanError, match="times, not exactly once, in epoch 0"):
        verify_plan(with_segment(mixed, mixture=None, shares=()))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            {"weights": {"even": 0.5, "odd": 0.5}},
            "the mixture says .* epoch_tokens of even, its runs give",
        ),
        ({"per": "episode"}, "as its mixture says"),
        ({"max_repeats": 1}, "the mixture says .* its runs give"),
    ],
)
def test_another_mixture_than_was_drawn_is_found(
    mixed: Plan, change: dict[str, Any], match: str
) -> None:
    planned = mixed.header.mixture
    assert planned is not None
    other = replace(planned, asked=replace(planned.asked, **change))
    with pytest.raises(PlanError, match=match):
        verify_plan(with_segment(mixed, mixture=other))


def test_another_seed_than_was_drawn_with_is_found(mixed: Plan) -> None:
    settings = replace(mixed.header.settings, seed=5)
    with pytest.raises(PlanError, match="as its mixture says"):
        verify_plan(with_segment(mixed, settings=settings))


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"source": lambda rows: [1 - rows[0], *rows[1:]]}, "run 0 is not of the dataset of its"),
        ({"source": lambda rows: [7, *rows[1:]]}, "a run is of no source of its mixture"),
        (
            {"tokens": lambda rows: [rows[0] + 1, *rows[1:]]},
            "the mixture says \\d+ tokens of even, its runs give",
        ),
        ({"num_spans": lambda rows: [rows[0] + 1, *rows[1:]]}, "are not those of the table of ru"),
        (
            {"tokens": lambda rows: [rows[0] + 1, rows[1] - 1, *rows[2:]]},
            "is said to hold|as its mixture says",
        ),
    ],
)
def test_changed_runs_are_found(mixed: Plan, columns: dict[str, Any], match: str) -> None:
    with pytest.raises(PlanError, match=match):
        verify_plan(with_runs(mixed, **columns))


def test_run_tokens_are_checked_without_a_mixture_too(ten: Lake) -> None:
    plan = plan_of(ten, None, epochs=1)
    changed = with_runs(plan, tokens=lambda rows: [rows[0] + 1, *rows[1:]])
    with pytest.raises(PlanError, match="run 0 is said to hold"):
        verify_plan(changed)
    moved = with_runs(plan, episode=lambda rows: [rows[0] + 1, *rows[1:]])
    with pytest.raises(PlanError, match="span_id 0 is not of the episode of its run"):
        verify_plan(moved)


@pytest.mark.parametrize("field", ["planned", "repeated", "omitted", "never", "got_tokens"])
def test_lying_shares_are_found(mixed: Plan, field: str) -> None:
    first, *rest = mixed.header.shares
    lying = replace(first, **{field: getattr(first, field) + 1})
    with pytest.raises(PlanError, match="the shares are"):
        verify_plan(with_segment(mixed, shares=(lying, *rest)))


def test_lying_audit_is_found(mixed: Plan) -> None:
    first, *rest = mixed.header.audit
    for lying in (
        replace(first, repeated=first.repeated + 1),
        replace(first, omitted=3),
        replace(first, planned=1),
    ):
        with pytest.raises(PlanError, match=f"audit of {first.dataset} counts"):
            verify_plan(with_segment(mixed, audit=(lying, *rest)))
    with pytest.raises(PlanError, match="counts 2 spans dropped or cut"):
        verify_plan(with_segment(mixed, audit=(replace(first, dropped=2), *rest)))


def test_an_occurrence_too_many_in_a_later_segment_is_found(ten: Lake) -> None:
    grown = extend_plan(ten, plan_of(ten, None), "num_steps > 5", mixture=EVEN_AND_ODD)
    first, second = grown.header.segments
    header = replace(grown.header, segments=(first, replace(second, mixture=None, shares=())))
    with pytest.raises(PlanError, match=r"segment 1: span_id \d+: occurs \d times, not exactly"):
        verify_plan(replace(grown, header=header).sealed())

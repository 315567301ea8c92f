"""State and action by role or by name."""

import pytest

from lake import FeatureSpec, Lake, Spec
from lake.spec import Role
from packing.errors import PlanError
from packing.make_plan import make_plan
from packing.roles import resolve_roles
from packing.window_spans import WindowSpans


def spec(**roles: Role) -> Spec:
    return Spec(
        features=tuple(
            FeatureSpec(name=name, source_name=name, dtype="float32", shape=(size,), role=role)
            for size, (name, role) in enumerate(roles.items(), 1)
        )
    )


ARM = spec(eef="state", grip="state", action="action")
BLIND = spec(action="action", reward="reward")


def names(
    specs: list[Spec],
    state: list[str] | None = None,
    action: list[str] | None = None,
    *,
    needed: bool = True,
) -> list[tuple[tuple[str, ...], tuple[str, ...], int, int]]:
    resolved = resolve_roles(
        specs,
        state=state,
        action=action,
        state_needed=needed,
        action_needed=needed,
        called={spec.spec_id: f"robot {number}" for number, spec in enumerate(specs)},
    )
    return [(r.state, r.action, r.state_size, r.action_size) for r in resolved]


def test_errors_name_the_datasets_of_a_spec(ten: Lake) -> None:
    with pytest.raises(PlanError, match=r"numbers: even, odd \(spec [0-9a-f]{8}\) has state"):
        make_plan(
            ten,
            spans=WindowSpans(horizon=4),
            budget_tokens=512,
            slots_per_step=2,
            state=["nothing"],
        )


def test_concatenation_keeps_the_order_asked_for() -> None:
    assert names([ARM], ["grip+eef"]) == [(("grip", "eef"), ("action",), 3, 3)]


def test_first_alternative_that_a_spec_has() -> None:
    assert names([ARM, BLIND], ["eef", "reward"]) == [
        (("eef",), ("action",), 1, 3),
        (("reward",), ("action",), 2, 1),
    ]


def test_state_may_be_absent_where_the_layout_does_not_need_it() -> None:
    assert names([BLIND], needed=False) == [((), ("action",), 0, 1)]
    assert names([ARM], ["none"], needed=False) == [((), ("action",), 0, 3)]


@pytest.mark.parametrize(
    ("specs", "state", "action", "match"),
    [
        ([ARM], None, None, r"2 features have the role state: .*--state eef\+grip"),
        ([BLIND], None, None, "no feature has the role state.*reward.*--state NAME"),
        ([spec(x="state")], None, None, "no feature has the role action"),
        ([ARM], ["eef+eef"], None, "none of these"),
        ([ARM], ["eef+nothing", "nothing"], None, "none of these"),
        (
            [spec(a="state", u="action"), spec(b="state", u="action")],
            None,
            None,
            "features differ: robot 0 has a; robot 1 has b; .*--state a,b",
        ),
    ],
)
def test_errors_list_what_is_there(
    specs: list[Spec], state: list[str] | None, action: list[str] | None, match: str
) -> None:
    with pytest.raises(PlanError, match=match):
        names(specs, state, action)

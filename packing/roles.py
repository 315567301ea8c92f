"""Which features of a spec are fed as state and which as action."""

from collections.abc import Mapping, Sequence
from typing import Literal

from lake.spec import Spec
from packing.errors import PlanError
from packing.plan_header import PlanSpec

NO_FEATURE = "none"


def resolve_roles(
    specs: Sequence[Spec],
    *,
    state: Sequence[str] | None,
    action: Sequence[str] | None,
    state_needed: bool,
    action_needed: bool,
    called: Mapping[str, str],
) -> tuple[PlanSpec, ...]:
    """Choose state and action of each spec.

    Args:
        specs: of the selected episodes.
        state: what to feed as state: the first entry whose features a spec has. An entry is a
            feature name, several joined with `+` to be concatenated (`eef_pos+eef_quat`), or
            `none`. None chooses by the role that the spec gives.
        action: the same for the action.
        state_needed: the layout spends tokens on the state.
        action_needed: the layout spends tokens on actions.
        called: spec id -> what errors call the spec, such as the datasets that have it.

    Raises:
        PlanError: nothing fits, more than one thing does, or the choice by role would mix features
            of different names; lists what each spec has.
    """
    states = _resolve(specs, "state", state, needed=state_needed, called=called)
    actions = _resolve(specs, "action", action, needed=action_needed, called=called)
    return tuple(
        PlanSpec(
            spec_id=spec.spec_id,
            state=states[number],
            action=actions[number],
            state_size=sum(spec.feature(name).size for name in states[number]),
            action_size=sum(spec.feature(name).size for name in actions[number]),
        )
        for number, spec in enumerate(specs)
    )


def _resolve(
    specs: Sequence[Spec],
    role: Literal["state", "action"],
    wanted: Sequence[str] | None,
    *,
    needed: bool,
    called: Mapping[str, str],
) -> list[tuple[str, ...]]:
    if wanted is None:
        chosen = [_by_role(spec, role, needed=needed, called=called) for spec in specs]
        if len(set(chosen)) > 1:
            named = ",".join(dict.fromkeys("+".join(names) or NO_FEATURE for names in chosen))
            found = "; ".join(
                f"{called[spec.spec_id]} has {'+'.join(names) or NO_FEATURE}"
                for spec, names in zip(specs, chosen, strict=True)
            )
            raise PlanError(
                f"the selected episodes have {len(specs)} specs whose {role} features differ:"
                f" {found}; choose with --{role} (to mix them: --{role} {named}), or"
                " select fewer datasets"
            )
        return chosen
    chosen = [_by_name(spec, role, wanted, called) for spec in specs]
    if needed and not all(chosen):
        raise PlanError(
            f"--{role} none, but the token layout spends {role} tokens: set them to 0 in the layout"
        )
    return chosen


def _by_role(spec: Spec, role: str, *, needed: bool, called: Mapping[str, str]) -> tuple[str, ...]:
    found = [f.name for f in spec.features if f.role == role and f.dtype != "string"]
    if len(found) == 1 or (not found and not needed):
        return tuple(found)
    if not found:
        raise PlanError(
            f"no feature has the role {role}, and the token layout needs one:"
            f" {_listing(spec, called)}; choose with --{role} NAME, or set the layout's"
            f" {role}_tokens to 0"
        )
    raise PlanError(
        f"{len(found)} features have the role {role}: {_listing(spec, called)}; choose with"
        f" --{role} NAME, or concatenate: --{role} {'+'.join(found)}"
    )


def _by_name(
    spec: Spec, role: str, wanted: Sequence[str], called: Mapping[str, str]
) -> tuple[str, ...]:
    numeric = {f.name for f in spec.features if f.dtype != "string" and f.size}
    for entry in wanted:
        if entry == NO_FEATURE:
            return ()
        names = tuple(entry.split("+"))
        if numeric.issuperset(names) and len(set(names)) == len(names):
            return names
    raise PlanError(
        f"--{role} {','.join(wanted)}: a spec of the selected episodes has none of these as"
        f" numbers: {_listing(spec, called)}"
    )


def _listing(spec: Spec, called: Mapping[str, str]) -> str:
    """What a spec has: names, sizes and roles."""
    found = ", ".join(f"{f.name}[{f.size}] ({f.role})" for f in spec.features) or "no features"
    return f"{called[spec.spec_id]} has {found}"

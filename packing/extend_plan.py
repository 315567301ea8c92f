"""Growth of a plan: what a lake gained since is planned as the plan before was, and appended."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from catalog.reader import Catalog
from catalog.selection import Selection, answer_selection, load_selection
from lake.store import Lake
from lake.visible import visible_episodes
from packing.choose_episodes import ChosenEpisodes
from packing.errors import PlanError
from packing.join_plans import join_plans
from packing.known_layouts import choose_prompt
from packing.make_plan import make_plan_with
from packing.mix_sources import choose_mixed, load_mixed_selections
from packing.mixture import Mixture
from packing.plan import Plan
from packing.plan_header import PlanHeader
from packing.roles import NO_FEATURE
from packing.span_makers import span_maker_of
from packing.tokenizer import Tokenizer


def extend_plan(
    lake: Lake,
    parent: Plan,
    episodes: Selection | Sequence[str] | str | None = None,
    *,
    epochs: int | None = None,
    seed: int | None = None,
    mixture: Mixture | None = None,
    tokenizer: Tokenizer | str | Path | None = None,
    state: Sequence[str] | None = None,
    action: Sequence[str] | None = None,
    cameras: Sequence[str] | None = None,
) -> Plan:
    """Plan more episodes behind a plan, with its layout, span maker and settings.

    Lanes alone are chosen anew, for how many are worth it hangs on how many spans are appended.

    Args:
        lake: as it is now.
        parent: the plan that goes on; it is not changed.
        episodes: as for `make_plan`; None takes what the selection of `parent` (its condition,
            answered now; every episode where it had none) finds beyond the episodes of `parent`.
        epochs: passes over these episodes; None takes as many as the newest segment has.
        seed: None goes on from the seed of the newest segment.
        mixture: of the appended epochs; None has every span of theirs once per epoch, whatever the
            mixture of `parent`. One over selections makes these the episodes.
        tokenizer: the one that the plan was made with, or its file, where it is not built in.
        state: as for `make_plan`; None takes the features of `parent`.
        action: likewise.
        cameras: None takes those of `parent`, and is refused where the episodes have others.

    Returns:
        A sealed plan, not yet saved, whose first steps are those of `parent`.

    Raises:
        PackingError: nothing new, or the plans do not join; says why.
    """
    header = parent.header
    prompt = choose_prompt(header.layout, tokenizer)
    if prompt.tokenizer.fingerprint != header.tokenizer_fingerprint:
        raise PlanError(
            f"plan {parent.plan_hash} was made with tokenizer {header.layout.tokenizer}"
            f" ({header.tokenizer_fingerprint[:12]}), not with {prompt.layout.tokenizer}"
            f" ({prompt.tokenizer.fingerprint[:12]}); give that one's file by --tokenizer FILE"
        )
    selections = load_mixed_selections(lake, mixture) if mixture else ()
    if episodes is None and not selections:
        episodes = new_episodes(lake, parent)
    chosen = choose_mixed(lake, mixture, selections, episodes)
    features = _features(header)
    settings = replace(
        header.settings,
        epochs=header.settings.epochs if epochs is None else epochs,
        seed=header.settings.seed + 1 if seed is None else seed,
        lanes=None,
    )
    grown = make_plan_with(
        settings,
        lake,
        None if selections else chosen.selection or chosen.episode_ids,
        spans=span_maker_of(header.span_maker),
        layout=header.layout,
        tokenizer=prompt.tokenizer,
        mixture=mixture,
        state=features["state"] if state is None else state,
        action=features["action"] if action is None else action,
        cameras=_cameras(lake, parent, chosen) if cameras is None else cameras,
    )
    return join_plans(lake, parent, grown)


def new_episodes(lake: Lake, parent: Plan) -> Selection | list[str]:
    """The episodes that the selection of a plan finds now, beyond those that the plan has.

    Raises:
        PlanError: there are none, or the plan was made of given ids, or grew by a part of the lake,
            neither of which says anything of others.
    """
    header = parent.header
    known = set(parent.episodes["episode_id"].to_pylist())
    selection_hash = header.segments[0].selection_hash
    if selection_hash is None:
        if not known.issuperset(_episode_ids(lake, header.versions)):
            raise PlanError(
                f"plan {parent.plan_hash} was made of given episode ids, or grew by some of its"
                " lake's, so what its growth is must be said: give a condition, a selection or ids"
            )
        found: Selection | list[str] = [e for e in _episode_ids(lake) if e not in known]
        if found:
            return found
        raise _nothing_new(parent, "the lake")
    sql = load_selection(lake, selection_hash).sql
    with Catalog(lake) as catalog:
        answer = answer_selection(catalog, sql)
    ids = tuple(e for e in answer.episode_ids if e not in known)
    if not ids:
        raise _nothing_new(parent, f"its selection ({sql})")
    grown = replace(
        answer, episode_ids=ids, sql=f"{sql}\n-- without the episodes of plan {parent.plan_hash}"
    )
    return replace(grown, name=grown.hash[:12])


def _nothing_new(parent: Plan, source: str) -> PlanError:
    return PlanError(
        f"plan {parent.plan_hash} has every episode of {source}: nothing to append; ingest more"
        " first, or give episodes to repeat"
    )


def _episode_ids(lake: Lake, versions: Mapping[str, int] | None = None) -> list[str]:
    pinned = lake if versions is None else lake.at(versions)
    ids: list[str] = visible_episodes(pinned)["episode_id"].to_pylist()
    return ids


def _features(header: PlanHeader) -> dict[str, list[str]]:
    """State and action of the plan's specs, as `make_plan` is told them."""

    def alternatives(of_specs: list[tuple[str, ...]]) -> list[str]:
        named = dict.fromkeys("+".join(names) for names in of_specs if names)
        return [*named, *([NO_FEATURE] if () in of_specs else [])]

    return {
        "state": alternatives([spec.state for spec in header.specs]),
        "action": alternatives([spec.action for spec in header.specs]),
    }


def _cameras(lake: Lake, parent: Plan, chosen: ChosenEpisodes) -> list[str]:
    """The plan's cameras that the episodes have, unless they bring ones that the plan never met."""
    used = parent.header.cameras
    ours = _camera_names(lake, chosen.versions, chosen.episode_ids)
    met = _camera_names(lake, chosen.versions, parent.episodes["episode_id"].to_pylist())
    if new := sorted(ours - met):
        raise PlanError(
            f"the new episodes have cameras that plan {parent.plan_hash} never met:"
            f" {', '.join(new)}; say with --camera which are used (the plan uses"
            f" {', '.join(used) or 'none'})"
        )
    return [name for name in used if name in ours]


def _camera_names(lake: Lake, versions: Mapping[str, int], ids: Sequence[str]) -> set[str]:
    rows = visible_episodes(lake.at(versions), ["episode_id", "cameras"])
    rows = rows.filter(pc.is_in(rows["episode_id"], value_set=pa.array(ids, pa.string())))
    return set(pc.list_flatten(rows["cameras"]).to_pylist())

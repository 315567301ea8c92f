"""The sources of a mixture: which episode belongs to which, and what each source holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from catalog.selection import Selection, load_selection
from lake.store import Lake
from packing.choose_episodes import ChosenEpisodes, choose_episodes
from packing.errors import PlanError
from packing.mixture import Mixture, MixtureSource, PlannedMixture
from packing.plan_episodes import PlanEpisodes
from packing.quotas import plan_mixture
from packing.spans import Int64s


@dataclass(frozen=True, kw_only=True)
class EpisodeSources:
    """Sources of a mixture by name, and the source of each of E episodes, int64 [E]."""

    names: tuple[str, ...]
    selection_hashes: tuple[str | None, ...]
    of_episode: Int64s


def load_mixed_selections(lake: Lake, mixture: Mixture) -> tuple[Selection, ...]:
    """The selections that a mixture names; none for one over datasets or embodiments.

    Raises:
        SelectionError: an unknown one.
        PlanError: an episode is in two of them: it would have two shares.
    """
    selections = tuple(load_selection(lake, name) for name in mixture.selections)
    owner: dict[str, str] = {}
    for selection in selections:
        twice = [episode for episode in selection.episode_ids if episode in owner]
        if twice:
            raise PlanError(
                f"mixture: {len(twice)} episodes are in selection {selection.name} and in another,"
                f" first {twice[0]}, which is in {owner[twice[0]]}: an episode has one source; make"
                " the selections apart (`... and not (...)`)"
            )
        owner.update(dict.fromkeys(selection.episode_ids, selection.name))
    return selections


def choose_mixed(
    lake: Lake,
    mixture: Mixture | None,
    selections: Sequence[Selection],
    episodes: Selection | Sequence[str] | str | None,
) -> ChosenEpisodes:
    """The episodes of a plan: those of the mixture's selections, or as `choose_episodes` has them.

    They are read at the versions of the selections where all are of the same, else at the lake's.

    Raises:
        PlanError: episodes are given beside a mixture of selections, which are the episodes.
    """
    if mixture is None or mixture.over != "selection":
        return choose_episodes(lake, episodes)
    if episodes is not None:
        raise PlanError(
            "mixture over selections: the selections are the episodes of the plan; leave out"
            " further episodes, or make the selections of them"
        )
    ids = sorted(episode for selection in selections for episode in selection.episode_ids)
    chosen = choose_episodes(lake, ids)
    versions = selections[0].versions
    if any(selection.versions != versions for selection in selections):
        return chosen
    return replace(chosen, versions=versions)


def find_sources(
    mixture: Mixture, episodes: PlanEpisodes, selections: Sequence[Selection]
) -> EpisodeSources:
    """The source of each episode.

    Args:
        mixture: what is asked.
        episodes: those of the plan; with selections, the union of them.
        selections: as `load_mixed_selections` gives them.
    """
    if mixture.over == "selection":
        number: Mapping[str, int] = {
            episode: at
            for at, selection in enumerate(selections)
            for episode in selection.episode_ids
        }
        ids = episodes.table["episode_id"].to_pylist()
        return EpisodeSources(
            names=mixture.selections,
            selection_hashes=tuple(selection.hash for selection in selections),
            of_episode=np.array([number[episode] for episode in ids], np.int64),
        )
    names = episodes.datasets if mixture.over == "dataset" else episodes.embodiments
    return EpisodeSources(
        names=names,
        selection_hashes=(None,) * len(names),
        of_episode=episodes.table[mixture.over].to_numpy().astype(np.int64),
    )


def mix(mixture: Mixture, sources: EpisodeSources, runs: pa.Table) -> PlannedMixture:
    """Count what each source holds, and give it its tokens of an epoch.

    Args:
        mixture: what is asked.
        sources: of the episodes.
        runs: the plan's table of runs, with these sources.

    Raises:
        PlanError: numbers that cannot be met together.
    """
    return plan_mixture(mixture, count_sources(sources.names, sources.selection_hashes, runs))


def count_sources(
    names: Sequence[str], selection_hashes: Sequence[str | None], runs: pa.Table
) -> list[MixtureSource]:
    """What each source holds, from the plan's table of runs."""
    source, episode = runs["source"].to_numpy(), runs["episode"].to_numpy()
    of_episodes = np.bincount(
        source[np.unique(episode, return_index=True)[1]], minlength=len(names)
    )
    spans, tokens = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    np.add.at(spans, source, runs["num_spans"].to_numpy())
    np.add.at(tokens, source, runs["tokens"].to_numpy())
    return [
        MixtureSource(
            name=name,
            selection_hash=selection_hashes[number],
            episodes=int(of_episodes[number]),
            spans=int(spans[number]),
            tokens=int(tokens[number]),
        )
        for number, name in enumerate(names)
    ]

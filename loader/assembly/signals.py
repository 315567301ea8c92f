"""The signals of a pack: observed states and action chunks, span after span."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loader.fetch.plan_rows import PackRow
from packing.layout import TokenLayout

if TYPE_CHECKING:
    from loader.fetch.episodes import EpisodeData


@dataclass(frozen=True, kw_only=True)
class PackSignals:
    """What a pack holds of its episodes' signals, in the recorded unit.

    Attributes:
        state: float32 [S, Ds], the observed steps of span 0, span 1, ...; 0 at masked ones.
        action: float32 [Q, Da], their action queries; 0 at steps that the loss leaves out, those
            past an episode's end among them.
    """

    state: NDArray[np.float32]
    action: NDArray[np.float32]


def pack_signals(
    row: PackRow,
    episodes: "Mapping[int, EpisodeData]",
    layout: TokenLayout,
    *,
    state_size: int,
    action_size: int,
) -> PackSignals:
    """Gather the signals of a pack from its episodes.

    Args:
        row: the spans.
        episodes: plan episode -> its data, for every episode of the pack.
        layout: of the plan.
        state_size: Ds of the plan.
        action_size: Da of the plan.
    """
    states = [np.empty((0, state_size), np.float32)]
    actions = [np.empty((0, action_size), np.float32)]
    spans = zip(
        row.episode.tolist(),
        row.start.tolist(),
        row.stop.tolist(),
        row.stride.tolist(),
        row.action_start.tolist(),
        action_queries(row, layout).tolist(),
        strict=True,
    )
    for episode, start, stop, stride, action_start, queries in spans:
        states.append(episodes[episode].state[start:stop:stride])
        chunk = episodes[episode].action[action_start : action_start + queries]
        actions += [chunk, np.zeros((queries - len(chunk), action_size), np.float32)]
    return PackSignals(state=np.concatenate(states), action=np.concatenate(actions))


def without_spans(
    signals: PackSignals, row: PackRow, layout: TokenLayout, bad: Collection[int]
) -> PackSignals:
    """The signals of a pack with those of some of its spans, given by row, set to 0."""
    rows = np.isin(np.arange(len(row)), list(bad))
    states = np.repeat(rows, row.observed)[:, None]
    actions = np.repeat(rows, action_queries(row, layout))[:, None]
    return PackSignals(
        state=np.where(states, np.float32(0), signals.state),
        action=np.where(actions, np.float32(0), signals.action),
    )


def action_queries(row: PackRow, layout: TokenLayout) -> NDArray[np.int32]:
    """int32 [n]: action queries of each span, one per action step where the layout has actions."""
    if layout.action_tokens == 0:
        return np.zeros(len(row), np.int32)
    return row.action_stop - row.action_start

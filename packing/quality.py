"""How good a plan is: padding, balance, shuffle, bias and what it saves, always read together."""

from dataclasses import dataclass
from typing import Any, Self

from packing.storage.use import StorageUse


@dataclass(frozen=True, kw_only=True)
class PlanQuality:
    """Measured on the finished plan.

    Attributes:
        padding: share of the budget of all slots that holds no token; empty slots included.
        state_text_padding: estimate of a further share: what states written as text leave of the
            tokens planned for the longest, all bins being equally likely. 0 without such text.
        empty_slots: slots without a span, which fill up the last step of an epoch.
        max_over_mean: world size -> how much longer the job takes than with equal costs: sum over
            full steps of the costliest rank's cost over the sum of the mean rank's.
        shuffle: k -> Q_k, exp(entropy of episodes over k steps) over that of a uniform
            permutation; 1.0 is as good as a global shuffle.
        near_duplicates: share of spans that have another span of the same episode less than 8
            steps away in the same step.
        bias_over_random: variance of the mean span length of packs over that of packs filled at
            random; high where packs hold spans of like length.
        tokens_over_padded: tokens of the plan over those of one padded row per span, as the
            layout's model pads them: its camera slots, text length and horizon, or the longest
            text, every camera of the plan and the full horizon (see `packing.padded_rows`).
        images_over_padded: images of the plan over those of the padded rows.
        reads_per_span: distinct (step, episode) pairs over spans: 1 where every span costs its own
            read, less where spans of a step share an episode.
        run_steps: steps from the first to the last use of a run, for 90 % of the runs: how long a
            loader keeps frames to decode a run once.
        storage: requests, bytes, decoding and memory of a rank, for some world sizes (see
            `packing.storage.model`).
    """

    padding: float
    state_text_padding: float = 0.0
    empty_slots: int
    max_over_mean: dict[int, float]
    shuffle: dict[int, float]
    near_duplicates: float
    bias_over_random: float
    tokens_over_padded: float
    images_over_padded: float
    reads_per_span: float
    run_steps: int
    storage: tuple[StorageUse, ...] = ()

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Self:
        """From parsed JSON, where the keys of mappings have become text."""
        return cls(
            **{
                **raw,
                "max_over_mean": {int(k): v for k, v in raw["max_over_mean"].items()},
                "shuffle": {int(k): v for k, v in raw["shuffle"].items()},
                "storage": tuple(StorageUse.from_dict(use) for use in raw.get("storage", ())),
            }
        )

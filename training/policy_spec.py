"""What a plan decides about a policy: token layout, dimensions, names, normalisation."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from packing.layout import TokenLayout
from packing.plan_header import PlanHeader, PlanSpec
from training.errors import CheckpointError, ConfigError


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Statistics of the elements of a vector, in the recorded unit.

    Attributes:
        mean, std: to normalise by.
        q01, q99: range in which a state is written as text; absent in older checkpoints.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    q01: tuple[float, ...] = ()
    q99: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise ConfigError(f"{len(self.mean)} means for {len(self.std)} standard deviations")


@dataclass(frozen=True, kw_only=True)
class PolicySpec:
    """All that a policy must know of the data it was trained on, beside its weights.

    Attributes:
        layout: tokens of an image, a state, an action; the tokenizer's name.
        tokenizer_fingerprint: digest of the tokenizer's ids; checked before text is encoded.
        vocab_size: token ids.
        cameras: names that camera ids mean.
        embodiments: names that embodiment ids mean.
        spec_ids: spec that each `stats_id` means.
        state, action: moments for each `stats_id`.
        horizon: action steps of a full chunk.
        span_kind: `window`, or `trajectory`, in which an action also sees later observations.
        history: observed steps of a full window.
        image_size: height and width to which pictures are resized, None for each camera's own.
        whole_chunks: every action chunk has all its `horizon` steps, recorded ones: the plan drops
            windows that would pass an episode's end.
    """

    layout: TokenLayout
    tokenizer_fingerprint: str
    vocab_size: int
    cameras: tuple[str, ...]
    embodiments: tuple[str, ...]
    spec_ids: tuple[str, ...]
    state: tuple[Moments, ...]
    action: tuple[Moments, ...]
    horizon: int
    span_kind: str
    history: int
    image_size: int | None
    whole_chunks: bool = False

    @property
    def state_dim(self) -> int:
        """Ds, the largest state over all specs."""
        return max(len(moments.mean) for moments in self.state)

    @property
    def action_dim(self) -> int:
        """Da, the largest action over all specs."""
        return max(len(moments.mean) for moments in self.action)

    @classmethod
    def from_plan(cls, header: PlanHeader, *, image_size: int | None) -> Self:
        """The spec of policies trained on a plan.

        Raises:
            ConfigError: the plan has no actions to learn.
        """
        if header.layout.action_tokens != 1 or not header.shape.span_action_tokens:
            raise ConfigError(
                f"plan {header.plan_hash} has no action queries: a policy needs spans with actions"
                " and a layout with action_tokens=1"
            )
        return cls(
            layout=header.layout,
            tokenizer_fingerprint=header.tokenizer_fingerprint,
            vocab_size=header.vocab_size,
            cameras=header.cameras,
            embodiments=header.embodiments,
            spec_ids=tuple(spec.spec_id for spec in header.specs),
            state=tuple(
                _moments(header, spec, spec.state, spec.state_size) for spec in header.specs
            ),
            action=tuple(
                _moments(header, spec, spec.action, spec.action_size) for spec in header.specs
            ),
            horizon=header.shape.span_action_tokens,
            span_kind=str(header.span_maker["kind"]),
            history=int(header.span_maker.get("history", 1)),
            image_size=image_size,
            whole_chunks=header.span_maker.get("tail") == "drop",
        )

    def to_json(self) -> str:
        """Canonical JSON."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Inverse of `to_json`.

        Raises:
            CheckpointError: not the JSON of a policy spec of this version.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            return cls(
                **{
                    **raw,
                    "layout": TokenLayout.from_dict(raw["layout"]),
                    **{name: tuple(raw[name]) for name in ("cameras", "embodiments", "spec_ids")},
                    **{
                        name: tuple(
                            Moments(**{key: tuple(values) for key, values in m.items()})
                            for m in raw[name]
                        )
                        for name in ("state", "action")
                    },
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"not a policy spec of this version: {error}") from error


def _moments(header: PlanHeader, spec: PlanSpec, features: tuple[str, ...], size: int) -> Moments:
    """Moments of features laid end to end; 0 and 1 where the selection has no valid step."""
    stats = [header.stats_of(spec.spec_id, feature) for feature in features]
    if not stats:
        return Moments(mean=(0.0,) * size, std=(1.0,) * size)
    mean, std, q01, q99 = (
        tuple(value for each in stats for value in getattr(each, name))
        for name in ("mean", "std", "q01", "q99")
    )
    if len(mean) != size:
        raise ConfigError(
            f"plan {header.plan_hash}: statistics of {', '.join(features)} of spec {spec.spec_id}"
            f" have {len(mean)} elements, not {size}; make the plan again"
        )
    return Moments(mean=mean, std=std, q01=q01, q99=q99)

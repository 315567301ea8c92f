"""What the tiny presets learn in seconds."""

from dataclasses import replace

import numpy as np

from tests.training.batches import Span, policy_spec
from training.policy_spec import Moments, PolicySpec


def task(count: int, *, first: int) -> list[Span]:
    """A word tells the direction, the brightness of a picture how far."""
    rng = np.random.default_rng(first)
    spans = []
    for number in range(count):
        forward, bright = rng.integers(2), rng.integers(2)
        goal = (1.0 if forward else -1.0) * (1.0 if bright else 0.3)
        spans.append(
            Span(
                span_id=first + number,
                kind=0,
                text=(8 + int(forward),),
                images=((0, np.full((3, 64, 64), 220 if bright else 40, np.uint8)),),
                state=np.zeros((1, 5), np.float32),
                actions=np.full((4, 4), goal, np.float32),
                valid=np.ones(4, np.bool_),
            )
        )
    return spans


def task_spec() -> PolicySpec:
    """Pictures of 64 pixels in 16 tokens; quantiles that change nothing."""

    def from_minus_one_to_one(moments: tuple[Moments, ...]) -> tuple[Moments, ...]:
        size = [len(one.mean) for one in moments]
        return tuple(
            replace(one, q01=(-1.0,) * n, q99=(1.0,) * n)
            for one, n in zip(moments, size, strict=True)
        )

    spec = policy_spec(image_size=64)
    return replace(
        spec,
        layout=replace(spec.layout, image_tokens=16),
        state=from_minus_one_to_one(spec.state),
        action=from_minus_one_to_one(spec.action),
    )

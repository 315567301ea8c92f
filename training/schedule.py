"""Learning rate as a pure function of the step, so that there is no scheduler state to lose."""

import math

from training.config import OptimizerConfig


def learning_rate(step: int, *, total_steps: int, config: OptimizerConfig) -> float:
    """Linear warm-up, then as `config.schedule` says: half a cosine, a line, or no fall at all.

    Args:
        step: 0 for the first optimizer step.
        total_steps: steps of the whole run, over all resumes.
        config: peak, warm-up, final share.
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    rest = max(total_steps - 1 - config.warmup_steps, 1)
    progress = min((step - config.warmup_steps) / rest, 1.0)
    left = {
        "cosine": 0.5 * (1.0 + math.cos(math.pi * progress)),
        "linear": 1.0 - progress,
        "constant": 1.0,
    }[config.schedule]
    return config.lr * (config.final_lr_share + (1.0 - config.final_lr_share) * left)

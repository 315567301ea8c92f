"""Errors of training."""

from lake.errors import HeadraceError


class TrainingError(HeadraceError):
    """Training could not start, go on or be resumed."""


class ConfigError(TrainingError):
    """A training configuration is wrong, or does not fit the plan or the checkpoint."""


class CheckpointError(TrainingError):
    """A checkpoint is missing, unreadable, or belongs to another plan or model."""


class NonFiniteLossError(TrainingError):
    """Loss or gradients became NaN or infinite; the last checkpoint is still good."""


class RankLostError(TrainingError):
    """Another process of the run is gone, and this one cannot go on alone."""


def require_positive(name: str, value: float) -> None:
    """Refuse a setting.

    Raises:
        ConfigError: it is not above 0.
    """
    if not value > 0:
        raise ConfigError(f"{name} must be positive, not {value}")

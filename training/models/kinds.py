"""The kinds of policies, their named sizes, and how one is made."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, assert_never

from pydantic import Field

from training.models.film.config import FilmConfig
from training.models.gr00t.config import GrootConfig
from training.models.pi05.config import Pi05Config

if TYPE_CHECKING:
    from training.models.policy_model import PolicyModel
    from training.policy_spec import PolicySpec

ModelConfig: TypeAlias = Annotated[
    FilmConfig | Pi05Config | GrootConfig, Field(discriminator="kind")
]
"""Sizes of any kind; `kind` tells which."""

PRESETS: Final[Mapping[str, ModelConfig]] = {
    "tiny": FilmConfig(),
    "small": FilmConfig(
        width=256,
        expert_width=256,
        layers=4,
        heads=8,
        conv_channels=(32, 64, 64),
    ),
    "pi05-tiny": Pi05Config(
        width=128,
        mlp_width=384,
        expert_width=128,
        expert_mlp_width=384,
        layers=2,
        heads=4,
        kv_heads=1,
        head_dim=32,
        image_size=64,
        vision_width=96,
        vision_depth=2,
        vision_heads=3,
        vision_mlp_width=288,
        time_sampling="uniform",
        flow_steps=5,
    ),
    "pi05": Pi05Config(),
    "gr00t-tiny": GrootConfig(
        width=128,
        mlp_width=384,
        layers=1,
        heads=4,
        kv_heads=2,
        head_dim=32,
        image_size=64,
        vision_width=96,
        vision_depth=2,
        vision_heads=3,
        vision_mlp_width=288,
        adapter_layers=1,
        adapter_heads=4,
        dit_layers=2,
        dit_heads=4,
        dit_head_dim=32,
        hidden=128,
        max_positions=256,
        time_sampling="uniform",
        flow_steps=5,
    ),
    "gr00t-n1.5": GrootConfig(),
}
"""Named sizes: `tiny` learns a demo on two CPU cores in minutes, `small` wants more patience;
`pi05-tiny` and `gr00t-tiny` run there too; `pi05` and `gr00t-n1.5` have the published sizes."""


def build_model(config: ModelConfig, spec: "PolicySpec") -> "PolicyModel":
    """A policy with fresh weights from torch's global generator: seed it first."""
    # Only the kind that is made is imported.
    match config.kind:
        case "film":
            from training.models.film.model import FilmPolicy  # noqa: PLC0415

            return FilmPolicy(config, spec)
        case "pi05":
            from training.models.pi05.model import Pi05Policy  # noqa: PLC0415

            return Pi05Policy(config, spec)
        case "gr00t_n15":
            from training.models.gr00t.model import GrootPolicy  # noqa: PLC0415

            return GrootPolicy(config, spec)
        case unknown:
            assert_never(unknown)

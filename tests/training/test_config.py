from pathlib import Path
from typing import Any

import pytest

from training.config import OptimizerConfig, TrainConfig
from training.errors import ConfigError
from training.models.film.config import FilmConfig
from training.models.kinds import PRESETS


def test_dict_round_trip() -> None:
    config = TrainConfig(optimizer=OptimizerConfig(lr=0.5, betas=(0.8, 0.99)), steps=7)
    assert TrainConfig.from_dict(config.to_dict()) == config


def test_json_lists_become_tuples() -> None:
    raw = TrainConfig().to_dict()
    raw["model"]["conv_channels"] = [8, 16]
    assert TrainConfig.from_dict(raw).model == FilmConfig(conv_channels=(8, 16))


def test_preset_then_file_then_overrides(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("model:\n  layers: 7\n  heads: 3\noptimizer:\n  lr: 1.0e-4\nsteps: 9\n")
    config = TrainConfig.load(
        file, preset="small", overrides={"model.heads": "5", "loader.image_size": "none"}
    )
    assert config.model.width == PRESETS["small"].width
    assert (config.model.layers, config.model.heads) == (7, 5)
    assert (config.optimizer.lr, config.steps, config.loader.image_size) == (1e-4, 9, None)


def test_a_float_may_be_written_as_yaml_1_1_does_not_know_it(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("optimizer:\n  lr: 1e-4\n  weight_decay: 1\n")
    loaded = TrainConfig.load(tmp_path / "train.yaml", overrides={"optimizer.clip_norm": "2e-1"})
    assert (loaded.optimizer.lr, loaded.optimizer.weight_decay) == (1e-4, 1.0)
    assert loaded.optimizer.clip_norm == 0.2


def test_a_file_may_name_another_kind_of_model_than_the_preset(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("model: {kind: pi05, depth_unknown: 1}\n")
    with pytest.raises(ConfigError, match=r"^unknown setting model.depth_unknown"):
        TrainConfig.load(tmp_path / "train.yaml", overrides={})
    (tmp_path / "train.yaml").write_text("model: {kind: pi05, layers: 3}\n")
    loaded = TrainConfig.load(tmp_path / "train.yaml", overrides={"model.heads": 2})
    assert (loaded.model.kind, loaded.model.layers, loaded.model.heads) == ("pi05", 3, 2)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    loaded = TrainConfig.load(tmp_path / "empty.yaml", overrides={})
    assert loaded == TrainConfig(model=PRESETS["tiny"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"optimizer.learning_rate": 1}, "unknown setting optimizer.learning_rate"),
        ({"xyzzy": 1}, "unknown setting xyzzy$"),
        ({"optimizer.warmup_step": 1}, r"warmup_step \(did you mean warmup_steps\?\)"),
        ({"optimizer.lr": "fast"}, "optimizer.lr: .*number"),
        ({"optimizer.lr": True}, "optimizer.lr: .*number"),
        ({"model.layers": 2.5}, "model.layers: .*integer"),
        ({"model.film": "maybe"}, "model.film: .*boolean"),
        ({"model.time_sampling": "gaussian"}, "'beta' or 'uniform', not 'gaussian'"),
        ({"model.conv_channels": "8,x"}, r"model.conv_channels.1: .*integer, not 'x'"),
        ({"optimizer.betas": "0.9,"}, r"optimizer.betas.1: .*"),
        ({"optimizer.betas": "0.9"}, "optimizer.betas: .*array"),
        ({"model": 3}, "model: .*object"),
        ({"model.head_dim": 7}, "even"),
        ({"model.width": 0}, "positive"),
        ({"model.conv_channels": "8,0"}, "positive"),
        ({"model.expert_width": 63}, "even"),
        ({"optimizer.weight_decay": "-0.1"}, "cannot be negative"),
        ({"optimizer.betas": "0.9,1"}, r"in \[0, 1\)"),
        ({"seed": str(2**63)}, "seed must lie"),
        ({"seed": -1}, "seed must lie"),
        ({"optimizer.ema_decay": "1"}, "ema_decay"),
        ({"checkpoint.keep": "0"}, "positive"),
        ({"loader.cache_gb": "0"}, "positive"),
        ({"steps": "0"}, "positive"),
        ({"padded": "true", "distributed.compile": "true"}, "leave one of the two away"),
    ],
)
def test_bad_settings_are_named(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig.load(overrides=overrides)


@pytest.mark.parametrize("text", ["- 1\n- 2\n", "a: [\n", "\xff"])
def test_bad_files_are_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        TrainConfig.load(file, overrides={})


def test_missing_file_and_preset_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        TrainConfig.load(tmp_path / "none.yaml", overrides={})
    with pytest.raises(ConfigError, match="there are: tiny, small"):
        TrainConfig.load(preset="huge", overrides={})


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid(preset: str) -> None:
    config = TrainConfig.load(preset=preset, overrides={})
    assert config.model == PRESETS[preset]
    assert TrainConfig.from_dict(config.to_dict()) == config


def test_settings_of_another_kind_of_model_are_named() -> None:
    overrides = {"model.conv_channels": "8,"}
    with pytest.raises(ConfigError, match=r"unknown setting model\.conv_channels"):
        TrainConfig.load(preset="pi05-tiny", overrides=overrides)
    with pytest.raises(ConfigError, match=r"model\.layers: .*integer"):
        TrainConfig.load(preset="pi05-tiny", overrides={"model.layers": "few"})

from pathlib import Path

import pytest
import torch

from training.distributed import Ranks
from training.errors import TrainingError
from training.run_folder import run_folder

FIRST = Ranks(rank=0, world_size=2, device=torch.device("cpu"))
SECOND = Ranks(rank=1, world_size=2, device=torch.device("cpu"))


def test_one_training_holds_a_folder_at_a_time(tmp_path: Path) -> None:
    with (
        run_folder(tmp_path / "run", FIRST),
        run_folder(tmp_path / "run", SECOND),
        pytest.raises(TrainingError, match="another training writes into"),
        run_folder(tmp_path / "run", FIRST),
    ):
        pass
    with run_folder(tmp_path / "run", FIRST):
        pass


def test_a_folder_that_cannot_be_made_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(TrainingError, match=r"cannot write into .*file \(File exists\)"),
        run_folder(tmp_path / "file", FIRST),
    ):
        pass

import pytest
import torch.distributed as dist

from training.distributed import process_group
from training.errors import ConfigError


def test_a_plain_process_is_a_world_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with process_group() as ranks:
        assert (ranks.rank, ranks.world_size, ranks.is_first) == (0, 1, True)
        assert not dist.is_initialized()


@pytest.mark.parametrize(("rank", "world_size"), [("2", "2"), ("-1", "1"), ("0", "0")])
def test_a_rank_outside_its_world_is_refused(
    monkeypatch: pytest.MonkeyPatch, rank: str, world_size: str
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world_size)
    with pytest.raises(ConfigError, match=f"RANK={rank}"), process_group():
        pass


def test_a_world_without_a_meeting_point_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"MASTER_ADDR.*start with torchrun"), process_group():
        pass

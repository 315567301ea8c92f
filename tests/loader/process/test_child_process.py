"""What a process of our own is started with."""

import os
from pathlib import Path

import pytest

from loader.process.child_process import _environment


def test_the_users_environment_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "theirs")
    monkeypatch.setenv("AWS_REGION", "eu")
    found = _environment()
    assert found["AWS_REGION"] == "eu"
    ours, _, theirs = found["PYTHONPATH"].rpartition(os.pathsep)
    assert Path(ours, "loader", "process", "child_process.py").is_file()
    assert theirs == "theirs"


def test_few_arenas_unless_the_user_has_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert _environment()["MALLOC_ARENA_MAX"] == "2"
    assert "MALLOC_ARENA_MAX" not in os.environ
    monkeypatch.setenv("MALLOC_ARENA_MAX", "7")
    assert _environment()["MALLOC_ARENA_MAX"] == "7"

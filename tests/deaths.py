"""Deaths of a process at a chosen call, forced inside this one."""

import importlib
from collections.abc import Callable
from typing import Any

import pytest


class Died(BaseException):
    """Stands for the end of the process: nothing of what it did runs after it."""


def dies_at(
    monkeypatch: pytest.MonkeyPatch, target: str, call: int, *, after: bool
) -> Callable[[], bool]:
    """Make call number `call` of `target` raise, before or after its work; tells if it did."""
    calls = 0
    real = resolve(target)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != call:
            return real(*args, **kwargs)
        if after:
            real(*args, **kwargs)
        raise Died

    monkeypatch.setattr(target, wrapper)
    return lambda: calls >= call


def resolve(target: str) -> Any:
    """What a dotted path names: modules as far as they go, then attributes."""
    parts = target.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(target)

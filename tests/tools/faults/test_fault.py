"""Which request a fault meets."""

import pytest

from tools.faults.fault import Fault, FaultDraw, FaultError


def _met(draw: FaultDraw, requests: int = 100, path: str = "/robots/a") -> list[int]:
    return [n for n in range(requests) if draw.draw("GET", path, f"bytes={n}") is not None]


def test_the_seed_decides() -> None:
    faults = [Fault(kind="reset", rate=0.2)]
    first, again, other = (_met(FaultDraw(faults, seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert 8 <= len(first) <= 35


def test_names_do_not() -> None:
    """Names of files are random: with others as many are met."""
    faults = [Fault(kind="reset", rate=0.2)]
    assert _met(FaultDraw(faults, 1), path="/x") == _met(FaultDraw(faults, 1), path="/y")


def test_how_often_at_most() -> None:
    assert _met(FaultDraw([Fault(kind="reset", most=2)], 0)) == [0, 1]
    draw = FaultDraw([Fault(kind="flip", per_request=1)], 0)
    assert [draw.draw("GET", path) is not None for path in "aabba"] == [True, False] * 2 + [False]


def test_the_first_fault_that_meets_wins() -> None:
    draw = FaultDraw([Fault(kind="reset", path="/b$"), Fault(kind="cut", methods=("PUT",))], 0)
    kinds = []
    for method, path in (("GET", "/b"), ("PUT", "/b"), ("PUT", "/a"), ("GET", "/a")):
        drawn = draw.draw(method, path)
        kinds.append(drawn and drawn[0].kind)
    assert kinds == ["reset", "reset", "cut", None]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "fire"}, "use one of slow_down, reset"),
        ({"kind": "reset", "rate": 1.5}, "not within"),
        ({"kind": "slow"}, "hold_s"),
        ({"kind": "reset", "path": "("}, "path '\\('"),
    ],
)
def test_nonsense_is_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(FaultError, match=words):
        Fault(**values)  # type: ignore[arg-type]  # that is the point

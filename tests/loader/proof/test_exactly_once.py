"""The proof of exactly-once passes a right loader, and catches each way to be wrong."""

from typing import Any

import pytest

from loader.proof.errors import ProofError
from loader.proof.exactly_once import Kill, prove_exactly_once
from loader.proof.planned import PlannedSteps
from loader.proof.report import ProofResult
from tests.loader.proof.programs import packs_of, program


def planned(steps: int = 12, *, first_step: int = 0) -> PlannedSteps:
    """What the programs stream."""
    numbers = range(first_step, first_step + steps)
    return PlannedSteps(first_step=first_step, steps=[packs_of(step) for step in numbers])


def _prove(fault: str = "", **options: Any) -> ProofResult:
    settings: dict[str, Any] = {"world_sizes": (1, 2, 3), "num_kills": 3, "kills": ("job",)}
    return prove_exactly_once(program(fault), planned(), **{**settings, **options})


@pytest.mark.parametrize("seed", range(3))
def test_a_right_loader_passes(seed: int) -> None:
    told: list[tuple[int, int]] = []
    result = _prove(seed=seed, kills=("job", "rank"), progress=lambda *n: told.append(n))
    assert result.passed, result
    assert (result.first_step, result.stop_step) == (0, 12)
    assert result.counts["kills"] == 3
    assert result.counts["spans"] == 12 * 4 * 2
    assert result.counts["packs"] >= 12 * 4
    assert told[-1] == (12, 12)
    assert "world sizes 1, 2, 3, 1" in result.tried


def test_every_resume_is_counted_and_something_is_lost() -> None:
    results = [_prove(seed=seed, num_kills=6) for seed in (5, 6)]
    assert all(result.passed for result in results)
    assert sum(result.counts["repeated_packs"] for result in results) > 0
    assert max(result.counts["resumes"] for result in results) >= 3


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("skips a span", "step 5, span 42: epoch 0, occurrence 0: planned 1 times, consumed 0"),
        ("repeats a span", "step 5, span 42: epoch 0, occurrence 0: planned 1 times, consumed 2"),
        ("swaps spans", "step 5, slot 1: holds other spans than planned"),
        ("names another step", "step 4, slot 0: rank 0 of 1 gave a pack of step 5"),
        ("raises", "step 5: rank 0 of 1: ValueError: no reason"),
        ("gives up", "step 5: rank 0 of 1: LakeError: the store did not answer"),
        ("exits", "step 5: rank 0 of 1: its process ended with exit code 3"),
    ],
)
def test_a_fault_of_every_life_is_found(fault: str, words: str) -> None:
    result = _prove(fault, world_sizes=(1,), num_kills=1)
    assert not result.passed
    assert words in str(result.differences[0])
    assert result.to_dict()["differences"] == [str(d) for d in result.differences]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "fault", ["skips after resume", "repeats a span after resume", "moves too early"]
)
def test_a_fault_of_resuming_is_found(fault: str, seed: int) -> None:
    """The first life is right wherever it dies, so only what follows can tell."""
    assert not _prove(fault, world_sizes=(2, 1), num_kills=5, seed=seed).passed


def test_ranks_must_agree_on_the_state() -> None:
    result = _prove("state of its own", world_sizes=(2,))
    assert "ranks saved different states" in str(result.differences[0])


def test_a_rank_that_hangs_is_not_waited_for() -> None:
    result = _prove("hangs", world_sizes=(1,), num_kills=0, patience_s=0.5)
    assert "no answer within 0.5 s" in str(result.differences[0])


@pytest.mark.parametrize("kills", [("worker",), ("worker", "job", "rank")])
def test_what_ranks_have_started_is_killed(kills: tuple[Kill, ...]) -> None:
    result = prove_exactly_once(
        program("has a child"), planned(), world_sizes=(2,), kills=kills, num_kills=3
    )
    assert result.passed, result
    assert result.counts["killed_workers"] >= 1
    assert result.counts["kills"] == 3


def test_a_range_of_steps_begins_where_it_is_told() -> None:
    result = prove_exactly_once(
        program(), planned(4, first_step=6), world_sizes=(2, 3), num_kills=2, kills=("job",)
    )
    assert result.passed, result
    assert (result.first_step, result.stop_step) == (6, 10)
    assert result.counts["spans"] == 4 * 4 * 2


def test_time_bounds_what_is_compared() -> None:
    result = _prove(seconds=0.0)
    assert not result.failed
    assert not result.passed
    assert result.unproved == "time was too short for a kill"
    assert (result.first_step, result.stop_step) == (0, 1)
    assert result.counts["spans"] == 4 * 2
    assert result.outcome == "time was too short for more kills"


def test_a_stream_that_ends_early_is_found() -> None:
    result = prove_exactly_once(
        program(steps=9), planned(), world_sizes=(1,), num_kills=0, kills=("job",)
    )
    assert "its stream ended" in str(result.differences[0])


def test_a_plan_that_repeats_itself_is_found() -> None:
    twice = PlannedSteps(first_step=0, steps=[[[(0, 1, 0), (0, 1, 0)]]])
    result = prove_exactly_once(program(), twice, world_sizes=(1,), num_kills=0)
    assert str(result.differences[0]) == "span 1: planned 2 times as occurrence 0 of epoch 0"


@pytest.mark.parametrize("options", [{"world_sizes": ()}, {"world_sizes": (0,)}, {"kills": ()}])
def test_there_must_be_something_to_try(options: dict[str, Any]) -> None:
    with pytest.raises(ProofError, match="name world sizes"):
        _prove(**options)


def test_a_program_that_cannot_be_imported_is_named() -> None:
    from loader.proof.program import RankProgram

    for target in ("tests.loader.proof.programs:nothing", "no.such.module:rank", "nowhere"):
        with pytest.raises(ProofError, match="write module:name"):
            RankProgram(target=target).start(0, 1)

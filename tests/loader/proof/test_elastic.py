"""The proof of elasticity passes a right loader, and catches each way to be wrong."""

import pytest

from loader.proof.elastic import Variant, prove_elastic
from loader.proof.errors import ProofError
from loader.proof.planned import PlannedSteps
from loader.proof.program import PackReport, RankProgram, RankSetup, Reports
from tests.loader.proof.programs import packs_of, program

_PLANNED = PlannedSteps(first_step=0, steps=[packs_of(step) for step in range(12)])


def no_digests(setup: RankSetup) -> Reports:
    """A rank program that compares nothing."""
    for step in range(12):
        yield PackReport(step=step, slot=setup.rank, spans=(), ends_step=True, state=None)


def _variants(fault: str, worlds: tuple[tuple[int, ...], ...], **arguments: str) -> list[Variant]:
    first = Variant(label="plain", program=program(), world_sizes=(1,))
    others = [
        Variant(label=f"world {w}", program=program(fault, **arguments), world_sizes=w)
        for w in worlds
    ]
    return [first, *others]


def test_a_right_loader_passes() -> None:
    result = prove_elastic(_variants("", ((2,), (3,), (4,), (3, 1, 4))), _PLANNED)
    assert result.passed, result
    assert result.counts["ways"] == 5
    # Three ranks take six packs of a step of four.
    assert result.counts["packs"] == 12 * (4 + 4 + 6 + 4) + 4 * (6 + 4 + 4)
    assert result.counts["spans"] == 5 * 12 * 4 * 2
    assert "world (3, 1, 4)" in result.tried


@pytest.mark.parametrize(
    ("fault", "world", "words"),
    [
        ("bytes of the world size", (2,), "step 3, slot 0: world (2,): other bytes than plain"),
        ("swaps spans", (2,), "step 5, slot 1: holds other spans than planned"),
        ("skips a span", (3,), "step 5, span 42: epoch 0, occurrence 0: planned 1 times"),
        ("names another step", (2,), "step 4: world (2,): rank 0 of 2 gave a pack of step 5"),
        ("state of its own", (2,), "step 11: world (2,): ranks saved different states"),
        ("skips after resume", (2, 3), "step 6: world (2, 3): rank 0 of 3 gave a pack of step 7"),
    ],
)
def test_what_is_wrong_is_found(fault: str, world: tuple[int, ...], words: str) -> None:
    result = prove_elastic(_variants(fault, (world,)), _PLANNED)
    assert not result.passed
    assert words in str(result.differences[0])


def test_other_bytes_everywhere_are_cut_short() -> None:
    result = prove_elastic(_variants("", ((1,),), bytes="!"), _PLANNED)
    assert len(result.differences) == 20


def test_time_bounds_how_many_ways_are_tried() -> None:
    result = prove_elastic(_variants("", ((2,), (3,), (4,))), _PLANNED, seconds=0.0)
    assert result.passed
    assert result.counts["ways"] == 2


def test_there_must_be_something_to_compare() -> None:
    with pytest.raises(ProofError, match="two ways"):
        prove_elastic(_variants("", ()), _PLANNED)
    without = RankProgram(target="tests.loader.proof.test_elastic:no_digests")
    variants = [Variant(label="x", program=without, world_sizes=(1,))] * 2
    with pytest.raises(ProofError, match="no slot or no digest"):
        prove_elastic(variants, _PLANNED)

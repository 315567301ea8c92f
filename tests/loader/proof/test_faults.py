"""The proof under faults passes a right loader, and catches each way to be wrong."""

import pytest

from loader.proof.errors import ProofError
from loader.proof.faults import clean_packs, prove_under_faults
from loader.proof.planned import PlannedSteps
from loader.proof.report import ProofResult
from tests.loader.proof.programs import packs_of, program

_PLANNED = PlannedSteps(first_step=0, steps=[packs_of(step) for step in range(12)])


def _prove(fault: str, *, clean: str = "", **arguments: str) -> ProofResult:
    packs = clean_packs(program(), _PLANNED)
    return prove_under_faults(
        program(fault, **arguments),
        program(clean),
        packs,
        _PLANNED,
        what="a fault",
        patience_s=5.0,
    )


def test_faults_that_nobody_notices_pass() -> None:
    result = _prove("")
    assert result.passed
    assert result.outcome == "the same bytes"
    assert dict(result.counts) == {"retries": 11, "injected": 1, "packs": 48, "spans": 96}


def test_what_met_no_fault_is_said() -> None:
    result = _prove("nothing")
    assert (result.passed, result.failed) == (False, False)
    assert (result.outcome, result.unproved) == ("the same bytes", "no fault was met")


def test_giving_up_with_a_name_passes_where_the_rest_can_be_had_after_it() -> None:
    result = _prove("gives up")
    assert result.passed
    assert result.outcome == "LakeError: the store did not answer"
    assert result.counts["resumes"] == 1
    assert result.counts["packs"] == 5 * 4 + 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raises", "step 5: no named error: ValueError: no reason"),
        ("exits", "step 5: no named error: its process ended with exit code 3"),
        ("names another step", "step 4: a pack of step 5 came"),
    ],
)
def test_what_is_wrong_is_found(fault: str, words: str) -> None:
    result = _prove(fault)
    assert [str(difference) for difference in result.differences] == [words]


def test_other_bytes_are_found() -> None:
    assert str(_prove("", bytes="!").differences[0]) == (
        "step 0, slot 0: other bytes than without faults"
    )


def test_what_comes_after_the_error_must_be_right() -> None:
    result = _prove("gives up", clean="skips after resume")
    assert str(result.differences[0]) == "step 5: a pack of step 6 came"


def test_a_stream_that_hangs_is_found() -> None:
    packs = clean_packs(program(), _PLANNED)
    result = prove_under_faults(
        program("hangs"), program(), packs, _PLANNED, what="a stall", patience_s=0.5
    )
    assert str(result.differences[0]) == "step 5: no named error: no answer within 0.5 s"


def test_without_faults_the_stream_must_be_right() -> None:
    with pytest.raises(ProofError, match="without faults already, step 5"):
        clean_packs(program("skips a span"), _PLANNED)

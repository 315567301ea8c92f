from pathlib import Path

import pytest

from training.errors import TrainingError
from training.logs.ledger import Consumed, Ledger, next_attempt, surviving_trajectory


def packs(step: int, slots: range, tag: int = 0) -> list[Consumed]:
    return [
        Consumed(
            step=step, slot=slot, epoch=0, span_ids=(100 * step + slot, tag), occurrences=(0, tag)
        )
        for slot in slots
    ]


def attempt(folder: Path, first: int, steps: range, *, ranks: int = 1, tag: int = 0) -> None:
    number = next_attempt(folder)
    for rank in range(ranks):
        ledger = Ledger(folder, rank=rank, attempt=number, first_step=first)
        for step in steps:
            ledger.record(packs(step, range(rank, 2, ranks), tag))
        ledger.close()


def test_one_attempt_is_its_own_trajectory(tmp_path: Path) -> None:
    attempt(tmp_path, 0, range(5), ranks=2)
    assert surviving_trajectory(tmp_path) == [p for s in range(5) for p in packs(s, range(2))]


def test_steps_trained_again_count_once_by_the_newer_attempt(tmp_path: Path) -> None:
    attempt(tmp_path, 0, range(7), tag=1)
    attempt(tmp_path, 4, range(4, 6), ranks=2, tag=2)
    attempt(tmp_path, 4, range(4, 9), tag=3)
    found = surviving_trajectory(tmp_path)
    assert [(p.step, p.span_ids[1]) for p in found if p.slot == 0] == [
        *((step, 1) for step in range(4)),
        *((step, 3) for step in range(4, 9)),
    ]
    assert len(found) == 18


def test_an_attempt_killed_before_its_first_step_still_ends_the_one_before(tmp_path: Path) -> None:
    attempt(tmp_path, 0, range(6))
    attempt(tmp_path, 3, range(0))
    assert [p.step for p in surviving_trajectory(tmp_path) if p.slot == 0] == [0, 1, 2]


def test_an_attempt_further_back_takes_over_from_all_later_ones(tmp_path: Path) -> None:
    attempt(tmp_path, 0, range(6), tag=1)
    attempt(tmp_path, 5, range(5, 8), tag=2)
    attempt(tmp_path, 2, range(2, 4), tag=3)
    found = [(p.step, p.span_ids[1]) for p in surviving_trajectory(tmp_path) if p.slot == 0]
    assert found == [(0, 1), (1, 1), (2, 3), (3, 3)]


def test_stop_step_leaves_out_what_no_checkpoint_holds(tmp_path: Path) -> None:
    attempt(tmp_path, 0, range(6))
    assert {p.step for p in surviving_trajectory(tmp_path, stop_step=4)} == {0, 1, 2, 3}


def test_half_a_last_line_is_a_kill_half_a_line_before_it_is_damage(tmp_path: Path) -> None:
    attempt(tmp_path, 0, range(3))
    (file,) = tmp_path.iterdir()
    whole = file.read_text()
    file.write_text(whole[:-9])
    assert len(surviving_trajectory(tmp_path)) == 5
    file.write_text(whole.replace('"slot":1', '"slot"', 1))
    with pytest.raises(TrainingError, match="line 3 is damaged"):
        surviving_trajectory(tmp_path)


def test_an_attempt_never_overwrites_another(tmp_path: Path) -> None:
    attempt(tmp_path, 0, range(2))
    assert next_attempt(tmp_path) == 1
    with pytest.raises(FileExistsError):
        Ledger(tmp_path, rank=0, attempt=0, first_step=0)


def test_a_run_without_a_ledger_consumed_nothing(tmp_path: Path) -> None:
    assert surviving_trajectory(tmp_path / "none") == []
    assert next_attempt(tmp_path / "none") == 0

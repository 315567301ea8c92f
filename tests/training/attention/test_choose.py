import re
from collections.abc import Sequence
from typing import NoReturn

import pytest
import torch
from torch import Tensor

from tests.training.attention.dense import PLAIN
from training.attention import choose
from training.attention.backend import Attend, Backend
from training.attention.calls import AttentionCall, calls_of
from training.attention.choose import Choice, choose_backend
from training.attention.per_segment import SDPA, attend
from training.attention.segments import Segments
from training.attention.varlen import BACKENDS, varlen_attention
from training.errors import ConfigError

CPU = torch.device("cpu")
CASE = PLAIN["more keys than queries, causal, 4 heads on 2"]


def fails(_q: Tensor, _k: Tensor, _v: Tensor, _s: Segments) -> NoReturn:
    raise RuntimeError("no kernel image\nis available")


def forgets_the_mask(q: Tensor, k: Tensor, v: Tensor, _s: Segments) -> Tensor:
    everything = torch.tensor([0, len(q)], dtype=torch.int32)
    keys = torch.tensor([0, len(k)], dtype=torch.int32)
    whole = Segments(
        cu_seqlens_q=everything, cu_seqlens_k=keys, max_seqlen_q=len(q), max_seqlen_k=len(k)
    )
    return attend(q, k, v, whole)


def gives_nan(q: Tensor, k: Tensor, v: Tensor, s: Segments) -> Tensor:
    return attend(q, k, v, s) * float("nan")


class Unsteady:
    """Another last bit at every call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, s: Segments) -> Tensor:
        self.calls += 1
        return attend(q, k, v, s) * (1.0 + 1e-6 * self.calls)


def backend(name: str, attend_by: Attend, prepared: list[Segments] | None = None) -> Backend:
    return Backend(
        name=name,
        unfit=SDPA.unfit,
        load=lambda: attend_by,
        prepare=lambda segments: prepared.append(segments) if prepared is not None else None,
    )


def offer(monkeypatch: pytest.MonkeyPatch, *backends: Backend) -> None:
    monkeypatch.setattr(choose, "BACKENDS", {b.name: b for b in (*backends, SDPA)})


def calls() -> list[AttentionCall]:
    q, k, v, _ = CASE.inputs(torch.float32)
    segments = CASE.segments()

    def layers() -> None:
        for _ in range(3):
            varlen_attention(q, k, v, segments)
        varlen_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), segments)

    return calls_of(layers)


def must_not_be_asked() -> Sequence[AttentionCall]:
    raise AssertionError


def test_calls_are_counted_by_kind() -> None:
    single, half = calls()
    assert (single.q_shape, single.k_shape) == ((7, 4, 8), (18, 2, 8))
    assert (single.dtype, single.times, single.device) == (torch.float32, 3, CPU)
    assert (half.dtype, half.times) == (torch.bfloat16, 1)


def test_looking_at_calls_leaves_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    assert calls_of(lambda: torch.rand(7)) == []
    assert torch.equal(torch.rand(1), expected)


def test_a_cpu_gets_the_reference_at_once_and_reasons_for_the_others() -> None:
    choice = choose_backend("auto", CPU, torch.bfloat16, must_not_be_asked)
    assert choice.name == "sdpa"
    assert choice.measured_ms == {}
    assert {*choice.refused, "sdpa"} == set(BACKENDS)
    assert choice.refused["flex"] == "FlexAttention has no backward pass on a CPU"


def test_the_quickest_is_chosen_and_all_are_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 0.0}

    def taking(ms: float) -> Attend:
        def attend_by(q: Tensor, k: Tensor, v: Tensor, s: Segments) -> Tensor:
            clock["now"] += ms
            return attend(q, k, v, s)

        return attend_by

    monkeypatch.setattr(choose, "_now_ms", lambda _: clock["now"])
    offered = {"slow": 5.0, "slower": 6.0, "sdpa": 7.0}
    backends = {name: backend(name, taking(ms)) for name, ms in offered.items()}
    monkeypatch.setattr(choose, "BACKENDS", backends)
    choice = choose_backend("auto", CPU, torch.float32, calls)
    assert choice.name == "slow"
    assert choice.measured_ms == {"slow": 20.0, "slower": 24.0, "sdpa": 28.0}
    assert choice.to_dict() == {
        "backend": "slow",
        "measured_ms": {"slow": 20.0, "slower": 24.0, "sdpa": 28.0},
        "refused": {},
    }


def test_what_a_batch_wants_once_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[Segments] = []
    offer(monkeypatch, backend("prepares", attend, prepared))
    choose_backend("auto", CPU, torch.float32, calls)
    assert len(prepared) == 2 * (choose._WARM_UP + choose._ROUNDS)
    assert len({id(segments) for segments in prepared}) == len(prepared)


@pytest.mark.parametrize(
    ("attend_by", "reason"),
    [
        (
            fails,
            r"failed on \(7, 4, 8\) queries, \(18, 2, 8\) keys: RuntimeError: no kernel image$",
        ),
        (forgets_the_mask, r"its output is off by .* \(allowed: 0.001\)"),
        (gives_nan, r"its output is off by nan"),
    ],
)
def test_a_backend_that_fails_or_computes_something_else_is_refused(
    attend_by: Attend, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, backend("broken", attend_by))
    choice = choose_backend("auto", CPU, torch.float32, calls)
    assert choice.name == "sdpa"
    assert set(choice.measured_ms) == {"sdpa"}
    assert set(choice.refused) == {"broken"}
    assert re.search(reason, choice.refused["broken"])


@pytest.mark.parametrize("deterministic", [False, True])
def test_other_bits_the_second_time_matter_to_a_deterministic_run(
    monkeypatch: pytest.MonkeyPatch, *, deterministic: bool
) -> None:
    offer(monkeypatch, backend("unsteady", Unsteady()))
    torch.use_deterministic_algorithms(deterministic)
    try:
        choice = choose_backend("auto", CPU, torch.float32, calls)
    finally:
        torch.use_deterministic_algorithms(False)
    assert ("unsteady" in choice.refused) is deterministic
    assert ("unsteady" in choice.measured_ms) is not deterministic
    if deterministic:  # the first, not the quickest
        assert choice == Choice(name="sdpa", refused=choice.refused)


def test_a_model_without_attention_gets_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, backend("other", attend))
    assert choose_backend("auto", CPU, torch.float32, list) == Choice(name="sdpa")


def test_a_name_is_taken_at_its_word_where_it_can_run() -> None:
    assert choose_backend("sdpa", CPU, torch.float32, must_not_be_asked) == Choice(name="sdpa")


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ("flash2", "flash2 cannot be used: runs on CUDA devices only, not on cpu"),
        ("flash9", "no attention backend called 'flash9'"),
    ],
)
def test_a_name_that_cannot_run_is_refused_with_the_reason(wanted: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        choose_backend(wanted, CPU, torch.bfloat16, must_not_be_asked)

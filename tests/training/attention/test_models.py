"""What models tell of their segments is true, and a run attends by what it has chosen."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from lake import Lake
from loader.batch import PackedBatch
from packing.plan import Plan
from tests.training.batches import TINY, make_spans, pack, policy_spec
from tests.training.models.gr00t_model import groot_pack
from tests.training.models.gr00t_model import small_policy as small_gr00t
from tests.training.models.pi05_model import small_policy as small_pi05
from tests.training.plans import train_config
from training.attention import choose, varlen
from training.attention.backend import Backend
from training.attention.calls import calls_of
from training.attention.per_segment import SDPA, attend
from training.attention.segments import Segments
from training.errors import ConfigError
from training.loop import train
from training.models.film.model import FilmPolicy
from training.models.policy_model import PolicyModel
from training.padded import PadTo, padded_batches

Planned = tuple[Lake, Plan]
Make = tuple[PolicyModel, Callable[..., PackedBatch[Tensor]]]


def film() -> Make:
    return FilmPolicy(TINY, policy_spec()), pack


def pi05() -> Make:
    return small_pi05(), pack


def gr00t() -> Make:
    return small_gr00t(), groot_pack


@pytest.mark.parametrize("make", [film, pi05, gr00t])
def test_models_tell_how_many_queries_and_keys_there_are(make: Callable[[], Make]) -> None:
    """So that nothing waits for the device to learn it."""
    model, make_pack = make()
    packed = make_pack(make_spans(7, seed=3), pad=5)
    for batch in (packed, *padded_batches(packed, 4, PadTo())):
        calls = calls_of(lambda batch=batch: model(batch))  # type: ignore[misc]
        assert calls
        for call in calls:
            segments = call.segments
            assert (segments.total_q, segments.total_k) == (call.q_shape[0], call.k_shape[0])
            assert int(segments.cu_seqlens_q[-1]) == segments.total_q
            assert int(segments.cu_seqlens_k[-1]) == segments.total_k


def header(out: Path) -> dict[str, Any]:
    """What a run wrote down first."""
    first: dict[str, Any] = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
    return first


def test_a_run_writes_down_what_it_attends_by(planned: Planned, tmp_path: Path) -> None:
    lake, plan = planned
    train(lake, plan, tmp_path, train_config(steps=1))
    found = header(tmp_path)["attention"]
    assert found["backend"] == "sdpa"
    assert found["refused"].keys() == varlen.BACKENDS.keys() - {"sdpa"}


def test_a_run_attends_by_the_quickest_and_trains_on_the_batch_that_it_measured(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, plan = planned
    plain = train(lake, plan, tmp_path / "plain", train_config(steps=2))
    calls = {"quick": 0, "slow": 0}
    clock = {"now": 0.0}

    def backend(name: str, ms: float) -> Backend:
        def attend_by(q: Tensor, k: Tensor, v: Tensor, segments: Segments) -> Tensor:
            calls[name] += 1
            clock["now"] += ms
            return attend(q, k, v, segments)

        return Backend(name=name, unfit=SDPA.unfit, load=lambda: attend_by, prepare=SDPA.prepare)

    offered = {"slow": backend("slow", 2.0), "quick": backend("quick", 1.0)}
    monkeypatch.setattr(varlen, "BACKENDS", offered)
    monkeypatch.setattr(choose, "BACKENDS", offered)
    monkeypatch.setattr(choose, "_now_ms", lambda _: clock["now"])
    chosen = train(lake, plan, tmp_path / "chosen", train_config(steps=2))
    assert header(tmp_path / "chosen")["attention"]["backend"] == "quick"
    assert calls["quick"] > calls["slow"] > 0
    assert plain.last is not None
    assert chosen.last is not None
    assert (chosen.last.loss, chosen.last.tokens) == (plain.last.loss, plain.last.tokens)


def test_a_backend_that_cannot_run_ends_the_run_before_it_begins(
    planned: Planned, tmp_path: Path
) -> None:
    lake, plan = planned
    config = dataclasses.replace(train_config(steps=1), attention="flash3")
    with pytest.raises(ConfigError, match="flash3 cannot be used: runs on CUDA devices only"):
        train(lake, plan, tmp_path, config)
    assert not (tmp_path / "metrics.jsonl").exists()

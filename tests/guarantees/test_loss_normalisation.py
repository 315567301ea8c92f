"""Guarantee: the loss is a mean over all action values of a step, however they are spread."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from loader.batch import PackedBatch
from tests.training.batches import TINY, make_spans, pack, policy_spec
from tests.training.gradients_worker import (
    CASES,
    MODELS,
    STRATEGIES,
    gradients,
    packs_of,
    world_size_of,
)
from training.distributed import Ranks
from training.loss import flow_matching_loss
from training.models.film.model import FilmPolicy

_ROOT = Path(__file__).resolve().parents[2]
_ALONE = Ranks(rank=0, world_size=1, device=torch.device("cpu"))

Gradients = dict[str, torch.Tensor]


def assert_close(one: Gradients, other: Gradients) -> None:
    assert one.keys() == other.keys()
    largest = max(float(g.abs().max()) for g in one.values())
    for name, gradient in one.items():
        assert float((gradient - other[name]).abs().max()) <= 1e-6 * largest, name


@pytest.fixture(scope="module", params=[2, 4])
def of_ranks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Gradients]]]:
    """Model and strategy -> what each rank found, for the strategies of a world size."""
    world_size = request.param
    folder = tmp_path_factory.mktemp("ranks")
    outs = [folder / f"rank{rank}.pt" for rank in range(world_size)]
    workers = [
        subprocess.Popen(
            [
                sys.executable, "-m", "tests.training.gradients_worker",
                str(rank), str(world_size), str(folder / "rendezvous"), str(out),
            ],
            cwd=_ROOT,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank, out in enumerate(outs)
    ]  # fmt: skip
    errors = [worker.communicate(timeout=240)[1].decode() for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * world_size, "\n".join(errors)
    found = [torch.load(out, weights_only=True) for out in outs]
    return {name: [rank[name] for rank in found] for name in found[0]}


def test_every_strategy_is_tried() -> None:
    assert {world_size_of(name) for name in STRATEGIES} == {2, 4}


@pytest.mark.parametrize("case", CASES)
def test_ranks_have_the_gradients_of_one(
    of_ranks: dict[str, list[dict[str, Gradients]]], case: str
) -> None:
    alone = {model: gradients(case, _ALONE, model=model) for model in MODELS}
    for name, ranks in of_ranks.items():
        for rank in ranks:
            assert_close(alone[name.partition(":")[0]], rank[case])


@pytest.mark.parametrize("case", CASES)
def test_ranks_agree_to_the_bit(of_ranks: dict[str, list[dict[str, Gradients]]], case: str) -> None:
    for ranks in of_ranks.values():
        one, *others = (rank[case] for rank in ranks)
        for other in others:
            assert all(torch.equal(gradient, other[name]) for name, gradient in one.items())


def global_mean(batch: PackedBatch[torch.Tensor]) -> Gradients:
    torch.manual_seed(0)
    model = FilmPolicy(TINY, policy_spec())
    torch.autograd.backward(flow_matching_loss(model(batch), batch) / batch.num_action_items)
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_accumulated_packs_have_the_gradients_of_one_pack() -> None:
    spans = make_spans(24, seed=11)
    assert_close(global_mean(pack(spans)), gradients("unequal", _ALONE))


def test_mean_of_means_would_be_wrong() -> None:
    """The trap that the global count avoids: the cases above do tell the two apart."""
    torch.manual_seed(0)
    model = FilmPolicy(TINY, policy_spec())
    packs = packs_of("unequal")
    for batch in packs:
        mean = flow_matching_loss(model(batch), batch) / batch.num_action_items
        torch.autograd.backward(mean / len(packs))
    right = gradients("unequal", _ALONE)
    off = [p.grad - right[name] for name, p in model.named_parameters() if p.grad is not None]
    error = torch.cat([g.flatten() for g in off]).norm()
    assert float(error / torch.cat([g.flatten() for g in right.values()]).norm()) > 0.05

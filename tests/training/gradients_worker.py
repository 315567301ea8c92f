"""One rank of a step that several share, its gradients saved to a file.

`python -m tests.training.gradients_worker RANK WORLD_SIZE RENDEZVOUS_FILE OUT`
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from loader.batch import PackedBatch
from tests.training.batches import TINY, make_spans, pack, policy_spec
from tests.training.models import gr00t_model, pi05_model
from training.config import DistributedConfig
from training.distributed import Ranks
from training.loop import _backward
from training.loss import flow_matching_loss, scale_gradients, sum_over_ranks
from training.models.film.model import FilmPolicy
from training.models.policy_model import PolicyModel
from training.parallel import share, whole

STRATEGIES = {
    "ddp": DistributedConfig(),
    "fsdp2": DistributedConfig(strategy="fsdp2"),
    "hsdp": DistributedConfig(strategy="hsdp", shard_size=2),
    "ddp, checkpointed": DistributedConfig(activation_checkpointing="blocks"),
    "fsdp2, checkpointed": DistributedConfig(strategy="fsdp2", activation_checkpointing="blocks"),
}
_ALONE = STRATEGIES["ddp"]
MODELS: dict[str, Callable[[], PolicyModel]] = {
    "film": lambda: FilmPolicy(TINY, policy_spec()),
    "pi05": pi05_model.small_policy,
    # Without future tokens, which these packs do not hold.
    "gr00t": lambda: gr00t_model.small_policy(gr00t_model.groot_spec(future=0)),
}
CASES = ("unequal", "fewer slots than ranks need", "a rank without pictures")


def world_size_of(strategy: str) -> int:
    """Ranks that try it: two, or two pairs that share shards."""
    return 4 if STRATEGIES[strategy].strategy == "hsdp" else 2


def packs_of(case: str) -> list[PackedBatch[torch.Tensor]]:
    """The slots of one step, with unequal numbers of spans."""
    spans = make_spans(24, seed=11)
    blind = [span for span in make_spans(150, seed=12) if not span.images][:5]
    assert len(blind) == 5
    if case == "unequal":
        return [pack(spans[:2]), pack(spans[2:13]), pack(spans[13:14]), pack(spans[14:], pad=3)]
    if case == "fewer slots than ranks need":
        return [pack(spans[:7]), pack(spans[7:9]), pack(spans[9:])]
    return [pack(spans[:9]), pack(blind[:2]), pack(spans[9:12]), pack(blind[2:])]


def packs_of_rank(
    slots: list[PackedBatch[torch.Tensor]], rank: int, world_size: int
) -> list[PackedBatch[torch.Tensor]]:
    """Slots rank, rank + world_size, ...; an empty pack where there is none."""
    per_rank = -(-len(slots) // world_size)
    mine = slots[rank::world_size]
    return mine + [pack([], pad=4)] * (per_rank - len(mine))


def gradients(
    case: str, ranks: Ranks, config: DistributedConfig = _ALONE, *, model: str = "film"
) -> dict[str, torch.Tensor]:
    """Gradients of the global mean, as the loop makes them."""
    torch.manual_seed(0)
    shared = share(MODELS[model](), config, ranks)
    packs = packs_of_rank(packs_of(case), ranks.rank, ranks.world_size)
    _backward(shared, packs, flow_matching_loss, ranks)
    (items,) = sum_over_ranks([sum(p.num_action_items for p in packs)], ranks.device)
    scale_gradients(shared.model, items=int(items), world_size=ranks.world_size)
    found = {name: p.grad for name, p in shared.model.named_parameters()}
    missing = [name for name, gradient in found.items() if gradient is None]
    assert not missing, missing
    return whole({name: gradient for name, gradient in found.items() if gradient is not None})


def main() -> None:
    """Join the others, make a step of each case, save."""
    rank, world_size = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{sys.argv[3]}", rank=rank, world_size=world_size
    )
    ranks = Ranks(rank=rank, world_size=world_size, device=torch.device("cpu"))
    found = {
        f"{model}: {name}": {case: gradients(case, ranks, config, model=model) for case in CASES}
        for model in MODELS
        for name, config in STRATEGIES.items()
        if world_size == world_size_of(name)
    }
    torch.save(found, Path(sys.argv[4]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

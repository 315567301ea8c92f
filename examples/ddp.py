"""DDP without a framework: each rank streams its share of every step, the loss is a global mean.

torchrun --nproc-per-node 2 -m examples.ddp robots.lake --steps 100
"""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from examples.packed_policy import PackedPolicy
from loader import PackLoader, on_device
from packing.window_spans import WindowSpans

HORIZON = 8
SLOTS = 4  # packs of a step over all ranks: the most ranks that can take part


def train(lake: str, *, steps: int, episodes: str | None = None) -> list[float]:
    """Train on this rank; the losses, which are those of all ranks together, are alike on each."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    loader = PackLoader.from_episodes(
        lake,
        episodes,
        budget_tokens=512,
        spans=WindowSpans(horizon=HORIZON),
        slots_per_step=SLOTS,
        epochs=10,
        rank=rank,
        world_size=world_size,
    )
    policy = DistributedDataParallel(PackedPolicy(loader.plan.header, HORIZON).to(device))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    losses = []
    sums = torch.zeros(2, dtype=torch.float64, device=device)  # of errors, and of action values
    with loader:
        for number, batch in enumerate(on_device(loader, device), 1):
            last_of_step = number % loader.packs_per_step == 0
            # Gradients are exchanged once per step. Every rank has as many packs in it as any
            # other: where its slots run out it gets packs without spans.
            with contextlib.nullcontext() if last_of_step else policy.no_sync():
                summed = policy(batch)
                summed.backward()
            sums += torch.stack([summed.detach().double(), sums.new_tensor(batch.num_action_items)])
            if not last_of_step:
                continue
            dist.all_reduce(sums)
            error, values = sums.tolist()
            for parameter in policy.parameters():
                if parameter.grad is not None:
                    # DDP has averaged sums over ranks: make it the mean over all action values.
                    parameter.grad *= world_size / max(values, 1)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(error / max(values, 1))
            sums.zero_()
            if rank == 0:
                print(f"step {loader.next_step}  loss {losses[-1]:.4f}", flush=True)
            if loader.next_step >= steps:
                break
    return losses


def main() -> None:
    """Read the command line; torchrun sets the rest."""
    parser = argparse.ArgumentParser(description="DDP on packed batches.")
    parser.add_argument("lake")
    parser.add_argument("--episodes", help="a condition such as: num_steps > 30")
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        train(**vars(options))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

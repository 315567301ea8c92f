"""A plain torch loop on packed batches: stop it at any moment, start it again, and it goes on.

python -m examples.plain_torch robots.lake --steps 200 --out run.pt
"""

import argparse
from pathlib import Path

import torch

from examples.packed_policy import PackedPolicy
from loader import PackLoader
from packing.window_spans import WindowSpans

HORIZON = 8


def train(
    lake: str, *, steps: int, out: Path, episodes: str | None = None, save_every: int = 10
) -> list[float]:
    """Train until `steps` training steps are done, from the checkpoint `out` where there is one.

    Returns:
        The loss of each step done now: mean squared error per normalised action value.
    """
    torch.manual_seed(0)
    # Planned in memory. `headrace pack` plans once, on disk: PackLoader(lake, "name").
    loader = PackLoader.from_episodes(
        lake,
        episodes,
        budget_tokens=512,
        spans=WindowSpans(horizon=HORIZON),
        slots_per_step=2,
        epochs=10,
    )
    policy = PackedPolicy(loader.plan.header, HORIZON)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    if out.exists():
        saved = torch.load(out, weights_only=True)
        policy.load_state_dict(saved["policy"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])  # the data go on where the weights were
    losses = []
    total, values, packs = 0.0, 0, 0
    with loader:
        for batch in loader if loader.next_step < steps else ():
            summed = policy(batch)
            summed.backward()  # a sum: packs of a step differ in how many actions they hold
            total += summed.item()
            values += batch.num_action_items
            packs += 1
            if packs < loader.packs_per_step:
                continue
            for parameter in policy.parameters():
                if parameter.grad is not None:
                    parameter.grad /= max(values, 1)  # the mean over all action values of the step
            optimizer.step()
            optimizer.zero_grad()
            losses.append(total / max(values, 1))
            print(f"step {loader.next_step}  loss {losses[-1]:.4f}")
            total, values, packs = 0.0, 0, 0
            if loader.next_step % save_every == 0 or loader.next_step >= steps:
                state = {"policy": policy.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "loader": loader.state_dict()}, out.with_suffix(".tmp"))
                out.with_suffix(".tmp").replace(out)  # whole or not at all
            if loader.next_step >= steps:
                break
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A plain torch loop on packed batches.")
    parser.add_argument("lake")
    parser.add_argument("--episodes", help="a condition such as: num_steps > 30")
    parser.add_argument("--steps", type=int, default=50, help="training steps in all")
    parser.add_argument("--out", type=Path, default=Path("plain_torch.pt"), help="the checkpoint")
    options = parser.parse_args()
    train(**vars(options))

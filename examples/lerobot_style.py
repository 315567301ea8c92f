"""The way LeRobot trains a policy, on samples from a lake: same dictionaries, same padding flags.

python -m examples.lerobot_style robots.lake --steps 100
"""

import argparse
import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from loader import Window

CHUNK = 16


class ChunkPolicy(nn.Module):
    """`forward(batch)` gives the loss and what to log, as policies of LeRobot do."""

    mean: Tensor
    std: Tensor

    def __init__(self, window: Window, state: str, action: str, width: int = 64) -> None:
        super().__init__()
        self.state, self.action_key = state, action
        self.cameras = window.meta.camera_keys
        stats = window.stats[action]
        self.register_buffer("mean", torch.from_numpy(stats["mean"]).float())
        self.register_buffer("std", torch.from_numpy(stats["std"]).float().clamp(min=1e-3))
        (states,) = window.features[state]["shape"]
        (actions,) = window.features[action]["shape"]
        self.see = nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.look = nn.Linear(16, width)
        self.feel = nn.Linear(states, width)
        self.act = nn.Sequential(nn.ReLU(), nn.Linear(width, CHUNK * actions))

    def forward(self, batch: dict[str, Any]) -> tuple[Tensor, dict[str, float]]:
        """The mean squared error of the chunk's real steps."""
        context = self.feel(batch[self.state])
        for camera in self.cameras:
            context = context + self.look(self.see(batch[camera]).flatten(1))
        wanted = (batch[self.action_key] - self.mean) / self.std
        error = (self.act(context).reshape(wanted.shape) - wanted).square()
        real = ~batch[f"{self.action_key}_is_pad"][..., None]
        # Divided by what is real: a mean over padded chunks would depend on where episodes end.
        loss = (error * real).sum() / (real.sum() * error.shape[-1]).clamp(min=1)
        return loss, {"real_steps": float(real.float().mean())}


def train(
    lake: str,
    *,
    steps: int,
    episodes: str | None = None,
    state: str = "observation.state",
    action: str = "action",
    batch_size: int = 16,
    num_workers: int = 0,
) -> list[float]:
    """Train; returns the loss of each step."""
    torch.manual_seed(0)
    fps = Window(lake, episodes=episodes, keys=[action]).fps
    window = Window(
        lake,
        delta_timestamps={action: [i / fps for i in range(CHUNK)]},
        episodes=episodes,
        image_size=(64, 64),
    )
    loader = DataLoader(
        window,
        batch_size=batch_size,
        shuffle=True,
        num_workers=num_workers,
        multiprocessing_context="forkserver" if num_workers else None,
        pin_memory=torch.cuda.is_available(),
        drop_last=len(window) > batch_size,
    )
    policy = ChunkPolicy(window, state, action)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    losses = []
    epochs = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, batch in enumerate(itertools.islice(epochs, steps), 1):
        loss, log = policy(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        print(f"step {step}  loss {losses[-1]:.4f}  real steps {log['real_steps']:.0%}")
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train as LeRobot does, from a lake.")
    parser.add_argument("lake")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--episodes", help="a condition such as: num_steps > 30")
    parser.add_argument("--state", default="observation.state", help="key of the state")
    parser.add_argument("--action", default="action", help="key of the actions")
    parser.add_argument("--num-workers", type=int, default=0)
    options = parser.parse_args()
    train(**vars(options))

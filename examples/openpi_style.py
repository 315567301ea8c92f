"""The dictionaries that openpi's models take, on samples from a lake of several robots.

python -m examples.openpi_style robots.lake --steps 100
"""

import argparse
import functools
import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from loader import Window
from loader.windows.collate import collate_padded

SLOTS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
HORIZON, DIM, SIZE = 16, 32, (224, 224)


def openpi_batch(
    batch: Mapping[str, Any], *, cameras: Mapping[str, str], state: str, action: str
) -> dict[str, Any]:
    """A padded batch as openpi has it.

    `image` is uint8 [B, h, w, 3] and `image_mask` bool [B] per slot, `state` float32 [B, 32],
    `actions` float32 [B, 16, 32], `prompt` B texts (its transforms make `tokenized_prompt` and
    `tokenized_prompt_mask` of them). openpi has no mask for actions: `action_is_pad` and
    `action_dim_mask` are here so that the loss can leave out what no robot did.
    """
    size = len(batch[state])
    blank, absent = torch.zeros(size, *SIZE, 3, dtype=torch.uint8), torch.zeros(size).bool()
    taken = {slot: cameras[slot] for slot in SLOTS if slot in cameras}
    return {
        "image": {s: batch[taken[s]].movedim(1, -1) if s in taken else blank for s in SLOTS},
        "image_mask": {s: batch[f"{taken[s]}_mask"] if s in taken else absent for s in SLOTS},
        "state": batch[state],
        "actions": batch[action],
        "prompt": batch["task"],
        "action_is_pad": batch[f"{action}_is_pad"],
        "action_dim_mask": batch.get(f"{action}_mask", torch.ones(size, DIM).bool()),
    }


class FlowModel(nn.Module):
    """A velocity field over action chunks, with openpi's arguments and a toy's insides."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(3, 16, 32, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.look, self.feel = nn.Linear(16, width), nn.Linear(DIM, width)
        self.mix, self.flow = nn.Linear(width + DIM + 1, width), nn.Linear(width, DIM)

    def forward(self, batch: Mapping[str, Any]) -> Tensor:
        """The mean flow-matching error over real action values."""
        context = self.feel(batch["state"])
        for slot, pixels in batch["image"].items():
            seen = self.look(self.see(pixels.movedim(-1, 1) / 127.5 - 1).flatten(1))
            context = context + seen * batch["image_mask"][slot][:, None]
        actions = batch["actions"]
        noise, time = torch.randn_like(actions), torch.rand(len(actions), 1, 1)
        noisy = time * noise + (1 - time) * actions
        context = context[:, None].expand(-1, HORIZON, -1)
        mixed = self.mix(torch.cat([context, noisy, time.expand(-1, HORIZON, 1)], -1))
        velocity = self.flow(mixed.relu())
        real = ~batch["action_is_pad"][..., None] & batch["action_dim_mask"][:, None]
        error = (velocity - (noise - actions)).square()
        loss: Tensor = (error * real).sum() / real.sum().clamp(min=1)
        return loss


def train(
    lake: str,
    *,
    steps: int,
    episodes: str | None = None,
    state: str = "observation.state",
    action: str = "action",
    batch_size: int = 8,
) -> list[float]:
    """Train; returns the loss of each step."""
    torch.manual_seed(0)
    window = Window(
        lake,
        delta_steps={action: range(HORIZON)},
        episodes=episodes,
        image_size=SIZE,
        image_dtype="uint8",
    )
    keys = window.padded_keys(dims={state: DIM, action: DIM})
    # Which camera sees what, no recording says: a real configuration names them.
    cameras = dict(zip(SLOTS, window.meta.camera_keys, strict=False))
    print("cameras:", cameras)
    collate = functools.partial(collate_padded, keys=keys)
    loader = DataLoader(window, batch_size=batch_size, shuffle=True, collate_fn=collate)
    model = FlowModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    epochs = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, batch in enumerate(itertools.islice(epochs, steps), 1):
        loss = model(openpi_batch(batch, cameras=cameras, state=state, action=action))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        print(f"step {step}  loss {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train on openpi's dictionaries, from a lake.")
    parser.add_argument("lake")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--episodes", help="a condition such as: num_steps > 30")
    parser.add_argument("--state", default="observation.state", help="key of the state")
    parser.add_argument("--action", default="action", help="key of the actions")
    options = parser.parse_args()
    train(**vars(options))

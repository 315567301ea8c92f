"""Where a rank stands in a plan: steps, slots, positions.

The plan fixes what step `s` eats: S slots, one pack each. Rank r of w takes slots r, r + w, ... of
every step. Where w does not divide S, the last ranks lack a slot; they take an empty pack there,
so that every rank hands out the same number of packs per step and none waits for another.

A *position* counts the packs of one rank from the plan's begin: position = step * packs_per_step +
micro, with micro the rank's how-manieth pack of the step.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, SupportsIndex

from loader.errors import LoaderError, LoaderStateError

STATE_LAYOUT_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class Place:
    """One pack of one rank: its step, its slot (>= S where the rank has none), its rank's count."""

    position: int
    step: int
    slot: int
    last_of_step: bool


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """The packs of one rank, in order.

    Attributes:
        plan_hash: the plan.
        ancestors: hashes of the plans that it continues, whose positions are its own.
        num_steps: steps of all epochs.
        slots_per_step: S.
        rank, world_size: which slots are ours.
    """

    plan_hash: str
    num_steps: int
    slots_per_step: int
    rank: int
    world_size: int
    ancestors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise LoaderError(
                f"rank {self.rank} of world size {self.world_size}: rank must be in"
                f" [0, {self.world_size})"
            )
        if self.world_size > self.slots_per_step:
            raise LoaderError(
                f"world size {self.world_size} but the plan's steps have {self.slots_per_step}"
                f" slots: use at most {self.slots_per_step} ranks, or make a plan with"
                f" slots_per_step >= {self.world_size}"
            )

    @property
    def packs_per_step(self) -> int:
        """Packs (micro-batches) that every rank hands out per step."""
        return -(-self.slots_per_step // self.world_size)

    @property
    def last_slot(self) -> int:
        """Slot of this rank's last pack of every step."""
        return self.rank + (self.packs_per_step - 1) * self.world_size

    def place(self, position: int) -> Place:
        """The pack at a position."""
        step, micro = divmod(position, self.packs_per_step)
        return Place(
            position=position,
            step=step,
            slot=self.rank + micro * self.world_size,
            last_of_step=micro == self.packs_per_step - 1,
        )

    def blocks(
        self, first_step: int, packs: int, *, worker: int = 0, num_workers: int = 1
    ) -> Iterator[range]:
        """Positions from `first_step` to the end in blocks, those of one worker of several.

        Block j belongs to worker j % num_workers: a worker keeps what neighbouring packs share,
        and the order of blocks is known without asking.
        """
        begin, end = first_step * self.packs_per_step, self.num_steps * self.packs_per_step
        for start in range(begin + worker * packs, end, packs * num_workers):
            yield range(start, min(start + packs, end))

    def state(self, next_step: int) -> dict[str, Any]:
        """The position as a state dict: the same on every rank, for any world size."""
        return {
            "plan_hash": self.plan_hash,
            "next_step": next_step,
            "layout_version": STATE_LAYOUT_VERSION,
        }

    def next_step(self, state: Mapping[str, Any]) -> int:
        """The step at which a state dict says to go on.

        Raises:
            LoaderStateError: it is of another plan or layout, or not a state at all.
        """
        if set(state) != {"plan_hash", "next_step", "layout_version"}:
            raise LoaderStateError(
                f"not a loader state: it has the keys {sorted(state)}; pass what state_dict() gave"
            )
        if state["layout_version"] != STATE_LAYOUT_VERSION:
            raise LoaderStateError(
                f"loader state of layout {state['layout_version']}, this Headrace reads"
                f" {STATE_LAYOUT_VERSION}: resume with the Headrace that wrote it"
            )
        if state["plan_hash"] not in {self.plan_hash, *self.ancestors}:
            raise LoaderStateError(
                f"loader state of plan {state['plan_hash']}, but this loader streams plan"
                f" {self.plan_hash}: load that plan, or start from step 0"
            )
        next_step = state["next_step"]
        # Checkpoints may give an integer back as one of numpy or torch.
        if not isinstance(next_step, SupportsIndex) or not 0 <= int(next_step) <= self.num_steps:
            raise LoaderStateError(
                f"loader state points at step {next_step!r} of {self.num_steps}: it is damaged"
            )
        return int(next_step)

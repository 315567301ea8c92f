"""Windows: what shuffling costs, in decoded frames and in frames kept, over the open runs."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from packing.arrange import Arrangement, arrange
from packing.draw import enough_open_runs
from packing.measure import run_steps
from packing.runs import RUN_LENGTH, cut_runs, runs_of
from packing.settings import PlanSettings
from packing.shuffle_quality import WINDOWS_OF_STEPS, episode_diversity, near_duplicates
from packing.spans import Int64s
from tools.bench.packing_data import Windows
from tools.bench.packing_decode import Decoding, look_ahead_packs, simulate

BUDGET: Final = 32 * 592  # so that a pack holds 32 windows
OPEN_RUNS: Final = (64, 128, 256, 512, 1024, 2048, 4096)
RANKS: Final = (1, 8, 64)
_FRAME_BYTES: Final = 640 * 480 * 3 // 2


@dataclass(frozen=True, kw_only=True)
class WindowPlan:
    """One way to draw the windows, and what it is worth and costs.

    Attributes:
        order: `runs`, or what is compared with: runs in `one lane`, and every window by itself
            (`shuffled`).
        slots: packs of 32 windows per step.
        open_runs: runs drawn from at the same time.
        lanes: see `packing.lanes`.
        chosen: whether the planner would choose it.
        padding: share of the slots' budget that holds no token.
        shuffle: k -> Q_k, see `packing.shuffle_quality`.
        near_duplicates: likewise.
        run_steps: steps from first to last use of a run, for 90 % of the runs.
        decoding: ranks -> what their decoders do; ranks up to the slots.
        cameras: that show a frame in each window.
        plan_s: seconds to arrange it.
    """

    order: str
    slots: int
    open_runs: int
    lanes: int
    chosen: bool
    padding: float
    shuffle: dict[int, float]
    near_duplicates: float
    run_steps: int
    decoding: dict[int, Decoding]
    cameras: int
    plan_s: float


def frontier(
    data: Windows, *, slots: Sequence[int], open_runs: Sequence[int]
) -> Iterator[WindowPlan]:
    """Plan the same windows with ever more open runs.

    To compare with, the planner's choice without lanes, and each window drawn by itself.
    """
    spans = data.spans
    runs = runs_of(spans, cut_runs(data.groups, data.step_offsets, RUN_LENGTH), data.step_offsets)
    alone = np.arange(len(spans))
    for count in slots:
        chosen = enough_open_runs(count * BUDGET / float(spans.tokens.mean()))
        for number in sorted({*open_runs, chosen}):
            plan = _plan(data, runs, "runs", _settings(count, number))
            yield replace(plan, chosen=number == chosen)
        if count > 1:
            yield _plan(data, runs, "one lane", _settings(count, chosen, lanes=1))
        yield _plan(data, alone, "shuffled", _settings(count, len(spans), lanes=1))


def _settings(slots: int, open_runs: int, lanes: int | None = None) -> PlanSettings:
    return PlanSettings(
        budget_tokens=BUDGET, slots_per_step=slots, open_runs=open_runs, lanes=lanes
    )


def _plan(data: Windows, runs: Int64s, order: str, settings: PlanSettings) -> WindowPlan:
    slots = settings.slots_per_step
    begin = time.perf_counter()
    arrangement = arrange(data.spans, runs, settings)
    plan_s = time.perf_counter() - begin
    packing = arrangement.packing
    step = arrangement.span_slots() // slots
    episode = data.spans.episode[packing.items].astype(np.int64)
    stop = data.spans.stop[packing.items].astype(np.int64)
    used_within = run_steps(runs, arrangement, slots)
    return WindowPlan(
        order=order,
        slots=slots,
        open_runs=settings.open_runs or 0,
        lanes=arrangement.settings.lanes or 1,
        chosen=False,
        padding=1 - int(packing.sum(data.spans.tokens).sum()) / (len(packing) * BUDGET),
        shuffle=episode_diversity(step, episode, settings.seed),
        near_duplicates=near_duplicates(step, episode, stop),
        run_steps=used_within,
        decoding={
            ranks: decode(data, arrangement, slots, ranks, used_within)
            for ranks in RANKS
            if ranks <= slots
        },
        cameras=data.cameras,
        plan_s=plan_s,
    )


def decode(
    data: Windows, arrangement: Arrangement, slots: int, ranks: int, used_within: int
) -> Decoding:
    """What decoders of `ranks` ranks do for one camera, runs being used within so many steps."""
    items = arrangement.packing.items
    episode = data.spans.episode[items].astype(np.int64)
    shown = data.spans.stop[items].astype(np.int64) - 1
    longest = int(shown.max()) + 1
    gop = data.gop[episode]
    images_per_pack = len(items) * data.cameras / len(arrangement.packing)
    return simulate(
        slot_row=arrangement.span_slots(),
        frame=episode * longest + shown,
        key=episode * longest + shown // gop * gop,
        slots=slots,
        ranks=ranks,
        look_ahead=look_ahead_packs(used_within, slots // ranks, images_per_pack),
    )


def row_of(plan: WindowPlan) -> dict[str, Any]:
    """A line of the table; `-` where there are fewer slots than ranks, or fewer than k steps."""
    row: dict[str, Any] = {
        "order": plan.order,
        "slots": plan.slots,
        "open runs": plan.open_runs,
        "lanes": plan.lanes,
        "chosen": "yes" if plan.chosen else "-",
        **{
            f"Q{k}": round(plan.shuffle[k], 4) if k in plan.shuffle else "-"
            for k in WINDOWS_OF_STEPS
        },
        "near-duplicates": round(plan.near_duplicates, 4),
        "run steps": plan.run_steps,
    }
    for ranks in RANKS:
        found = plan.decoding.get(ranks)
        row[f"decoded/wanted, {ranks}"] = round(found.decoded_per_wanted, 3) if found else "-"
    for ranks in RANKS:
        found = plan.decoding.get(ranks)
        row[f"GB kept, {ranks}"] = (
            round(found.held_frames * plan.cameras * _FRAME_BYTES / 1e9, 3) if found else "-"
        )
    return {**row, "padding": round(plan.padding, 4), "seconds": round(plan.plan_s, 2)}

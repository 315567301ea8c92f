"""The figures of a plan derived again from its tables and their definitions, span by span."""

import math
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lake import Lake
from packing.arrange import arrange
from packing.make_plan import make_plan
from packing.measure import run_steps
from packing.plan import Plan
from packing.seeded import STREAM_REFERENCE, permutation
from packing.settings import PlanSettings
from packing.spans import SpanMaker
from packing.trajectory_spans import TrajectorySpans
from packing.window_spans import WindowSpans
from tests.packing.synthetic import runs_of_steps, spans_of_lengths
from tests.packing.test_bounds import by_definition

SLOTS = 4
NEAR = 8


@pytest.fixture(
    params=[
        (WindowSpans(horizon=4, history=2), {"max_images": 12}),
        (WindowSpans(horizon=9, tail="pad"), {"lanes": 2, "max_spans": 5, "open_runs": 3}),
        (TrajectorySpans(max_steps=6), {"max_action_queries": 15}),
        (WindowSpans(horizon=4), {"packer": "bfd"}),
    ],
    ids=["windows", "lanes", "trajectories", "bfd"],
)
def plan(ten: Lake, request: pytest.FixtureRequest) -> Plan:
    maker, changes = request.param
    return planned(ten, maker, **changes)


def planned(lake: Lake, maker: SpanMaker, **changes: Any) -> Plan:
    return make_plan(
        lake, spans=maker, budget_tokens=256, slots_per_step=SLOTS, epochs=2, d_model=64, **changes
    )


def packs_of(plan: Plan) -> list[list[dict[str, int]]]:
    """The spans of each slot."""
    columns = ("span_id", "episode", "stop", "images", "prefix_tokens", "action_tokens")
    return [
        [
            dict(zip(columns, span, strict=True)) | {"epoch": row["epoch"], "step": row["step"]}
            for span in zip(*(row[name] for name in columns), strict=True)
        ]
        for row in plan.packs.to_pylist()
    ]


def length(span: dict[str, int]) -> int:
    return span["prefix_tokens"] + span["action_tokens"]


def test_padding_and_empty_slots(plan: Plan) -> None:
    packs = packs_of(plan)
    real = sum(length(span) for pack in packs for span in pack)
    assert plan.header.quality.padding == pytest.approx(1 - real / (256 * len(packs)))
    assert plan.header.quality.empty_slots == sum(not pack for pack in packs)


def test_max_over_mean(plan: Plan) -> None:
    cost = [
        sum(length(span) for span in pack)
        + Fraction(sum(length(span) ** 2 for span in pack), 6 * 64)
        for pack in packs_of(plan)
    ]
    steps = [cost[at : at + SLOTS] for at in range(0, len(cost), SLOTS)]
    full = [step for step in steps if all(step)]
    assert full
    for world in (1, 2, 4):
        ranks = [[sum(step[rank::world]) for rank in range(world)] for step in full]
        lasts = sum(max(step) for step in ranks)
        mean = sum(Fraction(sum(step), world) for step in ranks)
        assert plan.header.quality.max_over_mean[world] == pytest.approx(float(lasts / mean))


def test_certificate(plan: Plan) -> None:
    settings, found = plan.header.settings, []
    for epoch in range(2):
        filled = [pack for pack in packs_of(plan) if pack and pack[0]["epoch"] == epoch]
        spans = [span for pack in filled for span in pack]
        bounds = {"tokens": by_definition([length(span) for span in spans], 256)}
        for name, sizes, cap in (
            ("images", [span["images"] for span in spans], settings.max_images),
            ("action_queries", [s["action_tokens"] for s in spans], settings.max_action_queries),
            ("spans", [1] * len(spans), settings.max_spans),
        ):
            if cap is not None:
                bounds[name] = by_definition(sizes, cap)
        found.append((Fraction(len(filled), max(bounds.values())), len(filled), bounds))
    _, packs, bounds = max(found, key=lambda epoch: epoch[0])
    said = plan.header.certificate
    assert (said.packs, said.bounds) == (packs, bounds)
    assert said.bound == bounds[said.binding] == max(bounds.values())


def test_shuffle_near_duplicates_and_reads(plan: Plan) -> None:
    spans = [span for pack in packs_of(plan) for span in pack]
    episodes = [span["episode"] for span in spans]
    uniform = [episodes[at] for at in permutation(len(spans), 0, STREAM_REFERENCE).tolist()]

    def variety(of: list[int], k: int) -> float:
        """Mean of exp(entropy) over whole windows of k steps."""
        windows: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for span, episode in zip(spans, of, strict=True):
            if span["step"] // k < plan.num_steps // k:
                windows[span["step"] // k][episode] += 1
        means = []
        for counts in windows.values():
            shares = [count / counts.total() for count in counts.values()]
            means.append(math.exp(-sum(share * math.log(share) for share in shares)))
        return sum(means) / len(means)

    quality = plan.header.quality
    assert list(quality.shuffle) == [k for k in (1, 4, 16, 64) if k <= plan.num_steps]
    for k, ours in quality.shuffle.items():
        assert ours == pytest.approx(variety(episodes, k) / variety(uniform, k))

    by_read: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for span in spans:
        by_read[span["step"], span["episode"]].append(span["stop"])
    near = sum(
        any(at != other and abs(stops[at] - stops[other]) < NEAR for other in range(len(stops)))
        for stops in by_read.values()
        for at in range(len(stops))
    )
    assert quality.near_duplicates == pytest.approx(near / len(spans))
    assert quality.reads_per_span == pytest.approx(len(by_read) / len(spans))


def test_length_bias(plan: Plan) -> None:
    packs = [[length(span) for span in pack] for pack in packs_of(plan) if pack]
    lengths = [tokens for pack in packs for tokens in pack]
    mean = sum(lengths) / len(lengths)
    variance = sum((tokens - mean) ** 2 for tokens in lengths) / len(lengths)
    ours = sum((sum(pack) / len(pack) - mean) ** 2 for pack in packs) / len(packs)
    random = sum(variance / len(pack) for pack in packs) / len(packs)
    assert plan.header.quality.bias_over_random == pytest.approx(ours / random)


def test_steps_of_a_run(plan: Plan) -> None:
    """In the first epoch, what nine of ten runs need."""
    run_of_span = [
        run for run, n in enumerate(plan.runs["num_spans"].to_pylist()) for _ in range(n)
    ]
    steps: defaultdict[int, set[int]] = defaultdict(set)
    for span in (span for pack in packs_of(plan) for span in pack if span["epoch"] == 0):
        steps[run_of_span[span["span_id"]]].add(span["step"])
    needed = sorted(max(used) - min(used) + 1 for used in steps.values())
    said = plan.header.quality.run_steps
    assert sum(need <= said for need in needed) >= 0.9 * len(needed)
    assert sum(need < said for need in needed) < 0.9 * len(needed)


def test_a_run_across_the_wrap_of_the_clock_counts_as_two() -> None:
    """Many runs of a small plan wrap around; none is kept from its end to its begin."""
    episodes, steps, slots = 40, 8, 2
    spans = spans_of_lengths(
        [64] * (episodes * steps),
        episode=np.repeat(np.arange(episodes), steps),
        step=np.tile(np.arange(steps), episodes),
    )
    runs = runs_of_steps(spans, steps)
    settings = PlanSettings(budget_tokens=128, slots_per_step=slots, open_runs=16, lanes=1)
    arranged = arrange(spans, runs, settings)
    step = arranged.span_slots() // slots
    used = [step[runs[arranged.packing.items] == run] for run in range(episodes)]
    longest = max(int(at.max()) for at in used)
    wrapped = [at for at in used if at.max() - at.min() > longest // 2]
    assert len(wrapped) > episodes // 10
    # A run gives a span per 16 spans, 4 steps: 8 spans in about 32 of the 80 steps.
    assert 24 <= run_steps(runs, arranged, slots) <= 40


def test_tokens_and_images_against_padded_rows(plan: Plan) -> None:
    """Of `compact`: every camera of the plan, its longest text, its full horizon."""
    spans = [span for pack in packs_of(plan) for span in pack]
    layout = plan.header.layout
    columns = {
        name: [value for row in plan.packs[name].to_pylist() for value in row]
        for name in ("start", "stop", "stride", "action_start", "action_stop")
    }
    observed = max(
        -(-(stop - start) // stride)
        for start, stop, stride in zip(
            columns["start"], columns["stop"], columns["stride"], strict=True
        )
    )
    text = max(map(len, plan.texts["token_ids"].to_pylist()))
    images = observed * len(plan.header.cameras)
    horizon = max(
        stop - start
        for start, stop in zip(columns["action_start"], columns["action_stop"], strict=True)
    )
    row = (
        images * layout.image_tokens
        + text
        + observed * layout.state_tokens
        + horizon * layout.action_tokens
        + layout.extra_tokens
    )
    quality = plan.header.quality
    real = sum(map(length, spans))
    assert quality.tokens_over_padded == pytest.approx(real / (row * len(spans)))
    shown = sum(span["images"] for span in spans)
    assert quality.images_over_padded == pytest.approx(shown / (images * len(spans)))

"""`headrace bench training`: a packed training step against the same spans padded.

Spans are whole trajectories of lognormal length, from a lake through the loader. Both contenders
run the same model with the same weights on the same spans in the same order; the padded one pads
each batch to its longest span and masks keys in one batched SDPA call per layer. The control has
trajectories of one length, where padding costs nothing and the ratio should be 1.
"""

import statistics
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from lake import Episode, FeatureSpec, Lake, Provenance, Spec, create_lake
from lake.writer import EpisodeWriter
from loader.batch import PackedBatch
from loader.pack_loader import PackLoader
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.trajectory_spans import TrajectorySpans
from tools.bench.framework import BenchResult, Timing, interleave, spread
from training.loss import flow_matching_loss
from training.models.kinds import PRESETS, build_model
from training.models.policy_model import PolicyModel
from training.padded import padded_batches, padded_tokens
from training.policy_spec import PolicySpec

Batches = Sequence[PackedBatch[Tensor]]

_DIM: Final = 14  # two arms of seven joints
_BATCH_SIZE: Final = 16
_REPETITIONS: Final = 5
_SIGMA: Final = 0.8


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One set of spans, packed and padded.

    Attributes:
        name: in the table.
        packed, padded: the same spans in the same order.
        tokens: real ones, in either.
        padding_factor: tokens that the padded batches compute over real ones.
        packed_model, padded_model: with equal weights.
    """

    name: str
    packed: Batches
    padded: Batches
    tokens: int
    padding_factor: float
    packed_model: PolicyModel
    padded_model: PolicyModel


def run(quick: bool) -> BenchResult:  # noqa: FBT001  (the signature of every bench)
    """Measure both workloads on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # Packs hold more spans than a padded batch does, so that packing sets no batch size.
    mean, count, budget = (60, 24, 4096) if quick else (200, 64, 16384)
    rng = np.random.default_rng(5)
    mu = np.log(mean) - _SIGMA**2 / 2
    lengths = np.clip(rng.lognormal(mu, _SIGMA, count), 8, 1000).astype(int).tolist()
    try:
        with tempfile.TemporaryDirectory() as folder:
            workloads = [
                _workload("lognormal", lengths, budget, Path(folder)),
                _workload("equal (control)", [mean] * (count // 2), budget, Path(folder)),
            ]
        rows, speed_ups = [], []
        for workload in workloads:
            difference = _gradient_difference(workload)
            timings = interleave(
                {
                    "packed": partial(_step, workload.packed_model, workload.packed),
                    "padded": partial(_step, workload.padded_model, workload.padded),
                },
                repetitions=_REPETITIONS,
                warm_up=False,  # comparing the gradients has run both
            )
            speed_ups.append(_speed_up(timings))
            rows += [_row(workload, name, timings, difference) for name in timings]
    finally:
        torch.set_num_threads(threads)
    return BenchResult(
        name="training",
        rows=rows,
        ratios={
            "packed_over_padded": speed_ups[0],
            "padding_factor": workloads[0].padding_factor,
            "control_ratio": speed_ups[1],
        },
        notes=[
            f"preset small; state, text, {_DIM}-dim action tokens, no pictures; fp32, one thread",
            "forward and backward of all spans; no optimizer, no loading",
            f"lognormal, sigma {_SIGMA}: {count} spans, {min(lengths)}..{max(lengths)} steps",
            f"packs of {budget} tokens; padded batches of {_BATCH_SIZE}, to their longest",
            "ratios compare CPU seconds, medians of interleaved repetitions",
            "gradients: norm of the difference of the contenders' over the norm",
        ],
    )


def _workload(name: str, lengths: Sequence[int], budget: int, folder: Path) -> Workload:
    lake = _lake(folder / f"{name.split(maxsplit=1)[0]}.lake", lengths)
    plan = make_plan(
        lake,
        spans=TrajectorySpans(),
        layout=TokenLayout(state_tokens=1),
        budget_tokens=budget,
        slots_per_step=1,
    )
    with PackLoader(lake, plan, process="inline") as loader:
        batches: Iterable[PackedBatch[Tensor]] = loader
        packed = [batch.trimmed() for batch in batches]
    padded = [part for batch in packed for part in padded_batches(batch, _BATCH_SIZE)]
    tokens = sum(batch.num_tokens + len(batch.actions) for batch in packed)
    torch.manual_seed(0)
    spec = PolicySpec.from_plan(plan.header, image_size=None)
    packed_model = build_model(PRESETS["small"], spec)
    padded_model = build_model(PRESETS["small"], spec)
    padded_model.load_state_dict(packed_model.state_dict())
    return Workload(
        name=name,
        packed=packed,
        padded=padded,
        tokens=tokens,
        padding_factor=sum(map(padded_tokens, padded)) / tokens,
        packed_model=packed_model,
        padded_model=padded_model,
    )


def _lake(folder: Path, lengths: Sequence[int]) -> Lake:
    rng = np.random.default_rng(6)
    spec = Spec(
        features=(
            FeatureSpec(
                name="state", source_name="state", dtype="float32", shape=(_DIM,), role="state"
            ),
            FeatureSpec(
                name="action", source_name="action", dtype="float32", shape=(_DIM,), role="action"
            ),
        )
    )
    lake = create_lake(folder)
    with EpisodeWriter(lake) as writer:
        for number, steps in enumerate(lengths):
            writer.add(
                Episode(
                    episode_id=f"bench/{number}",
                    ingest_key=f"bench/{number}",
                    source="bench",
                    dataset="bench",
                    embodiment="two-arms",
                    spec=spec,
                    fps=50.0,
                    timestamps_ns=np.arange(steps, dtype=np.int64) * 20_000_000,
                    features={
                        name: rng.standard_normal((steps, _DIM)).astype(np.float32)
                        for name in ("state", "action")
                    },
                    cameras={},
                    provenance=Provenance(
                        format="synthetic", files=(), locator=str(number), reader="bench"
                    ),
                    instruction="put the cup on the shelf",
                )
            )
    return lake


def _step(model: PolicyModel, batches: Batches) -> None:
    """Forward and backward of all spans, gradients of the global mean."""
    model.zero_grad()
    items = sum(batch.num_action_items for batch in batches)
    for batch in batches:
        torch.autograd.backward(flow_matching_loss(model(batch), batch) / items)


def _gradient_difference(workload: Workload) -> float:
    flat = []
    for model, batches in (
        (workload.packed_model, workload.packed),
        (workload.padded_model, workload.padded),
    ):
        _step(model, batches)
        flat.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    return float((flat[0] - flat[1]).norm() / flat[0].norm())


def _speed_up(timings: dict[str, list[Timing]]) -> float:
    packed, padded = (
        statistics.median(t.cpu_s for t in timings[name]) for name in ("packed", "padded")
    )
    return padded / packed


def _row(
    workload: Workload, contender: str, timings: dict[str, list[Timing]], difference: float
) -> dict[str, Any]:
    cpu = [timing.cpu_s for timing in timings[contender]]
    packed = contender == "packed"
    return {
        "workload": workload.name,
        "contender": contender,
        "padding_factor": 1.0 if packed else round(workload.padding_factor, 3),
        "cpu_s": spread(cpu),
        "wall_s": spread([timing.wall_s for timing in timings[contender]]),
        "tokens_per_s": round(workload.tokens / statistics.median(cpu)),
        "speed_up": round(_speed_up(timings), 3) if packed else 1.0,
        "gradients": f"{difference:.1e}",
    }

"""One contender on one set of trajectories, in a process of its own so that its memory is its own.

`python -m tools.bench.packing_case CASE_JSON` prints the figures as JSON; `run_case` starts that.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np

from packing.balance import balance, enough_window_steps, max_over_mean, pack_costs
from packing.bounds import certify
from packing.cost import DEFAULT_COST
from packing.draw import draw_order, enough_open_runs
from packing.histogram_bfd import histogram_bfd
from packing.measure import length_bias
from packing.packs import Load, Packing
from packing.seeded import STREAM_REFERENCE, Indices, permutation
from packing.shuffle_fill import shuffle_fill
from packing.spans import Int64s
from tools.bench.packing_contenders import BATCH_ROWS, OVERFLOW, PEERS, peer_packing
from tools.bench.packing_data import Trajectories, trajectories
from tools.bench.packing_tree import segment_tree_bfd
from tools.bench.packing_trl import TRL_ITSELF, trl_packing

RANKS: Final = (8, 64, 512)  # a step has a slot per rank
OURS: Final = ("shuffle-fill", "bfd (histogram)")
TREE: Final = "segment-tree BFD, compiled"
CONTENDERS: Final = (*OURS, *PEERS, TREE)

_T = TypeVar("_T")

_LOOK_AHEAD: Final = 1024
_SEED: Final = 0
# Spans packed before, so that compiling (which shuffle-fill does from so many on) and importing are
# not measured.
_WARM_UP: Final = {"shuffle-fill": 1 << 18, TREE: 4096, TRL_ITSELF: 1000}


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is packed, and by whom.

    Attributes:
        contender: one of `CONTENDERS`, or `TRL_ITSELF` where it is installed.
        n: spans.
        budget: tokens of a pack.
        tokens_per_step: k.
    """

    contender: str
    n: int
    budget: int = 8192
    tokens_per_step: int = 4


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What came of it.

    Attributes:
        packs, bound: packs made, and how many any packing needs (L2).
        padding: share of the packs' budget that holds no token.
        bias: variance of the packs' mean span length over that of random packs of their sizes.
        max_over_mean: ranks -> how much longer a job takes than with equal costs, a pack per rank
            and step; ranks for which there is no whole step are left out.
        window_steps: ranks -> steps among whose packs those of like cost were gathered; 0 where a
            contender does not balance.
        seconds: phase -> wall seconds.
        cpu_s: CPU seconds of all phases, which others on the machine change less.
        peak_rss_gb: most memory of the process until the plan was made, data included.
        lost: share of tokens that the contender as shipped cuts off or leaves out.
    """

    packs: int
    bound: int
    padding: float
    bias: float
    max_over_mean: dict[int, float]
    window_steps: dict[int, int]
    seconds: dict[str, float]
    cpu_s: float
    peak_rss_gb: float
    lost: float

    @property
    def total_s(self) -> float:
        """Seconds of all phases of planning."""
        return sum(self.seconds.values())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """As printed by the child, where the keys of mappings have become text."""
        raw: dict[str, Any] = json.loads(text)
        for name in ("max_over_mean", "window_steps"):
            raw[name] = {int(key): value for key, value in raw[name].items()}
        return cls(**raw)


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_s = 0.0

    def time(self, phase: str, work: Callable[[], _T]) -> _T:
        begin, cpu = time.perf_counter(), time.process_time()
        result = work()
        self.seconds[phase] = time.perf_counter() - begin
        self.cpu_s += time.process_time() - cpu
        return result


def run_case(case: Case) -> Figures:
    """Measure a case in a child process.

    Raises:
        subprocess.CalledProcessError: it failed; what it printed on stderr is on ours.
    """
    command = [sys.executable, "-m", "tools.bench.packing_case", json.dumps(asdict(case))]
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return Figures.from_json(done.stdout.splitlines()[-1])


def measure_case(case: Case) -> Figures:
    """Measure a case in this process."""
    warm_up = _WARM_UP.get(case.contender, case.n)
    if warm_up < case.n:
        measure_case(replace(case, n=warm_up))
    data = trajectories(case.n, budget=case.budget, tokens_per_step=case.tokens_per_step)
    clock = _Clock()
    load = Load(name="tokens", per_span=data.tokens, limit=case.budget)
    open_runs = enough_open_runs(max(RANKS) * case.budget / float(data.tokens.mean()))
    order = clock.time(
        "draw", lambda: draw_order(np.arange(case.n, dtype=np.int64), open_runs, _SEED, 0)
    )
    packing = clock.time("fill", lambda: pack(case, order, data, load))
    if case.contender in OURS:
        clock.time("balance", lambda: _balanced(packing, data, max(RANKS)))
    bound = clock.time("certificate", lambda: certify((load,), len(packing)).bound)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return _figures(case, data, packing, bound=bound, clock=clock, peak_rss_gb=peak)


def pack(case: Case, order: Indices, data: Trajectories, load: Load) -> Packing:
    """Pack the spans in the order in which they were drawn; items are span indices."""
    if case.contender == "shuffle-fill":
        return shuffle_fill(order, (load,), _LOOK_AHEAD)
    if case.contender == "bfd (histogram)":
        return histogram_bfd(order, load, _SEED, 0)
    lengths = data.tokens[order].astype(np.int64)
    batch = max(1, round(BATCH_ROWS * case.n / data.rows))
    if case.contender == TREE:
        packing = segment_tree_bfd(lengths, case.budget)
    elif case.contender == TRL_ITSELF:
        packing = trl_packing(lengths, case.budget, batch)
    else:
        packing = peer_packing(case.contender, lengths, case.budget, batch)
    return Packing(items=order[packing.items], offsets=packing.offsets)


def _balanced(packing: Packing, data: Trajectories, ranks: int) -> Packing:
    cost = pack_costs(packing, data.spans(), DEFAULT_COST)
    window = enough_window_steps(cost, ranks)
    return balance(packing, cost, slots=ranks, window_steps=window, seed=_SEED, epoch=0)


def _figures(
    case: Case,
    data: Trajectories,
    packing: Packing,
    *,
    bound: int,
    clock: _Clock,
    peak_rss_gb: float,
) -> Figures:
    cost = pack_costs(packing, data.spans(), DEFAULT_COST)
    ours = case.contender in OURS
    ratio: dict[int, float] = {}
    windows: dict[int, int] = {}
    for ranks in RANKS:
        if len(cost) < ranks:
            continue
        windows[ranks] = enough_window_steps(cost, ranks) if ours else 0
        ratio[ranks] = max_over_mean(_in_steps(cost, ranks, windows[ranks]), ranks, ranks)
    return Figures(
        packs=len(packing),
        bound=bound,
        padding=1.0 - int(data.tokens.sum(dtype=np.int64)) / (len(packing) * case.budget),
        bias=length_bias(packing, data.tokens),
        max_over_mean=ratio,
        window_steps=windows,
        seconds=clock.seconds,
        cpu_s=clock.cpu_s,
        peak_rss_gb=peak_rss_gb,
        lost=data.lost[OVERFLOW.get(case.contender, "split")],
    )


def _in_steps(cost: Int64s, slots: int, window_steps: int) -> Int64s:
    """Costs of packs in the order in which ranks consume them, whole steps only.

    Ours are balanced; those of others are shuffled, as the samplers of their trainers do.
    """
    count = len(cost)
    if window_steps:
        alone = Packing(items=np.arange(count), offsets=np.arange(count + 1))
        order = balance(
            alone, cost, slots=slots, window_steps=window_steps, seed=_SEED, epoch=0
        ).items
    else:
        order = permutation(count, _SEED, STREAM_REFERENCE)
    return cost[order[: count // slots * slots]]


if __name__ == "__main__":
    figures = measure_case(Case(**json.loads(sys.argv[1])))
    sys.stdout.write(json.dumps(asdict(figures)))

"""A simulated job at a glance: cost, reads and waiting over the steps of the plan."""

from pathlib import Path

import numpy as np

from packing.picture_file import new_figure, write_figure
from packing.simulate_plan import JobSimulation


def draw_simulation(job: JobSimulation, path: Path) -> None:
    """Write a picture; the suffix of `path` decides the format (png, svg, pdf).

    Raises:
        PackingError: matplotlib is not installed, or the file cannot be written.
    """
    packs = job.replayed.packs
    figure = new_figure(11, 7.5)
    cost, read = figure.subplots(2, 1, sharex=True)
    steps = np.arange(job.steps)
    cost.plot(steps, job.max_cost, label="costliest rank", color="tab:red", linewidth=0.8)
    cost.plot(steps, job.mean_cost, label="mean rank", color="tab:blue", linewidth=0.8)
    cost.set_title(f"Cost of a step: max / mean {job.cost_max_over_mean:.4f}")
    cost.set_ylabel("cost, mean = 1")
    cost.legend()
    measured = packs.measured
    size = packs.per_rank_step(job.replayed.reads.read_bytes)[measured] / 1e6
    of_step = packs.step[measured]
    read.plot(of_step, size, ".", markersize=2, color="0.6", label="a rank")
    count = np.bincount(of_step, minlength=job.steps)
    mean = np.bincount(of_step, size, job.steps)[count > 0] / count[count > 0]
    read.plot(steps[count > 0], mean, color="tab:green", linewidth=0.8, label="mean of the ranks")
    use = job.storage
    read.set_title(
        f"Read by a rank: {use.read_bytes.mean / 1e6:.2f} MB and {use.requests.mean:.1f} requests"
        f" a step, {use.decoded_over_shown:.2f} frames decoded per picture"
        + ("" if len(of_step) == job.steps * job.world_size else " (a sample)")
    )
    read.set_xlabel("step")
    read.set_ylabel("MB")
    read.legend()
    waiting = "" if job.time is None else f", {job.time.wait_share:.1%} of the time without data"
    figure.suptitle(f"{job.steps} steps on {job.world_size} ranks{waiting}")
    write_figure(figure, path)

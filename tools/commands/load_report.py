"""What `headrace load` prints for people."""

from typing import Any, Final

from rich.table import Table

from loader.observe.log_lines import TROUBLES, milliseconds
from loader.observe.metrics import STALL_S

_SHOWN_STALLS: Final = 3


def load_table(report: dict[str, Any]) -> Table:
    """The figures of a dry run for people, from those that `--json` prints."""
    table = Table(
        title=f"plan {report['plan']}, rank {report['rank']} of {report['world_size']}",
        title_justify="left",
        show_header=False,
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _lines(report).items():
        table.add_row(name, text)
    return table


def _lines(report: dict[str, Any]) -> dict[str, str]:
    metrics: dict[str, Any] = report["metrics"]
    counts: dict[str, int] = {"requests": 0, "bytes_read": 0, **metrics["counts"]}
    seconds = max(report["seconds"], 1e-9)
    span = f"training steps {report['first_step']} to {report['next_step']}"
    held = f"{metrics['packs']} packs, {metrics['spans']} spans, {metrics['steps']} observed steps"
    rates = [
        f"{metrics[name] / seconds:,.{digits}f} {what}/s"
        for name, digits, what in (
            ("packs", 1, "packs"),
            ("spans", 0, "spans"),
            ("steps", 0, "observed steps"),
        )
    ]
    rates.append(f"{report['batch_bytes'] / seconds / 1e6:,.0f} MB/s of batches")
    first = f"first batch after {report['first_batch_s'] or 0:.2f} s"
    stages = [
        f"{name} {metrics['stage_s'][name]:.2f} s ({_quantiles(calls)})"
        for name, calls in metrics["stage_calls"].items()
        if calls["count"]
    ]
    pictures = (
        f"{counts.get('wanted_frames', 0)} delivered, {counts.get('reused_frames', 0)} of them"
        f" kept from an earlier pack; {counts.get('decoded_frames', 0)} decoded"
    )
    what = "video" if report["source"] == "episodes" else report["source"] + " packs"
    read = f"{counts['bytes_read'] / 1e6:,.1f} MB of {what}"
    return {
        "streamed": f"{span}: {held}",
        "rate": ", ".join(rates),
        "padding": f"{report['padding']:.2%} of the token budget",
        "pictures": pictures,
        "storage": f"{read}; {counts['requests']} reader calls in all{_cache(metrics)}",
        "time": f"{seconds:.2f} s, {first}; decode processes: {metrics['worker_cpu_s']:.2f} CPU s",
        "data wait": f"{_waits(report)}; {_stalls(metrics)}",
        "stages": ", ".join(stages),
        "troubles": ", ".join(
            f"{counts.get(name, 0)} {name.replace('_', ' ')}" for name in TROUBLES
        ),
    }


def _quantiles(calls: dict[str, float]) -> str:
    return f"p50 {milliseconds(calls['p50_s'])}, p99 {milliseconds(calls['p99_s'])}"


def _cache(metrics: dict[str, Any]) -> str:
    share = metrics["cache_hit_share"]
    return "" if share is None else f"; {share:.1%} from the cache"


def _waits(report: dict[str, Any]) -> str:
    metrics = report["metrics"]
    return (
        f"{metrics['data_wait_share']:.1%} of the time with training steps of"
        f" {report['step_ms']:.3g} ms; {_quantiles(metrics['step_waits'])} per step"
    )


def _stalls(metrics: dict[str, Any]) -> str:
    if not metrics["stalls"]:
        return "no stalls"
    last = ", ".join(
        f"{stall['wait_s']:.1f} s at step {stall['step']} ({stall['stage']})"
        for stall in metrics["stalls"][-_SHOWN_STALLS:]
    )
    return f"stalls above {milliseconds(STALL_S)}: {metrics['num_stalls']}; the last: {last}"

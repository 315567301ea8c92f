"""The proxy as a command: `python -m tools.faults.s3_proxy http://127.0.0.1:8333 --delay-ms 20`."""

import json
import sys
from typing import Annotated, get_args

import typer

from lake.errors import HeadraceError
from tools.faults.fault import Fault, FaultError, Kind
from tools.faults.s3_proxy import S3Proxy


def serve(
    upstream: Annotated[str, typer.Argument(help="The real server, http://host:port.")],
    *,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    delay_ms: Annotated[float, typer.Option(min=0, help="Added to every request.")] = 0.0,
    jitter_ms: Annotated[float, typer.Option(min=0, help="Up to this much more.")] = 0.0,
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND=RATE", help="Share of requests that a fault meets; repeatable."),
    ] = None,
    path: Annotated[str, typer.Option(help="Regular expression: only these meet faults.")] = "",
    hold_s: Annotated[
        float | None, typer.Option(min=0, help="How long `stall` and `slow` hold a request.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of faults and jitter.")] = 0,
) -> None:
    """Pass requests on to an S3 server with latency and faults.

    The first line on stdout is {"endpoint": ...}. Each line on stdin is answered by the counts so
    far; the end of stdin (Ctrl-D) stops the proxy. Kinds of faults: slow_down, reset, cut,
    truncate, flip, slow, stall, lose_reply.
    """
    faults = [_fault(text, path, hold_s) for text in fault or ()]
    with S3Proxy(
        upstream,
        delay_s=delay_ms / 1e3,
        jitter_s=jitter_ms / 1e3,
        faults=faults,
        seed=seed,
        port=port,
    ) as proxy:
        print(json.dumps({"endpoint": proxy.endpoint}), flush=True)
        for _ in sys.stdin:
            print(json.dumps(proxy.traffic.to_dict()), flush=True)


def _fault(text: str, path: str, hold_s: float | None) -> Fault:
    kind, _, rate = text.partition("=")
    try:
        share = float(rate)
    except ValueError:
        raise FaultError(f"--fault {text}: write KIND=RATE, such as slow_down=0.1") from None
    for known in get_args(Kind):
        if kind == known:
            return Fault(kind=known, rate=share, path=path, hold_s=hold_s)
    raise FaultError(f"--fault {text}: the kinds are {', '.join(get_args(Kind))}")


def main() -> None:
    """Run the command; an expected error is one line on stderr."""
    try:
        typer.run(serve)
    except HeadraceError as error:
        print(f"s3_proxy: {error}", file=sys.stderr)
        sys.exit(error.exit_code)

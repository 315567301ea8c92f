"""What a plan asks of storage, as a table."""

from collections.abc import Sequence

from rich.table import Table

from packing.storage.use import StorageUse


def storage_table(uses: Sequence[StorageUse]) -> Table:
    """Calls, requests, bytes, decoding and memory by world size, as modelled.

    A call to the lake's reader is what `headrace load` counts; the store gets it as several
    requests.
    """
    grid = Table(
        title="storage, as the loader reads it (per step of all ranks; per rank: mean / p95 / max)",
        title_justify="left",
    )
    for name in (
        *(
            "ranks",
            "store requests",
            "MB",
            "reader calls of a rank, mean",
            "store requests of a rank",
        ),
        "MB of a rank",
        *("frames decoded per picture", "MB of frames kept"),
    ):
        grid.add_column(name, justify="right")
    for use in uses:
        calls, requests, read = use.calls, use.requests, use.read_bytes
        grid.add_row(
            str(use.world_size),
            f"{use.requests_per_step:,.0f}",
            f"{use.bytes_per_step / 1e6:,.2f}",
            f"{calls.mean:,.2f}",
            f"{requests.mean:,.1f} / {requests.p95:,.0f} / {requests.max:,.0f}",
            " / ".join(f"{size / 1e6:,.2f}" for size in (read.mean, read.p95, read.max)),
            f"{use.decoded_over_shown:.2f}",
            f"{use.kept_bytes / 1e6:,.1f}",
        )
    return grid

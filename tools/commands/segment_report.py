"""The segments of a plan that grew, as a table."""

from rich.table import Table

from packing.plan_header import PlanHeader


def segment_table(header: PlanHeader) -> Table:
    """One row per segment, in the order of consumption."""
    grid = Table(
        title="segments (what follows is of the newest)",
        title_justify="left",
    )
    for name in ("from step", "steps", "epochs", "spans", "padding", "/ bound", "Q1"):
        grid.add_column(name, justify="right")
    grid.add_column("continues", no_wrap=True)
    for segment in header.segments:
        shuffle = segment.quality.shuffle.get(1)
        grid.add_row(
            f"{segment.first_step}",
            f"{segment.num_steps}",
            f"{segment.epochs}",
            f"{segment.num_spans}",
            f"{segment.quality.padding:.2%}",
            f"{segment.certificate.packs_over_bound:.4f}",
            "" if shuffle is None else f"{shuffle:.2f}",
            segment.parent_hash[:12],
        )
    return grid

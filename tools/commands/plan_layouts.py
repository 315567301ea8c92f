"""`headrace plan layouts`."""

import json
from dataclasses import asdict
from typing import Annotated

import typer


def layouts(
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """List the token layouts that `headrace pack --layout` knows by name.

    Image, state, action and extra are tokens of what is really there; cameras, text and horizon are
    to what the model pads when it is not packed. A JSON file can change one: {"base": "pi0", ...}.
    """
    from rich.console import Console
    from rich.table import Table

    from packing.known_layouts import KNOWN_LAYOUTS

    if as_json:
        listed = [
            {**asdict(known.layout), "tokenizer_source": known.tokenizer_source}
            for known in KNOWN_LAYOUTS.values()
        ]
        typer.echo(json.dumps(listed))
        return
    grid = Table()
    grid.add_column("layout", no_wrap=True)
    for name in ("image", "state", "action", "extra", "cameras", "text", "horizon"):
        grid.add_column(name, justify="right", no_wrap=True)
    for known in KNOWN_LAYOUTS.values():
        layout, padded = known.layout, known.layout.padded
        counts = (
            str(layout.image_tokens),
            "as text" if layout.prompt.writes_state else str(layout.state_tokens),
            str(layout.action_tokens),
            str(layout.extra_tokens),
            *("-" if n is None else str(n) for n in (padded.cameras, padded.text_tokens)),
            "-" if padded.horizon is None else str(padded.horizon),
        )
        grid.add_row(layout.name, *counts)
    console = Console(highlight=False, markup=False)
    console.print(grid)
    for known in KNOWN_LAYOUTS.values():
        console.print(
            f"tokenizer of {known.layout.name}:"
            f" {known.tokenizer_source or f'{known.layout.tokenizer}, built in'}"
        )

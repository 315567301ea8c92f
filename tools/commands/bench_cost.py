"""`headrace bench cost`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

Quick = Annotated[bool, typer.Option("--quick", help="End within 50 s on 2 cores.")]
JsonTo = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write JSON here; - for stdout.")
]


def cost(
    quick: Quick = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what `headrace pack --cost` takes.")
    ] = None,
    d_model: Annotated[
        int | None, typer.Option(help="Width of the transformer. [default: 1024; quick: 256]")
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="Attention heads. [default: 16; quick: 4]")
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Layers. [default: 2]")] = None,
    mlp_ratio: Annotated[
        int | None, typer.Option(help="Hidden features of an MLP over the width. [default: 4]")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            help="Tokens of the largest pack. [default: 8192, on a CPU 2048; quick: 1024]"
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(help="Also time images of this many pixels through the vision encoder."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Such as cuda:1 or cpu. [default: a GPU if there is one]")
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option(help="Rounds over all packs. [default: 7; quick: 5]")
    ] = None,
    json_to: JsonTo = None,
) -> None:
    """What a pack costs to compute on this device, by token, squared length, span and image.

    Give the sizes of your model: balance depends on where its attention outweighs its linear
    layers.

    Example: headrace bench cost --d-model 2048 --heads 8 --out cost.json
    """
    from tools.bench.cost import FULL, QUICK, make_folder, measure_cost, write_measured
    from tools.bench.framework import report

    given = {
        "d_model": d_model,
        "heads": heads,
        "layers": layers,
        "mlp_ratio": mlp_ratio,
        "max_tokens": max_tokens,
        "image_size": image_size,
        "repetitions": repetitions,
    }
    setup = replace(
        QUICK if quick else FULL,
        device=device,
        **{name: value for name, value in given.items() if value is not None},
    )
    if out is not None:
        make_folder(out)
    result, measured = measure_cost(setup)
    report(result, quick=quick, json_to=json_to)
    if out is not None:
        write_measured(measured, out)

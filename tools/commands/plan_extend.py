"""`headrace plan extend`."""

from typing import Annotated

import typer

from tools.commands.lake_options import StorageOptions, storage_options
from tools.commands.pack_mixture import MixtureFile, chosen_mixture


def extend(
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake.")],
    plan: Annotated[
        str, typer.Argument(help="Name of the plan, or the first 8 digits of its hash.")
    ],
    episodes: Annotated[
        str | None,
        typer.Argument(
            metavar="EPISODES",
            help="What to append: a selection's name, or a condition over episodes. [default: what"
            " the plan's selection finds now and the plan does not have]",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the new plan.")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over what is appended. [default: as the plan]")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the new segment. [default: the plan's, plus 1]")
    ] = None,
    mixture: MixtureFile = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The tokenizer that the plan was made with, where it is not built in.",
        ),
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option(help="As for `headrace pack`. [default: as the plan]")
    ] = None,
    action: Annotated[
        list[str] | None, typer.Option(help="As for `headrace pack`. [default: as the plan]")
    ] = None,
    camera: Annotated[
        list[str] | None, typer.Option(help="Camera to use; repeat. [default: as the plan]")
    ] = None,
    store: StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Append what a lake gained to a plan, as a plan of its own that begins with the old one.

    The old plan stays. A training or loader that stood in it goes on in the new one.

    Example: headrace plan extend robots.lake mix --name mix-2
    """
    from rich.console import Console

    from lake import open_lake
    from packing.extend_plan import extend_plan
    from packing.plan_store import load_plan, save_plan
    from tools.commands.plan_report import print_plan, print_plan_json

    opened = open_lake(lake, storage_options=storage_options(store))
    with Console(stderr=True).status("planning"):
        extended = extend_plan(
            opened,
            load_plan(opened, plan),
            episodes,
            epochs=epochs,
            seed=seed,
            mixture=chosen_mixture(file=mixture, episodes=episodes),
            tokenizer=tokenizer,
            state=state,
            action=action,
            cameras=camera,
        )
        entry = save_plan(opened, extended, name)
    if as_json:
        print_plan_json(entry, extended.header)
    else:
        print_plan(entry, extended.header)

"""`headrace lake`: edits of episodes, and the upkeep of a lake's files."""

import typer

from tools.commands.lake_edit import delete, edits, merge, split, undelete, undo
from tools.commands.lake_purge import purge
from tools.commands.lake_reshard import reshard


def register(app: typer.Typer) -> None:
    """Add the commands."""
    lakes = typer.Typer(
        help="Edit episodes without rewriting them; reshard and purge a lake.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for command in (edits, delete, undelete, split, merge, undo, reshard, purge):
        lakes.command(command.__name__)(command)
    app.add_typer(lakes, name="lake")

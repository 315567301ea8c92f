"""`headrace label`."""

from typing import TYPE_CHECKING, Annotated

import typer

from tools.commands.lake_options import StorageOptions, storage_options

if TYPE_CHECKING:
    from catalog.labels import LabelValue


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("label")(label)


def label(
    lake: Annotated[str, typer.Argument(help="Path or URI of the lake.")],
    query: Annotated[
        str, typer.Argument(help="A condition over episodes, or SQL with a column episode_id.")
    ],
    labels: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE",
            help="task, instruction, success, quality, split, tags (a,b); empty clears.",
        ),
    ],
    why: Annotated[str, typer.Option(help="The reason, kept in the table `edits`.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
    store: StorageOptions = None,
) -> None:
    """Set labels of the episodes that a query gives.

    Example: headrace label robots.lake "task = 'lift'" split=train tags=clean,lab-3
    """
    import json

    from catalog import Catalog, LabelError, answer_selection, set_labels
    from lake import open_lake
    from lake.edit.apply import this_user

    values: dict[str, LabelValue] = {}
    for key, value in map(parse_label, labels):
        if key in values:
            raise LabelError(f"label {key} is given twice")
        values[key] = value
    opened = open_lake(lake, storage_options=storage_options(store))
    with Catalog(opened) as catalog:
        chosen = answer_selection(catalog, query)
    count = set_labels(opened, chosen, by=this_user(why), **values)
    if as_json:
        typer.echo(json.dumps({"labelled": count, "labels": values}, ensure_ascii=False))
    else:
        typer.echo(f"{count} episodes labelled")


def parse_label(text: str) -> "tuple[str, LabelValue]":
    """`key=value` as a label and its value; an empty value is None.

    Raises:
        LabelError: no `=`, or a value that its label cannot have.
    """
    from catalog import LabelError

    key, equals, value = text.partition("=")
    if not equals:
        raise LabelError(f"{text!r} is not KEY=VALUE")
    if not value:
        return key, None
    if key == "success":
        known = {"true": True, "false": False}
        if value.lower() not in known:
            raise LabelError(f"label success: {value!r} is neither true nor false")
        return key, known[value.lower()]
    if key == "quality":
        try:
            return key, float(value)
        except ValueError:
            raise LabelError(f"label quality: {value!r} is not a number") from None
    if key == "tags":
        return key, [tag.strip() for tag in value.split(",") if tag.strip()]
    return key, value

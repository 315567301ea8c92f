"""The `headrace` command: one module in `tools/commands/` per subcommand group."""

import importlib
import io
import os
import sys
from importlib import metadata
from typing import Annotated, Final

import typer
from rich.console import Console

from lake.errors import HeadraceError

# Each module has a `register(app)` that adds its commands. They import their heavy parts when they
# run, so that `headrace --help` and `headrace sql` need neither torch nor h5py.
_MODULES: Final = (
    "ingest",
    "inspect",
    "doctor",
    "export",
    "sql",
    "select",
    "label",
    "lake",
    "pack",
    "plan",
    "load",
    "selftest",
    "train",
    "simulate",
    "assess",
    "quantise",
    "bench",
    "demo",
)
_EXTRAS: Final = {
    "torch": "torch",
    "yaml": "torch",
    "safetensors": "torch",
    "mujoco": "sim",
    "matplotlib": "sim",
    "h5py": "hdf5",
    "s3fs": "s3",
}
_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells have it


def _version(asked: bool) -> None:  # noqa: FBT001  as typer calls it
    if asked:
        typer.echo(f"headrace {metadata.version('headrace')}")
        raise typer.Exit


def build_app() -> typer.Typer:
    """The typer application with every subcommand registered."""
    app = typer.Typer(
        name="headrace",
        help="Robot recordings in a columnar lake: SQL, packing, streaming, training.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    for name in _MODULES:
        importlib.import_module(f"tools.commands.{name}").register(app)
    return app


def _options(
    version: Annotated[  # noqa: FBT002  an option of the command line
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; an expected error is one line on stderr and its exit code.

    `HEADRACE_TRACEBACK=1` shows the traceback of expected errors too.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names need not be Unicode
    try:
        build_app()()
    except HeadraceError as error:
        if os.environ.get("HEADRACE_TRACEBACK"):
            raise
        _say(str(error))
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None or os.environ.get("HEADRACE_TRACEBACK"):
            raise
        _say(f"this needs {error.name}, which is not installed: pip install 'headrace[{extra}]'")
        sys.exit(HeadraceError.exit_code)
    except (KeyboardInterrupt, SystemExit) as end:
        # Typer makes an exit of a Ctrl-C, without a word.
        if isinstance(end, SystemExit) and end.code != _INTERRUPTED:
            raise
        _say("stopped; what was committed to a lake stays")
        sys.exit(_INTERRUPTED)


def _say(what: str) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(
        f"headrace: {what}", style="red", markup=False
    )


if __name__ == "__main__":
    main()

"""The `headrace` command in processes that start in milliseconds, to be killed often."""

import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerContext


def command_processes(*preload: str) -> ForkServerContext:
    """Processes that have imported the command and `preload`, but used nothing of it yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "tools.cli", "rich.progress", "rich.table", *preload])
    return context


def run_command(*arguments: str) -> None:
    """Run `headrace ARGUMENTS` and exit with its code; what it prints is dropped."""
    from tools.cli import main

    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a device, not a path of ours
        sys.stdout = sys.stderr = nowhere
        sys.argv = ["headrace", *arguments]
        main()

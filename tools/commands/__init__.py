"""Subcommands of the headrace command, one module each."""

"""The command line: every verb of the facade."""

from pennon.cli.commands import main

__all__ = ["main"]

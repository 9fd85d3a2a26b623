"""The command line: every verb of the facade."""

from pennon.cli.main import main

__all__ = ["main"]

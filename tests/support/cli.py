"""The command line as tests call it."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from pennon.cli import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["--quiet", *arguments])


def done(*arguments: str) -> str:
    """What a command prints that succeeds."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(*arguments: str) -> Any:
    return json.loads(done(*arguments, "--output", "json"))

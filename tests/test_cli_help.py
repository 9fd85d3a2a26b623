"""Help pages that fit a screen, and what a shell completes."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner

from pennon.cli import main
from pennon.table import Table, open_table

# Methods of the facade that need no command: they hand out objects of Python's, or are part of another command.
PYTHON_ONLY = {"refresh", "scan_batches", "search_batch"}
COMMANDS = {
    "catch_up_indices": "catch-up",
    "trim_fragment_reuse": "trim",
    "count": "scan",
    "explain_search": "search",
    "plan_index": "create-index",
    "plan_optimize": "optimize",
    "plan_compact": "compact",
    "plan_catch_up": "catch-up",
    "plan_trim": "trim",
}
CHANGING = {
    *("create-index", "drop-index", "update-column", "optimize", "compact"),
    *("catch-up", "trim", "clean-orphans", "maintain", "audit"),
}


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments), terminal_width=80)
    assert result.exit_code == 0, result.output
    return result.output


def test_every_verb_of_the_facade_is_a_command() -> None:
    methods = {name for name, value in vars(Table).items() if callable(value) and not name.startswith("_")}
    assert {COMMANDS.get(name, name.replace("_", "-")) for name in methods - PYTHON_ONLY} <= set(main.commands)


def test_help_fits_a_screen() -> None:
    lines = shown("--help").splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    for name, command in main.commands.items():
        [line] = [line for line in lines if f" {name} " in line[:24]]
        assert line.endswith(command.get_short_help_str(limit=1000))
        assert line.endswith(".")
        assert "..." not in line
    assert [line.split()[0] for line in lines if line[:1].strip() and "  " in line] == [
        *("Build", "Query", "Keep", "Look", "Begin", "Options"),
    ]
    assert "130 interrupted" in lines[-1]


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_help_page_ends_with_an_example(name: str) -> None:
    lines = shown(name, "--help").splitlines()
    assert lines[-2] == "Example:"
    example = lines[-1].strip().partition("    #")[0]
    assert f"pennon {name}" in example
    assert any(line.strip().startswith("--debug") for line in lines)
    assert any(line.strip().startswith("--dry-run") for line in lines) == (name in CHANGING)
    # What the example says is understood, as far as that goes without its table.
    words = example.partition("pennon ")[2].rstrip(')"') if name == "completion" else example.partition("pennon ")[2]
    command, arguments = main.commands[name], shlex.split(words)[1:]
    with command.make_context(name, arguments, parent=click.Context(main)):
        pass


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_every_shell(shell: str) -> None:
    script = shown("completion", shell)
    assert f"_PENNON_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        check = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
        assert (check.returncode, check.stderr) == (0, "")


def completed(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    environment = {
        **os.environ,
        "_PENNON_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["pennon", *words]),
        "COMP_CWORD": str(len(words)),
    }
    code = "from pennon.cli import main; main(prog_name='pennon')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.usefixtures("engine")
def test_completion_knows_verbs_options_indices_and_columns(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"user": range(10), "used": range(10), "name": range(10)}), uri)
    open_table(uri).create_index("user")
    assert completed("c") == ["catch-up", "clean-orphans", "compact", "completion", "create-index"]
    assert "--older-than" in completed("clean-orphans", uri, "--o")
    assert completed("drop-index", uri, "") == ["user_idx"]
    assert completed("optimize", uri, "--index", "u") == ["user_idx"]
    assert completed("create-index", uri, "us") == ["user", "used"]
    assert completed("completion", "") == ["bash", "zsh", "fish"]


def test_completion_never_complains(tmp_path: Path) -> None:
    (tmp_path / "broken.lance" / "_versions").mkdir(parents=True)
    (tmp_path / "broken.lance" / "_versions" / "1.manifest").write_bytes(b"nonsense")
    for uri in ("nowhere.lance", "s3://bucket/t.lance", "memory://x", str(tmp_path / "broken.lance")):
        assert completed("drop-index", uri, "") == []
        assert completed("create-index", uri, "") == []

"""Help pages that fit a screen, and what a shell completes."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner

import pennon
from pennon.cli import main
from pennon.engine.java import find_java
from pennon.table import Table, open_table

# Methods of the facade that need no command: they hand out objects of Python's, or are part of another command.
PYTHON_ONLY = {
    *("refresh", "scan_batches", "search_batch", "search_text_batch", "search_hybrid_batch"),
    *("dataframe", "where", "select", "warm", "cache_statistics"),
}
COMMANDS = {
    "catch_up_indices": "catch-up",
    "trim_fragment_reuse": "trim",
    "count": "scan",
    "explain_search": "search",
    "explain_search_text": "search-text",
    "count_rows": "scan",
    "optimize_indices": "optimize",
    "report_data": "report",
    "plan_drop_index": "drop-index",
    "plan_update_column": "update",
    "update_column": "update",
    "plan_delete": "delete",
    "plan_update": "update",
    "plan_merge": "merge",
    "plan_index": "create-index",
    "plan_optimize": "optimize",
    "plan_compact": "compact",
    "plan_catch_up": "catch-up",
    "plan_trim": "trim",
    "plan_lookup_join": "lookup-join",
    "advise_index": "create-index",
    "plan_near_duplicates": "near-duplicates",
}
CHANGING = {
    *("create-index", "drop-index", "delete", "update", "merge", "optimize", "compact"),
    *("catch-up", "trim", "clean-orphans", "maintain", "audit"),
}


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments), terminal_width=80)
    assert result.exit_code == 0, result.output
    return result.output


def test_every_verb_of_the_facade_is_a_command() -> None:
    methods = {name for name, value in inspect.getmembers(Table, inspect.isfunction) if not name.startswith("_")}
    assert "create_index" in methods
    assert {COMMANDS.get(name, name.replace("_", "-")) for name in methods - PYTHON_ONLY} <= set(main.commands)


def test_help_fits_a_screen() -> None:
    lines = shown("--help").splitlines()
    assert len(lines) <= 35
    assert max(map(len, lines)) <= 80
    for name, command in main.commands.items():
        [line] = [line for line in lines if line[9:].startswith(f"{name} ")]
        assert line.endswith(command.get_short_help_str(limit=1000))
        assert line.endswith(".")
        assert "..." not in line
    assert [line.split()[0] for line in lines if line[:1].strip() and "  " in line] == [
        *("Build", "Change", "Query", "Maintain", "Inspect", "Start", "Options"),
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


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_every_shell(shell: str) -> None:
    script = shown("completion", shell)
    assert f"_PENNON_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        check = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
        assert (check.returncode, check.stderr) == (0, "")


# One interpreter answers many questions; each is asked as a shell asks it, by the environment.
ANSWERING = """
import contextlib, io, json, os, sys
from pennon.cli import main

answers = []
for words in json.load(sys.stdin):
    line = " ".join(["pennon", *words])
    os.environ.update(_PENNON_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words)))
    printed, code = io.TextIOWrapper(io.BytesIO()), None
    with contextlib.redirect_stdout(printed):
        try:
            main(prog_name="pennon")
        except SystemExit as ended:
            code = ended.code
    printed.flush()
    answers.append([code, printed.buffer.getvalue().decode()])
json.dump(answers, sys.stdout)
"""


def completed(*questions: tuple[str, ...]) -> list[list[str]]:
    """What bash is offered for the last word of each line."""
    done = subprocess.run(
        [sys.executable, "-c", ANSWERING],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers = json.loads(done.stdout)
    assert [code for code, _ in answers] == [0] * len(questions)
    return [[line.partition(",")[2] for line in text.splitlines() if line] for _, text in answers]


@pytest.mark.process
def test_a_shell_starts_a_process_for_every_question() -> None:
    asked = {"_PENNON_COMPLETE": "bash_complete", "COMP_WORDS": "pennon completion ", "COMP_CWORD": "2"}
    command = [sys.executable, "-c", "from pennon.cli import main; main(prog_name='pennon')"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **asked}, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "plain,bash\nplain,zsh\nplain,fish\n", "")


@pytest.mark.process
@pytest.mark.usefixtures("process_engine")
def test_completion_knows_verbs_options_indices_and_columns(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"user": range(10), "used": range(10), "name": range(10)}), uri)
    open_table(uri).create_index("user")
    verbs, options, named, chosen, columns, shells = completed(
        ("c",),
        ("clean-orphans", uri, "--o"),
        ("drop-index", uri, ""),
        ("optimize", uri, "--index", "u"),
        ("create-index", uri, "us"),
        ("completion", ""),
    )
    assert verbs == ["catch-up", "clean-orphans", "compact", "completion", "create-index"]
    assert "--older-than" in options
    assert named == chosen == ["user_idx"]
    assert columns == ["user", "used"]
    assert shells == ["bash", "zsh", "fish"]


@pytest.mark.process
def test_completion_never_complains(tmp_path: Path) -> None:
    (tmp_path / "broken.lance" / "_versions").mkdir(parents=True)
    (tmp_path / "broken.lance" / "_versions" / "1.manifest").write_bytes(b"nonsense")
    uris = ("nowhere.lance", "s3://bucket/t.lance", "memory://x", str(tmp_path / "broken.lance"))
    questions = [(verb, uri, "") for verb in ("drop-index", "create-index") for uri in uris]
    assert completed(*questions) == [[]] * len(questions)


@pytest.mark.process
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_it_starts_without_pylance_and_pyspark(option: str) -> None:
    code = (
        "import sys; from pennon.cli import main; main([sys.argv[1]], standalone_mode=False);"
        "assert not {'lance', 'pyspark'} & sys.modules.keys(), 'imported'"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, option], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "pylance" in done.stdout


@pytest.mark.process
def test_the_version_names_what_pennon_runs_on() -> None:
    command = [sys.executable, "-m", "pennon", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    found = dict(line.split(" ", 1) for line in printed.splitlines())
    assert found["pennon"] == pennon.__version__ == version("pennon")
    assert (found["pylance"], found["pyspark"]) == (version("pylance"), version("pyspark"))
    assert found["java"] == str(find_java().version)


def test_the_version_does_not_need_java(tmp_path: Path) -> None:
    result = CliRunner(env={"JAVA_HOME": str(tmp_path)}).invoke(main, ["--version"])
    assert result.exit_code == 0
    assert f"java JAVA_HOME is {tmp_path}" in result.output


def test_all_public_names_can_be_imported() -> None:
    assert {name for name in pennon.__all__ if getattr(pennon, name, None) is None} == set()
    assert set(pennon.__all__) <= set(dir(pennon))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        pennon.nonsense  # noqa: B018

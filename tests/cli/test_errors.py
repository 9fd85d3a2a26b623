"""What goes wrong is one line and an exit code, whatever it is, and no secret is in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from pennon.cli import main
from pennon.errors import DamagedIndexWarning
from pennon.table import Table

SECRET = "wJalrXUtnFEMI"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(20_000)}), path)
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def pennon(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from pennon.cli import main; main()", *arguments]


@pytest.mark.parametrize(
    "arguments", [["--debug", "drop-index", "URI", "nope"], ["drop-index", "URI", "nope", "--debug"]]
)
def test_debug_shows_the_trace(uri: str, arguments: list[str]) -> None:
    result = run(*[uri if a == "URI" else a for a in arguments])
    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: table ")


def test_a_failure_is_an_object_where_json_is_asked_for(uri: str) -> None:
    result = run("scan", uri, "--filter", "nope = 1", "--output", "json")
    failure = json.loads(result.stdout)
    assert result.exit_code == 1
    assert failure == {
        "status": "failed",
        "error": "InvalidFilter",
        "problem": failure["problem"],
        "remedy": failure["remedy"],
        "retryable": False,
    }
    assert "nope" in failure["problem"]
    assert result.stderr.startswith("error: ")
    assert not run("scan", uri, "--filter", "nope = 1").stdout


def test_a_failure_in_json_has_no_secret(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Table, "scan", mock.Mock(side_effect=RuntimeError(f"password={SECRET}")))
    result = run("scan", uri, "--filter", "id = 1", "--output", "json", "--storage-option", f"password={SECRET}")
    assert json.loads(result.stdout)["error"] == "Exception"
    assert SECRET not in result.output


def test_an_output_that_cannot_be_written(uri: str, tmp_path: Path) -> None:
    result = run("report", uri, "-o", str(tmp_path / "nowhere" / "r.html"))
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert "No such file or directory" in result.stderr


def test_an_error_nobody_foresaw(uri: str) -> None:
    with mock.patch.object(Table, "count", side_effect=RuntimeError("first line\nsecond line, at x.rs:3:4")):
        result = run("scan", uri, "--count")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "error: RuntimeError: first line. `--debug` shows where it came from\n"
        assert "Traceback" in run("scan", uri, "--count", "--debug").stderr
    refused = PermissionError(13, "Permission denied", "x.lance")
    with mock.patch.object(Table, "count", side_effect=refused):
        said = run("scan", uri, "--count").stderr
    assert said == "error: x.lance: Permission denied. `--debug` shows where it came from\n"


@pytest.mark.process
@pytest.mark.parametrize(("form", "codes"), [("text", {1}), ("json", {0, 1})])
def test_a_reader_that_has_seen_enough(uri: str, form: str, codes: set[int]) -> None:
    """JSON is one large write, of which some kernels say that it went well."""
    scan = subprocess.Popen(
        pennon("scan", uri, "--limit", "20000", "--output", form), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert scan.stdout is not None
    assert scan.stderr is not None
    assert scan.stdout.readline()
    scan.stdout.close()
    said = scan.stderr.read()
    scan.stderr.close()
    assert said == b""
    assert scan.wait(300) in codes


def test_no_secret_in_errors(uri: str) -> None:
    options = ("--storage-option", f"aws_secret_access_key={SECRET}")
    problem = ValueError(f"signing with {SECRET} failed")
    with mock.patch.object(Table, "count", side_effect=problem):
        for more in ((), ("--debug",)):
            result = run("scan", uri, "--count", *options, *more)
            assert "signing with *** failed" in result.output
            assert SECRET not in result.output
    # The option is forgotten, or misspelt.
    for wrong in ((f"aws_secret_access_key={SECRET}",), ("--storage-opt1on", f"aws_secret_access_key={SECRET}")):
        result = run("scan", uri, *wrong)
        assert result.exit_code == 2
        assert SECRET not in result.output


@pytest.mark.process
def test_no_secret_in_warnings(uri: str) -> None:
    code = (
        "import warnings; from unittest import mock; from pennon.cli import main; from pennon.table import Table\n"
        "from pennon.errors import DamagedIndexWarning\n"
        f"def count(*_): warnings.warn('read with {SECRET}\\n again', DamagedIndexWarning); return 3\n"
        "mock.patch.object(Table, 'count', count).start()\n"
        f"main(['scan', {uri!r}, '--count', '--storage-option', 'session_token={SECRET}'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "warning: read with *** again\n")
    assert issubclass(DamagedIndexWarning, UserWarning)


def test_an_interrupt(uri: str) -> None:
    with mock.patch.object(Table, "count", side_effect=KeyboardInterrupt):
        result = run("scan", uri, "--count")
    assert (result.exit_code, "interrupted" in result.stderr) == (130, True)


def test_an_unreadable_table(uri: str) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    for manifest in (Path(uri) / "_versions").iterdir():
        manifest.chmod(0)
    result = run("scan", uri)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)

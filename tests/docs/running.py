"""Runs the blocks of one page, in order, in one namespace and one directory."""

from __future__ import annotations

import ast
import io
import re
import shlex
import subprocess
import tokenize
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from pennon.cli import main
from pennon.errors import PennonError
from tests.docs.compare import agree
from tests.docs.pages import Block

_TABLE = re.compile(r"(?<![\w/.])([a-z_]+\.lance)\b")
_EXIT_CODE = re.compile(r"# exit code (\d+)")


class PageRun:
    """Tables are named by their absolute path: the workers of a Spark session that all tests share stand elsewhere."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.error: PennonError | None = None

    def run(self, block: Block) -> str:
        """Everything a block prints. A Pennon error ends it: its message is printed, and kept as `error`."""
        self.error = None
        printed = io.StringIO()
        with redirect_stdout(printed), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            try:
                getattr(self, f"_run_{block.language}")(_TABLE.sub(rf"{self.directory}/\1", block.text), printed)
            except PennonError as error:
                self.error = error
                printed.write(f"{type(error).__module__}.{type(error).__name__}: {error}\n")
        told = "".join(f"{warning.category.__name__}: {warning.message}\n" for warning in warned)
        return (told + printed.getvalue()).replace(f"{self.directory}/", "").replace(f"{self.directory}/"[1:], "")

    def _run_python(self, text: str, printed: io.StringIO) -> None:
        answers = dict(_answers(text))
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.Expr):
                code = compile(ast.Expression(statement.value), "<page>", "eval")
                value = eval(code, self.namespace)
                answer = answers.get(statement.end_lineno or 0)
                if answer is not None:
                    assert agree(answer, repr(value)), f"the page says {answer}, and it is {value!r}"
            else:
                exec(compile(ast.Module([statement], []), "<page>", "exec"), self.namespace)

    def _run_sh(self, text: str, printed: io.StringIO) -> None:
        for command in text.replace("\\\n", " ").split("\n"):
            if command.strip() and not command.startswith("#"):
                printed.write(self._command(command))

    def _run_console(self, text: str, printed: io.StringIO) -> None:
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, _ = part.partition("\n")
            printed.write(f"$ {command}\n{self._command(command)}")

    def _run_sql(self, text: str, printed: io.StringIO) -> None:
        for statement in re.sub(r"--.*", "", text).split(";"):
            if statement.strip():
                frame = self.namespace["spark"].sql(statement)
                if frame.columns:
                    frame.show(truncate=False)

    def _command(self, command: str) -> str:
        expected = _EXIT_CODE.search(command)
        arguments = shlex.split(command, comments=True)
        if arguments[0] == "pennon":
            # A terminal shows progress and removes it again.
            result = CliRunner().invoke(main, ["--quiet", *arguments[1:]])
            code, output = result.exit_code, result.output
            if result.exception and not isinstance(result.exception, SystemExit):
                raise result.exception
        else:
            done = subprocess.run(command, shell=True, cwd=self.directory, capture_output=True, text=True, check=False)
            code, output = done.returncode, done.stdout + done.stderr
        assert code == (int(expected[1]) if expected else 0), f"{command!r} ends with {code}: {output}"
        return output


def _answers(text: str) -> Iterator[tuple[int, str]]:
    """Comments that are Python values: what the expression on their line gives."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comment = token.string.lstrip("# ")
            try:
                ast.literal_eval(comment)
            except (ValueError, SyntaxError):
                continue
            yield token.start[0], comment

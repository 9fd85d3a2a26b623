"""What is shown of names and values: valid JSON, and lines that steer no terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner

import pennon
from pennon.cli import main
from pennon.errors import DamagedIndexWarning, InvalidArgument
from pennon.secrets import redact
from pennon.wording import escape_controls, in_json, in_line
from tests.hostile_names.names import NAMES, ROWS, STEERING, VALUES, quoted, write
from tests.support.html import Reader


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every index by stock, named as its column."""
    columns = {name: [i % 5 for i in range(ROWS)] for name in NAMES.values()}
    values = {"text": [VALUES[i % len(VALUES)] for i in range(ROWS)], "x": [float("nan"), float("-inf")] * (ROWS // 2)}
    path = write(tmp_path_factory.mktemp("shown") / "t.lance", {**columns, **values})
    for name in NAMES.values():
        lance.dataset(path).create_scalar_index(name, "BTREE", name=name)
    return path


def text_of(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    assert not [sign for sign in STEERING if sign in done.output]
    return done.output


def test_text(uri: str) -> None:
    assert "\\x1b" in text_of("indices", uri)
    listed = text_of("optimize", uri, "--dry-run")
    assert all(kept in listed for kept in ("\\x1b[31mred", "new\\nline", "[red]mark[/red] :smile:", "$(rm -rf x)"))
    text_of("scan", uri, "--limit", "30")
    text_of("maintain", uri, "--dry-run")
    for kind, name in NAMES.items():
        text_of("explain", uri, "--filter", f"{quoted(name)} = 3", "--analyze")
        text_of("drop-index", uri, "--dry-run", "--", name)
        assert text_of("scan", uri, "--count", "--filter", f"{quoted(name)} = 3") == f"{ROWS // 5}\n", kind
        text_of("create-index", uri, "--dry-run", "--name", f"{name}2", "--", name)
        assert text_of("drop-index", uri, "--", f"{name}?", code=1).count("\n") == 1
        assert (
            text_of("create-index", uri, "--dry-run", "--", f"{name}?", code=1).splitlines()[-1].startswith("error: ")
        )


def test_json(uri: str) -> None:
    def told(*arguments: str) -> dict[str, Any]:
        done = CliRunner().invoke(main, [arguments[0], "--output", "json", *arguments[1:]])
        assert done.exit_code == 0, done.output
        assert not [sign for sign in STEERING if sign in done.output]
        return json.loads(done.output, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    indices = told("indices", uri)["indices"]
    assert {index["name"] for index in indices} == set(NAMES.values())
    rows = told("scan", uri, "--limit", str(ROWS))["rows"]
    assert rows == json.loads(json.dumps(lance.dataset(uri).to_table().to_pylist()), parse_constant=str)
    for name in NAMES.values():
        explained = told("explain", uri, "--filter", f"{quoted(name)} = 3")
        assert [use["index"] for use in explained["indices"]] == [name]
        dropped = told("drop-index", uri, "--dry-run", "--", name)
        assert dropped["index"]["name"] == name
        assert told("scan", uri, "--limit", "1", "--columns", json.dumps([name]))["rows"] == [{name: 0}]


def test_the_like_of_a_search_is_a_filter(tmp_path: Path) -> None:
    names = [NAMES[kind] for kind in ("quote", "sql", "html", "dash")]
    rows = {name: range(ROWS) for name in names}
    path = write(
        tmp_path / "t.lance", {**rows, "v": pa.array([[float(i)] * 4 for i in range(ROWS)], pa.list_(pa.float32(), 4))}
    )
    for name in names:
        found = text_of("search", path, "v", "--like", f"{quoted(name)} = 17", "--k", "1", "--columns", "id")
        assert found.split()[2] == "17"


def test_the_report_shows_names_as_text(uri: str) -> None:
    page = pennon.open(uri).report()
    read = Reader(page)
    tags = {tag for tag, _ in read.tags}
    assert not {"script", "img", "b", "iframe", "a:b"} & tags
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    targets = [attributes["href"] for _, attributes in read.tags if "href" in attributes]
    assert all(re.fullmatch(r"#index-\d+|data:,", target or "") for target in targets)
    for kind in ("html", "quote", "double quote", "sql", "emoji", "decomposed"):
        assert NAMES[kind] in read.text


def test_plans_keep_their_lines(uri: str) -> None:
    table = pennon.open(uri)
    plan = str(table.plan_index(NAMES["newline"], name="a\nb\x1b[2J"))
    assert [line.split()[0] for line in plan.splitlines()] == ["B-tree", "table", "rows", "work", "layout", "files"]
    assert not [sign for sign in STEERING if sign in plan]
    assert len(str(table.plan_optimize()).splitlines()) == len(NAMES)


def test_errors_and_warnings_steer_nothing() -> None:
    assert str(InvalidArgument("no \x1b[31m", "Did you mean \u202eabc?")) == r"no \x1b[31m. Did you mean \u202eabc?"
    assert str(DamagedIndexWarning("index \x9b31m")) == r"index \x9b31m"
    assert in_line("a\tb\nc\U000e0041") == r"a\tb\nc\U000e0041"
    assert escape_controls("two\nlines\tand \U0001f468\u200d\U0001f469") == "two\nlines\tand \U0001f468\u200d\U0001f469"
    assert (
        json.loads(in_json(json.dumps("\x7f\x9b\U000e0041 \u202e", ensure_ascii=False))) == "\x7f\x9b\U000e0041 \u202e"
    )
    assert redact("nothing is known of this") == "nothing is known of this"

"""The commands that search texts, alone and with vectors."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.index.vector.vectors import to_lists
from tests.support.cli import run

TEXTS = ["a quick brown fox", "foxes run", "the lazy dog", None, "a dog and a fox", "brown bread"]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("texts") / "t.lance")
    vectors = np.eye(6, 4, dtype=np.float32)
    lance.write_dataset(pa.table({"id": range(6), "body": TEXTS, "v": to_lists(vectors)}), path)
    pennon.open(path, engine="local").create_index("body", "INVERTED", with_position=True)
    return path


def ids(*arguments: str) -> list[int]:
    found = run(*arguments, "--output", "json")
    assert found.exit_code == 0, found.output
    return sorted(row["id"] for row in json.loads(found.output)["rows"])


def test_search_text(uri: str) -> None:
    assert ids("search-text", uri, "body", "fox") == [0, 1, 4]
    assert ids("search-text", uri, "*", "brown fox", "--operator", "and") == [0]
    assert ids("search-text", uri, "body", '"brown fox"') == [0]
    near = ("--fuzziness", "2", "--filter", "id < 4", "--columns", "id")
    assert ids("search-text", uri, "body", "fxo", *near) == [0, 1]
    shown = run("search-text", uri, "body", "fox", "--k", "1", "--columns", "id").output.splitlines()
    assert (shown[0].split(), shown[1].split()[0]) == (["id", "_score"], "1")
    assert "terms    fox (3)" in run("search-text", uri, "body", "fox", "--explain").output
    analyzed = run("search-text", uri, "body", "fox", "--analyze", "--output", "json")
    assert json.loads(analyzed.output)["rows_returned"] == 3


def test_search_hybrid(uri: str) -> None:
    search = ("search-hybrid", uri, "v", "body", "fox")
    found = run(*search, "--vector", "[0, 1, 0, 0]", "--k", "3", "--output", "json")
    rows = json.loads(found.output)["rows"]
    assert rows[0]["id"] == 1
    assert (rows[0]["_vector_rank"], rows[0]["_text_rank"]) == (1, 1)
    assert "v" not in rows[0]
    weighted = ids(*search, "--like", "id = 2", "--k", "1", "--fusion", "linear", "--weights", "1,0")
    assert weighted == [2]
    refused = run(*search, "--like", "id = 2", "--weights", "much")
    assert (refused.exit_code, "--weights" in refused.output) == (1, True)


def test_mistakes_are_named(uri: str, tmp_path: Path) -> None:
    refused = run("search-text", uri, "body", "fox", "--fuzziness", "1000")
    assert (refused.exit_code, "fuzziness is 1000" in refused.output) == (1, True)
    lance.write_dataset(pa.table({"t": ["x"]}), str(tmp_path / "u.lance"))
    refused = run("search-text", str(tmp_path / "u.lance"), "*", "x")
    assert (refused.exit_code, "create_index" in refused.output) == (1, True)

"""`pennon knn-join`: from a table of queries to a table of neighbors."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import pennon
from pennon.cli import main
from pennon.index.vector.vectors import to_lists

pytestmark = pytest.mark.usefixtures("engine")

VECTORS = np.random.default_rng(0).standard_normal((400, 8)).astype(np.float32)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["--quiet", *arguments])


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "v.lance")
    lance.write_dataset(pa.table({"id": range(400), "v": to_lists(VECTORS)}), path)
    assert run("create-index", path, "v", "--type", "ivf_flat", "--num-partitions", "4").exit_code == 0
    return path


@pytest.fixture
def queries() -> pa.Table:
    return pa.table({"q": range(20), "w": to_lists(VECTORS[:20] + np.float32(0.01))})


@pytest.mark.parametrize("form", ["lance", "parquet"])
def test_neighbors_of_another_table(uri: str, queries: pa.Table, tmp_path: Path, form: str) -> None:
    asked, out = str(tmp_path / f"q.{form}"), str(tmp_path / f"out.{form}")
    if form == "lance":
        lance.write_dataset(queries, asked)
    else:
        pq.write_table(queries, asked)
    options = ("--queries", asked, "--query-column", "w", "--k", "3", "--nprobes", "4", "--filter", "id < 300")
    result = run("knn-join", uri, "v", *options, "-o", out, "--output", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"status": "done", "rows": 60, "out": out}
    found = lance.dataset(out).to_table() if form == "lance" else pq.read_table(out)
    assert found.column_names == ["q", "w", "_rank", "_distance", "id"]
    rows = sorted(zip(*(found[name].to_pylist() for name in ("q", "_rank", "id")), strict=True))
    expected = pennon.open(uri).search_batch("v", VECTORS[:20] + np.float32(0.01), 3, nprobes=4, filter="id < 300")
    assert [neighbor for _, _, neighbor in rows] == expected["id"].to_pylist()
    again = run("knn-join", uri, "v", *options, "-o", out)
    assert (again.exit_code, len(again.stderr.splitlines())) == (1, 1)
    assert "already" in again.stderr


def test_errors_are_one_line(uri: str, queries: pa.Table, tmp_path: Path) -> None:
    asked, out = str(tmp_path / "q.lance"), str(tmp_path / "out.lance")
    lance.write_dataset(queries, asked)
    for wrong, said in (
        (("--queries", asked), "no column 'v'"),
        (("--queries", asked, "--query-column", "q"), "is not a type of query vectors"),
        (("--queries", str(tmp_path / "none.lance")), "cannot open a Lance table"),
        (("--queries", str(tmp_path / "none.parquet")), "PATH_NOT_FOUND"),
    ):
        result = run("knn-join", uri, "v", *wrong, "-o", out)
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1), result.output
        assert said in result.stderr
    assert not Path(out).exists()
    assert run("knn-join", uri, "v", "-o", out).exit_code == 2

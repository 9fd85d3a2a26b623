"""`pennon knn-join`, `text-join`, `lookup-join` and `near-duplicates`: tables in, and a table of what was found."""

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
    exact = run("knn-join", uri, "v", *options[:6], *options[8:], "--recall", "1", "-o", out := f"{out}-exact.parquet")
    assert exact.exit_code == 0, exact.output
    found = pq.read_table(out).sort_by([("q", "ascending"), ("_rank", "ascending")])
    assert found["id"].to_pylist() == expected["id"].to_pylist()
    wrong = run("knn-join", uri, "v", *options, "--recall", "0.9", "-o", str(tmp_path / "none"))
    assert (wrong.exit_code, "recall sets nprobes" in wrong.stderr) == (1, True)
    again = run("knn-join", uri, "v", *options, "-o", out)
    assert (again.exit_code, len(again.stderr.splitlines())) == (1, 1)
    assert "already" in again.stderr


def test_matches_of_another_table(tmp_path: Path) -> None:
    path, asked, out = (str(tmp_path / name) for name in ("t.lance", "q.parquet", "out.parquet"))
    texts = ["a red fox", "a dog", "red bread", None, "foxes and dogs", "the red dog"]
    lance.write_dataset(pa.table({"id": range(6), "body": texts}), path)
    pennon.open(path, engine="local").create_index("body", "INVERTED")
    pq.write_table(pa.table({"q": range(4), "body": ["red fox", None, "nothing", "dog"]}), asked)
    options = ("--queries", asked, "--k", "2", "--columns", "id", "--operator", "or", "--filter", "id > 0")
    result = run("text-join", path, "body", *options, "-o", out, "--output", "json")
    assert result.exit_code == 0, result.output
    found = pq.read_table(out)
    assert found.column_names == ["q", "body", "_rank", "_score", "id"]
    expected = [
        (number, rank, id_)
        for number, text in ((0, "red fox"), (3, "dog"))
        for rank, id_ in enumerate(pennon.open(path).search_text("body", text, 2, filter="id > 0")["id"].to_pylist(), 1)
    ]
    assert sorted(zip(*(found[name].to_pylist() for name in ("q", "_rank", "id")), strict=True)) == expected
    assert json.loads(result.stdout) == {"status": "done", "rows": len(expected), "out": out}
    several = run("text-join", path, "*", *options[:-2], "-o", str(tmp_path / "o"))
    assert (several.exit_code, "query_column" in several.stderr) == (1, True)


def test_errors_are_one_line(uri: str, queries: pa.Table, tmp_path: Path) -> None:
    asked, out = str(tmp_path / "q.lance"), str(tmp_path / "out.lance")
    lance.write_dataset(queries, asked)
    for wrong, said in (
        (("--queries", asked), "no column 'v'"),
        (("--queries", asked, "--query-column", "q"), "is not a type of query vectors"),
        (("--queries", str(tmp_path / "none.lance")), "there is no Lance table at"),
        (("--queries", str(tmp_path / "none.parquet")), "PATH_NOT_FOUND"),
    ):
        result = run("knn-join", uri, "v", *wrong, "-o", out)
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1), result.output
        assert said in result.stderr
    assert not Path(out).exists()
    assert run("knn-join", uri, "v", "-o", out).exit_code == 2


def test_rows_with_the_keys_of_another_table(tmp_path: Path) -> None:
    path, asked, out = (str(tmp_path / name) for name in ("t.lance", "q.parquet", "out.parquet"))
    lance.write_dataset(pa.table({"id": range(300), "day": [n % 7 for n in range(300)], "v": range(300)}), path)
    pennon.open(path, engine="local").create_index("id")
    pq.write_table(pa.table({"uid": [5, 299, 7, 999, None], "day": [5, 5, 3, 1, 1]}), asked)
    options = ("--on", "uid=id", "--on", "day", "--queries", asked, "-o", out, "--how", "left", "--filter", "v < 299")
    planned = run("lookup-join", path, *options, "--explain", "--output", "json")
    assert planned.exit_code == 0, planned.output
    plan = json.loads(planned.stdout)
    assert (plan["status"], plan["strategy"], plan["indices"]) == ("planned", "index", ["id_idx"])
    assert not Path(out).exists()
    result = run("lookup-join", path, *options, "--output", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"status": "done", "rows": 5, "out": out}
    found = pq.read_table(out)
    assert found.column_names == ["uid", "day", "v"]
    rows = {row["uid"]: row["v"] for row in found.to_pylist()}
    assert rows == {5: 5, 299: None, 7: None, 999: None, None: None}
    shown = run("lookup-join", path, *options, "--explain", "--keys", "1000")
    assert "1,000 keys are a large share of 300 rows" in " ".join(shown.stdout.split())
    wrong = run("lookup-join", path, "--on", "nothing", "--queries", asked, "-o", str(tmp_path / "o.parquet"))
    assert (wrong.exit_code, "no column 'nothing'" in wrong.stderr) == (1, True)


def test_near_duplicates_of_a_table(uri: str, tmp_path: Path) -> None:
    out = str(tmp_path / "pairs.parquet")
    apart = ((VECTORS[:, None] - VECTORS) ** 2).sum(axis=2)
    expected = set(zip(*(side.tolist() for side in np.nonzero(np.triu(apart <= 1.5, 1))), strict=True))
    assert len(expected) > 2
    options = ("--distance", "1.5", "--columns", "id")
    done = run("near-duplicates", uri, "v", *options, "-o", out, "--output", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"status": "done", "rows": len(expected), "out": out}
    found = pq.read_table(out)
    assert set(zip(found["id_a"].to_pylist(), found["id_b"].to_pylist(), strict=True)) == expected
    grouped = run("near-duplicates", uri, "v", *options, "--groups", "-o", str(tmp_path / "groups.lance"))
    assert grouped.exit_code == 0, grouped.output
    rows = lance.dataset(str(tmp_path / "groups.lance")).to_table()
    assert sorted(rows["id"].to_pylist()) == sorted({row for pair in expected for row in pair})
    plan = json.loads(run("near-duplicates", uri, "v", *options, "--explain", "--output", "json").stdout)
    assert (plan["exact"], plan["metric"], plan["rows"]) == (True, "l2", 400)
    missing = run("near-duplicates", uri, "v", *options)
    assert (missing.exit_code, "--out" in missing.stderr) == (2, True)

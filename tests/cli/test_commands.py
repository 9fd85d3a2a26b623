"""The command line: every verb, as text and as JSON, with its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from pennon.cli import main
from pennon.index.vector.vectors import to_lists

pytestmark = pytest.mark.usefixtures("process_engine")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    rows = pa.table(
        {"id": range(200), "k": [i % 10 for i in range(200)], "s": ["[bold]<b>'" + str(i) for i in range(200)]}
    )
    lance.write_dataset(rows, path, max_rows_per_file=80)
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_the_life_of_an_index(uri: str) -> None:
    assert "no indices" in run("indices", uri).output
    created = run("create-index", uri, "k", "--type", "btree", "--ranges", "2", "--batch-size", "32")
    assert created.exit_code == 0, created.output
    assert "B-tree 'k_idx' on k (int64)" in created.output
    assert " 100% " in created.output
    [listed] = json.loads(run("indices", uri, "--output", "json").output)["indices"]
    assert (listed["name"], listed["type"], listed["columns"], listed["coverage"]) == ("k_idx", "BTREE", ["k"], 1.0)
    assert "k_idx" in run("indices", uri).output
    assert run("scan", uri, "--filter", "k = 3", "--count").output.strip() == "20"
    rows = json.loads(run("scan", uri, "--filter", "k = 3", "--columns", "id", "--output", "json").output)["rows"]
    assert [row["id"] for row in rows] == list(range(3, 200, 10))
    assert "k_idx: k in {3}" in run("explain", uri, "--filter", "k = 3").output
    explained = json.loads(run("explain", uri, "--filter", "k = 3", "--analyze", "--output", "json").output)
    assert explained["rows_returned"] == 20
    assert run("drop-index", uri, "k_idx").exit_code == 0
    assert json.loads(run("indices", uri, "--output", "json").output)["indices"] == []


def test_values_are_never_markup(uri: str) -> None:
    assert "[bold]<b>'7" in run("scan", uri, "--filter", "id = 7").output


def test_long_results_are_cut_and_say_so(uri: str) -> None:
    shown = run("scan", uri)
    assert "(50 rows shown; use --limit for more" in shown.output
    assert len(json.loads(run("scan", uri, "--limit", "120", "--output", "json").output)["rows"]) == 120


def test_dry_run_changes_nothing(uri: str) -> None:
    plan = json.loads(run("create-index", uri, "k", "--dry-run", "--output", "json").output)
    assert (plan["rows"], plan["name"]) == (200, "k_idx")
    assert "200 in 3 fragments" in run("create-index", uri, "k", "--dry-run").output
    assert lance.dataset(uri).version == 1


def test_segments_of_chosen_fragments(uri: str) -> None:
    assert run("create-index", uri, "k", "--fragments", "0,2").exit_code == 0
    [index] = json.loads(run("indices", uri, "--output", "json").output)["indices"]
    assert index["uncovered_fragments"] == [1]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["scan", "nowhere.lance"], 1, f"error: there is no Lance table at {Path('nowhere.lance').absolute()}"),
        (["create-index", "URI", "q"], 1, "error: table "),
        (["create-index", "URI", "k", "--type", "hash"], 1, "Pennon builds: BTREE"),
        (["create-index", "URI", "k", "--fragments", "a"], 1, "Write them like 0,1,5"),
        (["scan", "URI", "--filter", "k = = 3"], 1, "error: "),
        (["drop-index", "URI", "nope"], 1, "no index 'nope'"),
        (["scan", "URI", "--storage-option", "secretkey"], 1, "KEY=VALUE"),
        (["scan"], 2, "Missing argument"),
        (["frobnicate"], 2, "No such command"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(arguments: list[str], code: int, message: str, uri: str) -> None:
    result = run(*[uri if a == "URI" else a for a in arguments])
    assert result.exit_code == code
    assert message in result.output
    assert "Traceback" not in result.output
    assert "secretkey" not in result.output


@pytest.mark.process
def test_verbs_without_spark_or_kernels_do_not_import_them(uri: str) -> None:
    code = (
        "import sys; from pennon.cli import main\n"
        f"main(['scan', {uri!r}, '--filter', 'k = 3', '--count'], standalone_mode=False)\n"
        f"main(['indices', {uri!r}], standalone_mode=False)\n"
        "assert not {'pyspark', 'numba', 'pydantic'} & set(sys.modules)\n"
        "import pennon.spark\n"
        "assert not {'numba', 'pydantic'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_life_of_a_vector_index(tmp_path: Path) -> None:
    uri = str(tmp_path / "v.lance")
    vectors = np.random.default_rng(0).standard_normal((400, 8)).astype(np.float32)
    lance.write_dataset(pa.table({"id": range(400), "v": to_lists(vectors)}), uri, max_rows_per_file=150)
    build = ("create-index", uri, "v", "--type", "ivf_pq", "--metric", "cosine", "--num-partitions", "4")
    planned = run(*build, "--num-sub-vectors", "4", "--dry-run")
    assert "4 partitions of about 100 rows" in planned.output
    created = run(*build, "--num-sub-vectors", "4", "--seed", "3")
    assert created.exit_code == 0, created.output
    assert "IVF_PQ" in run("indices", uri).output
    found = run("search", uri, "v", "--like", "id = 7", "--k", "3", "--refine-factor", "5", "--output", "json")
    rows = json.loads(found.output)["rows"]
    assert (len(rows), rows[0]["id"], list(rows[0])) == (3, 7, ["id", "_distance"])
    np.save(tmp_path / "q.npy", vectors[9])
    query = json.dumps(vectors[9].tolist())
    (tmp_path / "q.json").write_text(query)
    for source in (query, f"@{tmp_path}/q.npy", f"@{tmp_path}/q.json"):
        nearest = run("search", uri, "v", "--vector", source, "--k", "1", "--refine-factor", "9", "--filter", "id > 2")
        assert nearest.output.splitlines()[1].startswith("9 ")
    assert "v_idx" in run("search", uri, "v", "--like", "id = 7", "--explain").output
    near = run("search", uri, "v", "--like", "id = 7", "--all", "--distance-range", ",0.4", "--output", "json")
    lengths = np.linalg.norm(vectors, axis=1)
    expected = np.flatnonzero(1 - vectors @ vectors[7] / lengths / lengths[7] < 0.4).tolist()
    assert sorted(row["id"] for row in json.loads(near.output)["rows"]) == expected
    groups = ("--distance-range", "0.2,", "--distinct-by", "id", "--offset", "2", "--k", "3", "--explain")
    assert (
        "3 rows after the first 2, one for each id, at" in run("search", uri, "v", "--like", "id = 7", *groups).output
    )
    assert "a pair of numbers" in run("search", uri, "v", "--like", "id = 7", "--distance-range", "x").output
    assert json.loads(run("search", uri, "v", "--like", "id = 7", "--analyze", "--output", "json").output)
    for wrong in (("--vector", "[1,"), ("--vector", "@nowhere.npy"), ("--like", "id < 0"), ()):
        refused = run("search", uri, "v", *wrong)
        assert refused.exit_code == 1
        assert "--vector" in refused.output
    refused = run(*build, "--ranges", "3")
    assert (refused.exit_code, "take no option 'ranges'" in refused.output) == (1, True)


def test_a_table_that_is_piped_has_one_line_for_each_row(tmp_path: Path) -> None:
    uri, name = str(tmp_path / "wide.lance"), "a_name_of_an_index_that_is_wider_than_half_of_a_terminal"
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(32), pa.float32()), 16)
    lance.write_dataset(pa.table({"id": [1, 2], "text": ["x " * 60, "y"], "vector": vectors}), uri)
    assert run("create-index", uri, "id", "--name", name).exit_code == 0
    header, row = run("indices", uri).output.splitlines()
    assert header.split() == ["name", "type", "columns", "segments", "coverage", "rows", "size", "created"]
    assert row.split()[0] == name
    shown = run("scan", uri).output.splitlines()
    assert len(shown) == 3
    assert shown[1].endswith("[0, 1, 2, ... 16 items]")
    assert not [line for line in shown if line.endswith(" ")]


def test_one_row_is_not_called_rows(uri: str) -> None:
    assert "(1 row shown; use --limit for more" in run("scan", uri, "--limit", "1").output


def test_an_empty_address_is_not_the_working_directory() -> None:
    shown = run("indices", "")
    assert (shown.exit_code, shown.stderr.partition(".")[0]) == (1, "error: the address of the table is empty")

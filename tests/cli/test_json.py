"""JSON of every verb has a status, and its numbers are fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import lance
import pyarrow as pa
import pytest
from lance.dataset import ColumnOrdering

from pennon.cli import main
from pennon.errors import BuildFailed
from pennon.index.vector.vectors import to_lists
from pennon.table import Table
from tests.support.cli import as_json, run
from tests.support.vectors import clustered

ROWS = 300
# Verbs without a JSON result: they make a page, a script, or tables to look at.
OTHERS = {"report", "demo", "completion"}
# Run in this order on one table; `knn-join` and `text-join` need Spark and are tested with the other joins.
CALLS: dict[str, list[tuple[list[str], str]]] = {
    "create-index": [
        (["URI", "id", "--dry-run"], "planned"),
        (["URI", "id"], "done"),
        (["URI", "v", "--type", "ivf_flat", "--num-partitions", "2"], "done"),
    ],
    "scan": [(["URI", "--filter", "id < 3"], "done"), (["URI", "--count"], "done")],
    "explain": [(["URI", "--filter", "id < 3"], "planned"), (["URI", "--filter", "id < 3", "--analyze"], "done")],
    "search": [
        (["URI", "v", "--like", "id = 1"], "done"),
        (["URI", "v", "--like", "id = 1", "--explain"], "planned"),
        (["URI", "v", "--like", "id = 1", "--analyze"], "done"),
    ],
    "tune": [(["URI", "v", "--sample", "30"], "done"), (["URI", "v", "--sample", "30", "--store"], "done")],
    "search-text": [
        (["URI", "t", "word"], "done"),
        (["URI", "t", "word", "--explain"], "planned"),
        (["URI", "t", "word", "--analyze"], "done"),
    ],
    "search-hybrid": [(["URI", "v", "t", "word", "--like", "id = 1"], "done")],
    "indices": [(["URI"], "done")],
    "update": [
        (["URI", "part=part + 1", "--where", "true", "--in-place", "--dry-run"], "planned"),
        (["URI", "part=part + 1", "--where", "true", "--in-place"], "done"),
        (["URI", "part=0", "--where", "id < 0"], "nothing to do"),
    ],
    "delete": [
        (["URI", "id < 3", "--dry-run"], "planned"),
        (["URI", "id < 3"], "done"),
        (["URI", "id < 3"], "nothing to do"),
    ],
    "merge": [
        (["URI", "URI", "--on", "id", "--matched-if", "source.id = 5", "--dry-run"], "planned"),
        (["URI", "URI", "--on", "id", "--matched-if", "source.id = 5", "--no-maintain"], "done"),
        (["URI", "URI", "--on", "id", "--when-matched", "keep"], "nothing to do"),
    ],
    "optimize": [(["URI", "--dry-run"], "planned"), (["URI"], "done"), (["URI"], "nothing to do")],
    "compact": [(["URI", "--remap", "deferred", "--dry-run"], "planned"), (["URI", "--remap", "deferred"], "done")],
    "fragment-reuse": [(["URI"], "done")],
    "catch-up": [(["URI", "--dry-run"], "planned"), (["URI"], "done"), (["URI"], "nothing to do")],
    "trim": [(["URI", "--dry-run"], "planned"), (["URI"], "done")],
    "audit": [(["URI"], "ok")],
    "maintain": [(["URI", "--dry-run"], "nothing to do"), (["URI"], "nothing to do")],
    "clean-orphans": [(["URI", "--dry-run"], "planned"), (["URI"], "nothing to do")],
    "drop-index": [(["URI", "id_idx", "--dry-run"], "planned"), (["URI", "id_idx"], "done")],
}


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PENNON_ENGINE", "local")
    path = str(tmp_path / "t.lance")
    columns = {"id": range(ROWS), "part": [number % 7 for number in range(ROWS)], "v": to_lists(clustered(ROWS, 8, 0))}
    columns["t"] = [f"word number{number}" for number in range(ROWS)]
    lance.write_dataset(pa.table(columns), path, max_rows_per_file=100)
    return path


def test_every_verb_has_a_status(uri: str) -> None:
    for verb, calls in CALLS.items():
        for arguments, status in calls:
            answer = as_json(verb, *(uri if argument == "URI" else argument for argument in arguments))
            assert answer["status"] == status, (verb, arguments)


def test_every_verb_is_tested() -> None:
    listed = {verb.name for _, verbs in main.purposes for verb in verbs}  # pyright: ignore[reportAttributeAccessIssue]
    assert listed - OTHERS - {"knn-join", "text-join", "lookup-join", "near-duplicates"} <= CALLS.keys()


def test_numbers_are_fields(uri: str) -> None:
    lance.dataset(uri).delete("id < 60")
    assert as_json("create-index", uri, "id")["index"]["rows_covered"] == ROWS - 60
    assert as_json("indices", uri)["indices"][0]["rows_total"] == ROWS - 60
    found = as_json("scan", uri, "--filter", "id < 63", "--columns", "id")
    assert (found["count"], found["limit"], found["rows"]) == (3, 50, [{"id": 60}, {"id": 61}, {"id": 62}])
    planned = {each["step"]: each for each in as_json("maintain", uri, "--dry-run")["decisions"]}
    assert planned["compact"]["figures"] == {"fragments": 3, "fragments_saved": 2, "rows": 240, "deleted_rows": 60}
    ran = as_json("maintain", uri)
    steps = {each["step"]: each["figures"] for each in ran["decisions"]}
    assert (ran["status"], ran["failed"]) == ("done", 0)
    assert steps["compact"]["rows_rewritten"] == 240
    assert steps["orphans"] == {"orphans": 0, "orphans_old": 0}
    as_json("create-index", uri, "v", "--type", "ivf_flat", "--num-partitions", "2")
    (finding,) = as_json("audit", uri)["findings"]
    assert finding["figures"]["recall"] == 1.0


def test_passes_go_on_and_count_failures(uri: str) -> None:
    maintain, outcomes = Table.maintain, iter([BuildFailed("did not fit"), RuntimeError("the session ended"), None])

    def stumbling(table: Table, *arguments: Any, **options: Any) -> Any:
        if (error := next(outcomes)) is not None:
            raise error
        return maintain(table, *arguments, **options)

    with mock.patch.object(Table, "maintain", stumbling), mock.patch("pennon.cli.maintain.sleep"):
        result = run("maintain", uri, "--every", "30s", "--passes", "3", "--output", "json")
    passes = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["pass"], each["failures"], each["status"]) for each in passes] == [
        (1, 1, "failed"),
        (2, 2, "failed"),
        (3, 2, "nothing to do"),
    ]
    assert "the session ended" in passes[1]["error"]


def test_an_interrupt_reports_the_count(uri: str) -> None:
    with mock.patch("pennon.cli.maintain.sleep", side_effect=KeyboardInterrupt):
        result = run("maintain", uri, "--every", "1d", "--dry-run")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (130, "1 pass, 0 failed")
    assert "(pass 1)" in result.stdout


@pytest.mark.parametrize(
    ("options", "python"),
    [
        (["--offset", "5", "--limit", "3"], {"offset": 5, "limit": 3}),
        (["--order-by", "part desc, id"], {"order_by": ["-part", "id"]}),
        (["--order-by", '["part", "id DESC NULLS FIRST"]'], {"order_by": ["part", "-id"]}),
        (["--fragments", "0,2"], {"fragments": [0, 2]}),
        (["--with-row-id", "--with-row-address"], {"with_row_id": True, "with_row_address": True}),
        (["--columns", '{"double": "id * 2", "part": "part"}'], {"columns": {"double": "id * 2", "part": "part"}}),
        (["--include-deleted-rows"], {"include_deleted_rows": True, "with_row_id": True}),
    ],
    ids=str,
)
def test_scans_take_the_options_of_python(uri: str, options: list[str], python: dict[str, Any]) -> None:
    """pylance returns the same rows."""
    dataset = lance.dataset(uri)
    dataset.delete("id % 10 = 3")
    orders = [ColumnOrdering(name.lstrip("-"), ascending=name[0] != "-") for name in python.get("order_by", ())]
    arguments = {"columns": ["id", "part"], **python, "order_by": orders or None}
    arguments["fragments"] = [dataset.get_fragment(number) for number in python.get("fragments", ())] or None
    limit = arguments.pop("limit", ROWS)
    expected = dataset.scanner(filter="part > 1", limit=limit, **arguments).to_table().to_pylist()
    chosen = () if "--columns" in options else ("--columns", "id,part")
    extra = () if "--limit" in options else ("--limit", str(ROWS))
    assert as_json("scan", uri, "--filter", "part > 1", *chosen, *extra, *options)["rows"] == expected


def test_fast_search_leaves_out_what_no_index_covers(uri: str) -> None:
    as_json("create-index", uri, "id")
    lance.write_dataset(lance.dataset(uri).to_table(limit=10), uri, mode="append")
    rows = as_json("scan", uri, "--filter", "id < 5", "--columns", "id", "--fast-search")["rows"]
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 4]
    assert as_json("scan", uri, "--filter", "id < 5")["count"] == 10


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--fragments", "a"], "not a list of fragment ids"),
        (["--fragments", "7"], "no fragment 7"),
        (["--order-by", "nothing"], "no column 'nothing'"),
        (["--offset", "-1"], "offset must be"),
        (["--count", "--offset", "1"], "--count can be combined only with --filter"),
        (["--columns", '{"double": 2}'], "SQL expressions by name"),
    ],
)
def test_wrong_options_of_a_scan(uri: str, options: list[str], says: str) -> None:
    result = run("scan", uri, *options)
    assert result.exit_code in {1, 2}
    assert says in result.stderr

"""A dry run says what would be done, and does nothing."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from tests.support.cli import as_json, done, run

pytestmark = pytest.mark.usefixtures("process_engine")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """200 rows in 5 fragments under a B-tree on k."""
    path = str(tmp_path / "t.lance")
    table = pa.table({"id": range(200), "k": [i % 10 for i in range(200)]})
    lance.write_dataset(table, path, max_rows_per_file=40)
    done("create-index", path, "k")
    return path


def files(uri: str) -> dict[str, bytes]:
    return {str(path.relative_to(uri)): path.read_bytes() for path in Path(uri).rglob("*") if path.is_file()}


def segment_of(uri: str) -> str:
    return as_json("indices", uri)["indices"][0]["segments"][0]["uuid"]


def test_nothing_is_written_by_any_verb(uri: str) -> None:
    lance.dataset(uri).delete("id % 4 = 0")
    done("compact", uri, "--remap", "deferred")
    lance.write_dataset(pa.table({"id": range(300, 310), "k": range(10)}), uri, mode="append")
    before = files(uri)
    for command in (
        ["create-index", uri, "id"],
        ["drop-index", uri, "k_idx"],
        ["update", uri, "k=k + 1", "--where", "true", "--in-place"],
        ["update", uri, "k=k + 1", "--where", "id < 50"],
        ["delete", uri, "id < 50"],
        ["merge", uri, uri, "--on", "id"],
        ["optimize", uri],
        ["compact", uri],
        ["catch-up", uri],
        ["trim", uri],
        ["clean-orphans", uri, "--older-than", "1s"],
        ["maintain", uri],
        ["audit", uri, "--repair"],
    ):
        for form in ("text", "json"):
            assert done(*command, "--dry-run", "--output", form)
            assert files(uri) == before, command


def test_drop_index(uri: str) -> None:
    assert done("drop-index", uri, "k_idx", "--dry-run").startswith("would drop k_idx: BTREE on k, 1 segment, ")
    version = lance.dataset(uri).version
    planned = as_json("drop-index", uri, "k_idx", "--dry-run")
    assert (planned["status"], planned["index"]["name"], planned["version"]) == ("planned", "k_idx", version)
    assert len(planned["index"]["segments"]) == 1
    assert "no index 'nope'" in run("drop-index", uri, "nope", "--dry-run").stderr
    result = as_json("drop-index", uri, "k_idx")
    assert (result["status"], result["index"]["name"], result["segments_removed"]) == ("done", "k_idx", 1)
    assert (result["version_before"], result["version_after"]) == (version, version + 1)


def test_update_in_place(uri: str) -> None:
    lance.dataset(uri).delete("id = 41")
    arguments = ("update", uri, "k=k + 1", "--where", "id between 30 and 50", "--in-place")
    planned = as_json(*arguments, "--dry-run")
    assert (planned["rows_updated"], planned["fragments"], planned["status"]) == (20, [0, 1], "planned")
    shown = done(*arguments, "--dry-run")
    assert shown == "20 rows would be updated in 2 fragments\nk_idx would not cover them until `pennon optimize`\n"
    everything = as_json("update", uri, "k=k + 1", "--where", "true", "--in-place", "--dry-run")
    assert (everything["rows_updated"], everything["fragments"]) == (199, [0, 1, 2, 3, 4])
    assert done("update", uri, "id=0", "--where", "id < 0", "--in-place", "--dry-run") == "no rows would change\n"
    assert "does not have: q" in run("update", uri, "k=q + 1", "--where", "true", "--in-place", "--dry-run").stderr
    changed = as_json(*arguments)
    assert (changed["rows_updated"], changed["fragments"]) == (planned["rows_updated"], planned["fragments"])


def test_delete_update_and_merge(uri: str, tmp_path: Path) -> None:
    source = str(tmp_path / "changes.lance")
    lance.write_dataset(pa.table({"id": [5, 900], "k": [1, 2]}), source)
    verbs = {
        ("delete", uri, "id < 10"): (10, 0, 0),
        ("update", uri, "k=7", "--where", "id >= 190"): (0, 10, 0),
        ("merge", uri, source, "--on", "id"): (0, 0, 2),
        (
            "merge",
            uri,
            source,
            "--on",
            "id",
            "--no-insert",
            "--when-matched",
            "delete",
            "--matched-if",
            "target.id = 5",
        ): (
            1,
            0,
            0,
        ),
    }
    for arguments, counts in verbs.items():
        version = lance.dataset(uri).version
        planned = as_json(*arguments, "--dry-run")
        assert (planned["rows_deleted"], planned["rows_updated"], planned["rows_inserted"]) == counts
        assert lance.dataset(uri).version == version
        changed = as_json(*arguments)
        assert (changed["rows_deleted"], changed["rows_updated"], changed["rows_inserted"]) == counts
        assert (changed["version_before"], changed["version_after"]) == (version, version + 1)
    assert sorted(lance.dataset(uri).to_table(filter="id > 198")["id"].to_pylist()) == [199, 900]
    assert "does not have: q" in run("update", uri, "k=q", "--where", "true").stderr
    assert "COLUMN=EXPRESSION" in run("update", uri, "k", "--where", "true").stderr


def test_optimize_shows_the_work_of_every_step(uri: str) -> None:
    lance.write_dataset(pa.table({"id": range(300, 400), "k": range(100)}), uri, mode="append")
    [step] = as_json("optimize", uri, "--dry-run")["steps"]
    assert (step["build"]["rows"], step["merge"]["rows"], step["merge"]["estimate"]) == (100, 300, True)
    for work in (step["build"], step["merge"]):
        assert work["tasks"] >= 1
        assert work["task_memory_bytes"] > 0
        assert work["index_bytes"] > 0
    _, build, merge = done("optimize", uri, "--dry-run").splitlines()
    assert build.startswith("  build  about 100 rows in 1 task, about ")
    assert merge.startswith("  merge  about 300 rows in 1 task, about ")
    done("optimize", uri, "--merge", "0")
    [step] = as_json("optimize", uri, "--merge", "2", "--dry-run")["steps"]
    assert (step["build"], step["merge"]["rows"]) == (None, 300)


def test_compact_says_what_happens_to_each_index(uri: str) -> None:
    done("create-index", uri, "id")
    for remap, effect in (("immediate", "remapped"), ("deferred", "deferred"), ("drop", "coverage dropped")):
        planned = as_json("compact", uri, "--remap", remap, "--dry-run")
        assert planned["indices"] == [
            {"index": "k_idx", "effect": effect, "segments": 1},
            {"index": "id_idx", "effect": effect, "segments": 1},
        ]
        assert f"k_idx {effect} (1 segment), id_idx {effect} (1 segment)" in done(
            "compact", uri, "--remap", remap, "--dry-run"
        )


def test_catch_up_and_trim(uri: str) -> None:
    assert done("catch-up", uri, "--dry-run") == "0 segments to rewrite, 0 rows\n"
    assert done("trim", uri, "--dry-run") == "0 compactions to remove\n"
    done("compact", uri, "--remap", "deferred")
    [move] = as_json("fragment-reuse", uri)["versions"]
    segment = segment_of(uri)
    planned = as_json("catch-up", uri, "--dry-run")
    assert planned["segments"] == [{"index": "k_idx", "uuid": segment}]
    shown = done("catch-up", uri, "--dry-run")
    assert shown == f"k_idx: rewrite segment {segment}\n1 segment to rewrite, 200 rows\n"
    assert as_json("trim", uri, "--dry-run")["needed"] == [move["dataset_version"]]
    assert done("trim", uri, "--dry-run") == "0 compactions to remove, 1 needed by index files\n"
    assert as_json("catch-up", uri)["segments_written"] == len(planned["segments"])
    assert as_json("catch-up", uri, "--dry-run")["segments"] == []
    assert done("trim", uri, "--dry-run") == f"1 compaction to remove (of version {move['dataset_version']})\n"
    assert as_json("trim", uri, "--dry-run")["removable"] == [move["dataset_version"]]
    assert as_json("trim", uri)["versions_removed"] == 1


def test_audit_repair(uri: str) -> None:
    assert "would repair" not in done("audit", uri, "--repair", "--dry-run")
    (Path(uri) / "_indices" / segment_of(uri) / "page_data.lance").unlink()
    before = files(uri)
    planned = run("audit", uri, "--repair", "--dry-run")
    assert planned.exit_code == 1
    assert "would repair k_idx: its wrong segments are built from the data" in planned.stdout
    said = json.loads(run("audit", uri, "--repair", "--dry-run", "--output", "json").stdout)
    assert (said["ok"], said["repaired"], [f["action"] for f in said["findings"]]) == (False, [], ["rebuild"])
    assert files(uri) == before
    assert run("audit", uri, "--repair").exit_code == 0

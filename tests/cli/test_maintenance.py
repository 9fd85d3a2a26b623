"""The commands that keep a table in shape: what they do, what they print, and what they refuse."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import BuildFailed, CommitConflict
from pennon.jobs.maintain import MaintenancePolicy
from pennon.table import Table
from tests.support.cli import as_json, done, run
from tests.support.tables import full_scan, stock_answer

pytestmark = pytest.mark.usefixtures("process_engine")


def rows(start: int, count: int) -> pa.Table:
    return pa.table({"id": range(start, start + count), "k": [i % 10 for i in range(start, start + count)]})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """200 rows in 5 fragments, all of them under a B-tree on k."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 200), path, max_rows_per_file=40)
    assert run("create-index", path, "k").exit_code == 0
    return path


def append(uri: str, start: int, count: int) -> None:
    lance.write_dataset(rows(start, count), uri, mode="append")


def fragments(uri: str) -> int:
    return len(lance.dataset(uri).get_fragments())


def check_answers(uri: str) -> None:
    """By the indices, Pennon's answers and stock's are those of a full scan."""
    for value in range(10):
        filter = f"k = {value}"
        answer = as_json("scan", uri, "--filter", filter, "--columns", "id", "--limit", "1000")
        found = [row["id"] for row in answer["rows"]]
        assert sorted(found) == full_scan(uri, filter) == stock_answer(uri, filter)[0]


def segments(uri: str, name: str = "k_idx") -> int:
    return next(len(index["segments"]) for index in as_json("indices", uri)["indices"] if index["name"] == name)


def test_optimize_covers_what_is_new(uri: str) -> None:
    append(uri, 200, 10)
    version = lance.dataset(uri).version
    planned = as_json("optimize", uri, "--dry-run")
    assert (planned["version"], lance.dataset(uri).version) == (version, version)
    [step] = planned["steps"]
    assert (step["index"], step["action"], step["segments_after"], step["rows"]) == ("k_idx", "add a delta", 2, 10)
    shown = done("optimize", uri)
    assert "k_idx: add a delta, 1 segment -> 2" in shown
    assert f"version {lance.dataset(uri).version}" in shown
    assert segments(uri) == 2
    assert "nothing to do" in done("optimize", uri)
    check_answers(uri)


def test_optimize_merges_as_many_segments_as_asked(uri: str) -> None:
    for start in (200, 210, 220):
        append(uri, start, 10)
        done("optimize", uri, "--merge", "0")
    assert segments(uri) == 4
    [step] = as_json("optimize", uri, "--merge", "2")["plan"]["steps"]
    assert (step["action"], step["segments"], step["segments_after"], len(step["replaced"])) == ("merge", 4, 3, 2)
    done("optimize", uri, "--merge", "3")
    assert segments(uri) == 1
    check_answers(uri)


def test_optimize_of_chosen_indices_and_anew(uri: str) -> None:
    done("create-index", uri, "id")
    append(uri, 200, 10)
    assert [step["index"] for step in as_json("optimize", uri, "--index", "id_idx")["plan"]["steps"]] == ["id_idx"]
    both = as_json("optimize", uri, "--index", "id_idx", "--index", "k_idx", "--retrain")["plan"]["steps"]
    assert sorted((step["index"], step["action"]) for step in both) == [("id_idx", "rebuild"), ("k_idx", "rebuild")]
    assert (segments(uri), segments(uri, "id_idx")) == (1, 1)


@pytest.mark.parametrize("remap", ["immediate", "deferred", "drop"])
def test_compact_in_every_mode(uri: str, remap: str) -> None:
    lance.dataset(uri).delete("id % 4 = 0")
    planned = as_json("compact", uri, "--remap", remap, "--dry-run")
    assert (planned["fragments"], planned["rows"], planned["deleted_rows"], planned["remap"]) == (5, 150, 50, remap)
    assert fragments(uri) == 5
    done_ = as_json("compact", uri, "--remap", remap)
    assert (fragments(uri), done_["version_after"]) == (1, lance.dataset(uri).version)
    [index] = as_json("indices", uri)["indices"]
    assert index["coverage"] == (0.0 if remap == "drop" else 1.0)
    assert (as_json("fragment-reuse", uri)["depth"] > 0) == (remap == "deferred")
    assert "nothing to rewrite" in done("compact", uri, "--remap", remap)
    check_answers(uri)


def test_compact_makes_fragments_of_the_size_asked_for(uri: str) -> None:
    assert "5 fragments" in done("compact", uri, "--target-rows-per-fragment", "100")
    assert fragments(uri) == 2
    lance.dataset(uri).delete("id % 20 = 0")
    assert "nothing to rewrite" in done("compact", uri, "--target-rows-per-fragment", "100")
    shown = done("compact", uri, "--target-rows-per-fragment", "100", "--deletions-threshold", "0.01")
    assert "10 deleted rows dropped" in shown
    check_answers(uri)


@pytest.mark.parametrize("threshold", ["0", "0.0"])
def test_a_threshold_of_zero_drops_every_deleted_row_as_pylance_does(uri: str, threshold: str, tmp_path: Path) -> None:
    """Fragments of full size, one of which lacks one row: by every way that leads to a compaction."""
    lance.dataset(uri).delete("id = 7")
    options = {"target_rows_per_fragment": 40, "materialize_deletions_threshold": float(threshold)}
    copies = [str(shutil.copytree(uri, tmp_path / f"{number}.lance")) for number in range(4)]
    lance.dataset(uri).optimize.compact_files(**options)
    expected = live_and_deleted(uri)
    assert expected == [(39, 0), *[(40, 0)] * 4]
    chosen = ["--target-rows-per-fragment", "40", "--deletions-threshold", threshold]
    assert "1 deleted rows dropped" in done("compact", copies[0], *chosen)
    done("maintain", copies[1], *chosen)
    pennon.open(copies[2]).compact(target_rows_per_fragment=40, materialize_deletions_threshold=int(float(threshold)))
    policy = MaintenancePolicy(target_rows_per_fragment=40, materialize_deletions_threshold=int(float(threshold)))
    assert pennon.open(copies[3]).maintain(policy).failed == ()
    for copy in copies:
        assert live_and_deleted(copy) == expected
        check_answers(copy)


def live_and_deleted(uri: str) -> list[tuple[int, int]]:
    found = lance.dataset(uri).get_fragments()
    return sorted((fragment.count_rows(), fragment.num_deletions) for fragment in found)


def test_the_life_of_a_fragment_reuse_index(uri: str) -> None:
    assert "has no Fragment Reuse Index" in done("fragment-reuse", uri)
    assert "Fragment Reuse" not in done("indices", uri)
    done("compact", uri, "--remap", "deferred")
    assert "Fragment Reuse Index: 1 compaction recorded" in done("indices", uri)
    assert len(as_json("indices", uri)["indices"]) == 1
    assert "old fragments" in done("fragment-reuse", uri)
    reuse = as_json("fragment-reuse", uri)
    assert (reuse["depth"], reuse["tagged"]) == (1, False)
    assert reuse["size_bytes"] > 0
    [version] = reuse["versions"]
    assert (version["groups"], version["old_fragments"], version["new_fragments"]) == (1, 5, 1)

    trimmed = as_json("trim", uri)
    assert (trimmed["status"], trimmed["versions_removed"], trimmed["versions_left"]) == ("nothing to do", 0, 1)
    assert "0 compactions removed, 1 needed by index files" in done("trim", uri)
    caught_up = as_json("catch-up", uri)
    assert (caught_up["segments_written"], caught_up["version_after"]) == (1, lance.dataset(uri).version)
    assert "0 segments rewritten" in done("catch-up", uri)
    assert "1 compaction removed; version" in done("trim", uri)
    assert as_json("fragment-reuse", uri)["depth"] == 0
    check_answers(uri)


def test_maintain_does_what_is_due_and_says_why(uri: str) -> None:
    append(uri, 200, 100)
    planned = as_json("maintain", uri, "--dry-run")
    due = {decision["step"]: decision["due"] for decision in planned["decisions"]}
    assert due == {
        "compact": True,
        "optimize": True,
        "catch up": False,
        "trim": False,
        "orphans": False,
        "versions": False,
    }
    assert not any(decision["outcome"] for decision in planned["decisions"])
    assert fragments(uri) == 6
    shown = done("maintain", uri)
    assert "compact    due: 6 fragments" in shown
    assert "optimize   due" in shown
    assert [d for d in as_json("maintain", uri)["decisions"] if d["due"]] == []
    [index] = as_json("indices", uri)["indices"]
    assert index["coverage"] == 1.0
    check_answers(uri)


def without_a_file(uri: str) -> None:
    """Rows are appended that no index covers, and their data file is lost."""
    before = set(Path(uri, "data").iterdir())
    append(uri, 200, 10)
    [lost] = set(Path(uri, "data").iterdir()) - before
    lost.unlink()


def test_a_step_that_fails_is_exit_code_1(uri: str) -> None:
    done("compact", uri, "--remap", "deferred")
    without_a_file(uri)
    options = ("--no-compact", "--max-reuse-versions", "0")
    shown = run("maintain", uri, *options)
    assert shown.exit_code == 1
    assert "-> failed: " in shown.stdout
    assert (shown.stderr.count("error:"), "Traceback" in shown.output) == (0, False)
    failed = run("maintain", uri, *options, "--output", "json")
    assert failed.exit_code == 1
    steps = {d["step"]: d for d in json.loads(failed.stdout)["decisions"]}
    assert {step: d["status"] for step, d in steps.items()} == {
        "compact": "not due",
        "optimize": "failed",
        "catch up": "not due",  # done before
        "trim": "not due",
        "orphans": "not due",
        "versions": "not due",
    }
    assert steps["optimize"]["outcome"].startswith("failed: ")
    # The other steps were done all the same.
    assert "catch up   due" in shown.stdout
    assert as_json("fragment-reuse", uri)["depth"] == 0


def test_a_plan_of_maintenance_has_a_status_for_each_step(uri: str) -> None:
    append(uri, 200, 100)
    planned = as_json("maintain", uri, "--dry-run")["decisions"]
    assert {d["status"] for d in planned} == {"due", "not due"}
    ended = as_json("maintain", uri)["decisions"]
    assert [d["status"] for d in ended][:3] == ["done", "done", "not due"]


def test_passes_go_on_after_a_step_that_fails(uri: str) -> None:
    without_a_file(uri)
    with mock.patch("pennon.cli.maintain.sleep"):
        result = run("maintain", uri, "--every", "10m", "--passes", "2", "--no-compact", "--output", "json")
    assert result.exit_code == 0
    passes = [json.loads(line) for line in result.stdout.splitlines()]
    assert [[d["status"] for d in each["decisions"]].count("failed") for each in passes] == [1, 1]


def test_a_conflict_with_other_writers_is_no_failure(uri: str) -> None:
    append(uri, 200, 10)
    with mock.patch("pennon.jobs.maintain.optimize", side_effect=CommitConflict("in the way")):
        result = run("maintain", uri, "--no-compact", "--output", "json")
    assert result.exit_code == 0
    assert [d["status"] for d in json.loads(result.stdout)["decisions"] if d["due"]] == ["conflict"]


def test_a_policy_that_leaves_everything_undone(uri: str) -> None:
    append(uri, 200, 10)
    off = as_json("maintain", uri, "--no-compact", "--no-optimize", "--no-catch-up", "--keep-orphans")
    assert [d["step"] for d in off["decisions"] if d["due"]] == []
    assert "1,000 of them" not in done("maintain", uri, "--no-optimize", "--min-fragments-to-compact", "1000")
    assert fragments(uri) == 6


def policy_of(*arguments: str) -> MaintenancePolicy:
    with mock.patch.object(Table, "maintain", side_effect=BuildFailed("seen")) as maintain:
        run("maintain", *arguments)
    return maintain.call_args.args[0]


def test_options_are_the_policy(uri: str) -> None:
    assert policy_of(uri) == MaintenancePolicy()
    options = "--remap deferred --target-rows-per-fragment 50 --deletions-threshold 0.5 --min-fragments-to-compact 2"
    options += " --no-optimize --max-reuse-versions 7 --max-reuse-bytes 900 --orphan-age 2d --version-age 30d"
    assert policy_of(uri, *options.split()) == MaintenancePolicy(
        "deferred", 50, 0.5, 2, False, 7, 900, 2 * 86_400.0, 30 * 86_400.0
    )
    none = policy_of(uri, "--no-compact", "--no-catch-up", "--keep-orphans")
    assert (none.min_fragments_to_compact, none.max_reuse_versions, none.orphan_age_seconds) == (None, None, None)


def test_every_so_often_until_told_to_stop(uri: str) -> None:
    append(uri, 200, 10)
    with mock.patch("pennon.cli.maintain.sleep") as sleep:
        shown = done("maintain", uri, "--every", "10m", "--passes", "2", "--no-compact")
    assert shown.count(", version ") == 2
    assert "optimize   due" in shown
    [pause] = sleep.call_args_list
    assert 0 < pause.args[0] <= 600
    with mock.patch("pennon.cli.maintain.sleep"):
        lines = done("maintain", uri, "--every", "10m", "--passes", "2", "--dry-run", "--output", "json").splitlines()
    fields = {"time", "pass", "failures", "status", "table", "version", "failed", "decisions", "work"}
    assert [set(json.loads(line)) for line in lines] == [fields] * 2


def test_a_pass_that_fails_is_told_and_survived(uri: str) -> None:
    maintain = Table.maintain
    outcomes = iter([CommitConflict("in the way"), BuildFailed("did not fit"), None])

    def stumbling(table: Table, *arguments: Any, **options: Any) -> Any:
        if (error := next(outcomes)) is not None:
            raise error
        return maintain(table, *arguments, **options)

    with (
        mock.patch.object(Table, "maintain", stumbling),
        mock.patch("pennon.cli.maintain.sleep"),
    ):
        result = run("maintain", uri, "--every", "30s", "--passes", "3", "--no-compact")
    assert result.exit_code == 0
    assert [line.split(" ", 1)[1] for line in result.stderr.splitlines()] == [
        "error: in the way",
        "error: did not fit",
    ]
    assert result.stdout.count(", version ") == 1
    with (
        mock.patch.object(Table, "maintain", side_effect=CommitConflict("in the way")),
        mock.patch("pennon.cli.maintain.sleep"),
    ):
        failed = json.loads(done("maintain", uri, "--every", "30s", "--passes", "1", "--output", "json"))
        assert (failed["error"], failed["table"]) == ("in the way", uri)
        assert run("maintain", uri).exit_code == 1


def test_an_interrupt_ends_the_passes(uri: str) -> None:
    with mock.patch("pennon.cli.maintain.sleep", side_effect=KeyboardInterrupt):
        result = run("maintain", uri, "--every", "1d", "--dry-run")
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert "Traceback" not in result.output


def test_update_in_place(uri: str) -> None:
    version = lance.dataset(uri).version
    assert "40 rows updated; version" in done("update", uri, "k=k + 1", "--where", "id < 40", "--in-place")
    [index] = as_json("indices", uri)["indices"]
    assert index["uncovered_fragments"] == [0]
    assert done("scan", uri, "--filter", "k = 10", "--count").strip() == "4"
    check_answers(uri)
    assert lance.dataset(uri).version == version + 1
    done("optimize", uri)
    [index] = as_json("indices", uri)["indices"]
    assert (index["coverage"], len(index["segments"])) == (1.0, 1)
    check_answers(uri)
    changed = as_json("update", uri, "k=-k", "--where", "true", "--in-place")
    assert (changed["rows_updated"], changed["fragments"]) == (200, [0, 1, 2, 3, 4])
    unchanged = as_json("update", uri, "k=0", "--where", "id < 0", "--in-place")
    assert (unchanged["status"], unchanged["rows_updated"], unchanged["fragments"]) == ("nothing to do", 0, [])
    assert unchanged["version_after"] == changed["version_after"]
    check_answers(uri)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["optimize", "nowhere.lance"], 1, f"error: there is no Lance table at {Path('nowhere.lance').absolute()}"),
        (["optimize", "URI", "--index", "nope"], 1, "no index 'nope'"),
        (["optimize", "URI", "--merge", "-1"], 2, "--merge"),
        (["optimize", "URI", "--merge", "2", "--retrain"], 2, "exclude each other"),
        (["compact", "URI", "--remap", "later"], 2, "'later' is not one of"),
        (["compact", "URI", "--target-rows-per-fragment", "0"], 2, "0 is not in the range"),
        (["compact", "URI", "--deletions-threshold", "1.5"], 2, "1.5 is not in the range"),
        (["maintain", "URI", "--every", "10"], 2, "write it like 30s, 10m, 2h or 1d"),
        (["maintain", "URI", "--every", "10w"], 2, "'10w' is not a duration"),
        (["maintain", "URI", "--every", "0s"], 2, "'0s' is not a duration"),
        (["maintain", "URI", "--orphan-age", "-3d"], 2, "'-3d' is not a duration"),
        (["maintain", "URI", "--orphan-age", "2h"], 1, "may be what a running job is about to commit"),
        (["maintain", "URI", "--version-age", "1.5h"], 2, "'1.5h' is not a duration"),
        (["maintain", "nowhere.lance", "--every", "10m"], 1, "error: there is no Lance table"),
        (["update", "URI", "q=1", "--where", "true"], 1, "error: "),
        (
            ["update", "URI", "k=q + 1", "--where", "true", "--in-place"],
            1,
            "error: the new value of 'k' names a column that the table does not",
        ),
        (["update", "URI", "k=1", "--where", "k", "--in-place"], 1, "'k' is not a condition"),
        (
            ["update", "URI", "k=q + 1", "--where", "true"],
            1,
            "error: the new value of 'k' names a column that the table does not have: q. Did you",
        ),
        (["update", "URI"], 2, "Missing argument 'COLUMN=EXPRESSION...'"),
        # A filter given by position would be a second column to set, in all rows.
        (["update", "URI", "k=1", "id = 3"], 2, "Missing option '--where'"),
        (["delete", "URI", "q = 1"], 1, "error: "),
        (["delete", "URI"], 2, "give the rows to delete as one filter"),
        (["delete", "URI", "k = 1", "--where", "k = 2"], 2, "give the rows to delete as one filter"),
        (["delete", "URI", "--where", "q = 1"], 1, "error: the filter names a column"),
        (["scan", "URI", "k = 1"], 2, 'unexpected extra argument (k = 1). Give a filter as --filter "'),
        (["trim", "URI", "k = 1"], 2, "unexpected extra argument (k = 1)\n"),
        (["merge", "URI", "nowhere.lance", "--on", "id"], 1, "error: "),
        (["trim"], 2, "Missing argument"),
        (["catch-up", "URI", "--storage-option", "secretkey"], 1, "KEY=VALUE"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(arguments: list[str], code: int, message: str, uri: str) -> None:
    version = lance.dataset(uri).version
    result = run(*[uri if a == "URI" else a for a in arguments])
    assert result.exit_code == code, result.output
    assert message in result.output
    assert "Traceback" not in result.output
    assert "secretkey" not in result.output
    assert lance.dataset(uri).version == version


def test_stable_row_ids_follow_without_moves(tmp_path: Path) -> None:
    uri = str(tmp_path / "s.lance")
    lance.write_dataset(rows(0, 200), uri, max_rows_per_file=40, enable_stable_row_ids=True)
    done("create-index", uri, "k")
    refused = run("compact", uri, "--remap", "deferred")
    assert (refused.exit_code, "stable row ids" in refused.output) == (1, True)
    assert "compact    due" in done("maintain", uri, "--remap", "deferred")
    assert as_json("fragment-reuse", uri)["depth"] == 0
    check_answers(uri)


@pytest.mark.process
def test_plans_do_not_import_spark(uri: str) -> None:
    append(uri, 200, 10)
    commands = [[verb, uri, "--dry-run"] for verb in ("optimize", "compact", "maintain")]
    commands += [[verb, uri] for verb in ("fragment-reuse", "catch-up", "trim")]
    runs = [f"main({command!r}, standalone_mode=False)" for command in commands]
    lines = ["import sys; from pennon.cli import main", *runs, "assert 'pyspark' not in sys.modules"]
    ran = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")

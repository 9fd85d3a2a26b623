"""Long verbs say how far they are: bars on a terminal, lines in a log, and never among the results."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from pennon.cli import main
from pennon.index.vector.vectors import to_lists

CODES = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result


def rows(start: int, count: int) -> pa.Table:
    return pa.table({"id": range(start, start + count), "k": [i % 10 for i in range(start, start + count)]})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 200), path, max_rows_per_file=40)
    return path


def indexed(uri: str) -> None:
    run("create-index", uri, "k", "--quiet")


def appended(uri: str) -> None:
    indexed(uri)
    lance.write_dataset(rows(200, 10), uri, mode="append")


def moved(uri: str) -> None:
    indexed(uri)
    run("compact", uri, "--remap", "deferred", "--quiet")


LONG: list[tuple[Callable[[str], None] | None, list[str], list[tuple[str, int]]]] = [
    (None, ["create-index", "URI", "k"], [("build", 200)]),
    (appended, ["optimize", "URI"], [("build", 10)]),
    (indexed, ["compact", "URI"], [("compact", 200)]),
    (moved, ["catch-up", "URI"], [("addresses", 200), ("merge", 200)]),
    (moved, ["trim", "URI"], [("addresses", 200)]),
    (indexed, ["maintain", "URI"], [("compact", 200)]),
    (indexed, ["audit", "URI"], [("table rows", 200), ("index rows", 200)]),
    (None, ["update", "URI", "k=k + 1", "--where", "true", "--in-place"], [("update", 200)]),
    (None, ["update", "URI", "k=k + 1", "--where", "true"], [("update rows", 200)]),
    (None, ["delete", "URI", "k > 1"], [("find rows", 200)]),
    (None, ["merge", "URI", "URI", "--on", "id"], [("merge: map", 400)]),
]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("prepare", "arguments", "stages"), LONG, ids=[each[1][0] for each in LONG])
def test_every_long_verb_in_a_log(
    prepare: Callable[[str], None] | None, arguments: list[str], stages: list[tuple[str, int]], uri: str
) -> None:
    if prepare:
        prepare(uri)
    result = run(*[uri if a == "URI" else a for a in arguments], "--output", "json")
    json.loads(result.stdout)
    for name, count in stages:
        assert re.search(rf"^{name}: \d+ tasks?, {count} rows$", result.stderr, re.MULTILINE), result.stderr
        done = rf"^{name}: done, {count} rows, \d+\.\d s, [\d,]+ rows/s$"
        assert re.search(done, result.stderr, re.MULTILINE), result.stderr
    assert len(result.stderr.splitlines()) <= 16
    assert "\x1b" not in result.stderr


@pytest.mark.usefixtures("engine")
def test_the_stages_of_a_vector_index(tmp_path: Path) -> None:
    uri = str(tmp_path / "v.lance")
    vectors = np.random.default_rng(0).standard_normal((2000, 8)).astype(np.float32)
    lance.write_dataset(pa.table({"v": to_lists(vectors)}), uri)
    said = run("create-index", uri, "v", "--type", "ivf_pq", "--num-partitions", "4").stderr
    begun = [line.rpartition(": ")[0] for line in said.splitlines() if re.search(r": \d+ tasks?", line)]
    assert begun == ["sample", "train", "train quantizer", "build: map", "build: reduce"]
    assert "build: map: done, 2,000 rows, " in said


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("arguments", [["--quiet", "create-index"], ["create-index", "--quiet"]])
def test_quiet(arguments: list[str], uri: str) -> None:
    assert run(*arguments, uri, "k").stderr == ""


@pytest.mark.heavy
@pytest.mark.process
def test_bars_on_a_terminal_and_results_apart(tmp_path: Path) -> None:
    """A real terminal, and a process of its own that starts its own Spark."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"k": np.random.default_rng(0).integers(0, 1 << 40, 3_000_000)}), uri)
    code = "from pennon.cli import main; main()"
    command = [sys.executable, "-c", code, "create-index", uri, "k", "--ranges", "4", "--output", "json"]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "PENNON_LOCAL_CORES": "2"}
    with (tmp_path / "out.json").open("wb") as out:
        build = subprocess.Popen(command, stdout=out, stderr=theirs, stdin=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:
        pass  # Linux says so when the other end is closed
    finally:
        os.close(ours)
    assert build.wait(300) == 0, shown
    raw = shown.decode()
    plain = CODES.sub("", raw)
    assert "\x1b[2K" in raw, "no line was drawn anew"
    assert re.search(r"start Spark ━+ 0/1 +0:00:0\d", plain)
    assert re.search(r"build: (map|reduce) [━╸╺]+ 0/\d+ 0/3\.0M rows +0:00:0\d", plain), plain
    result = json.loads((tmp_path / "out.json").read_text())
    assert (result["index"]["name"], result["index"]["rows_covered"]) == ("k_idx", 3_000_000)

"""`pennon audit`: what it prints and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from pennon.cli import main
from tests.support.tables import full_scan, stock_answer

pytestmark = pytest.mark.usefixtures("process_engine")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["--quiet", *arguments])


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    table = pa.table({"id": range(200), "k": [i % 10 for i in range(200)]})
    lance.write_dataset(table, path, max_rows_per_file=50)
    assert run("create-index", path, "k").exit_code == 0
    assert run("create-index", path, "id").exit_code == 0
    return path


def test_a_sound_table(uri: str) -> None:
    result = run("audit", uri)
    assert result.exit_code == 0
    assert result.output.startswith("2 indices, 2 segments, 400 rows compared in ")
    assert "every index agrees with the table" in result.output
    said = json.loads(run("audit", uri, "--sample", "0.5", "--index", "k_idx", "--output", "json").stdout)
    assert (said["ok"], said["indices"], said["rows_compared"], said["findings"]) == (True, 1, 100, [])


def test_damage_is_told_and_repaired(uri: str) -> None:
    segment = json.loads(run("indices", uri, "--output", "json").stdout)["indices"][0]["segments"][0]["uuid"]
    (Path(uri) / "_indices" / segment / "page_data.lance").unlink()
    result = run("audit", uri)
    assert result.exit_code == 1
    assert (
        f"error     k_idx: {uri}/_indices/{segment}/page_data.lance is missing (segment {segment[:8]}). "
        in result.output
    )
    assert "`pennon audit --repair` builds it from the data" in result.output
    said = json.loads(run("audit", uri, "--output", "json").stdout)
    assert (said["ok"], [f["action"] for f in said["findings"]]) == (False, ["rebuild"])
    result = run("audit", uri, "--repair")
    assert result.exit_code == 0
    assert "repaired  k_idx: " in result.output
    assert stock_answer(uri, "k = 3") == (full_scan(uri, "k = 3"), True)


def test_wrong_usage(uri: str) -> None:
    result = run("audit", uri, "--sample", "2")
    assert (result.exit_code, result.output) == (1, "error: sample must be above 0 and at most 1, but is 2.0\n")
    assert "no index 'x'" in run("audit", uri, "--index", "x").output

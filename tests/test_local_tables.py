"""A table opened with engine="local" does all of its work in this process, and the same work as on Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import faiss
import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

import pennon
from pennon.engine import LocalEngine, SparkEngine
from pennon.errors import InvalidArgument, SparkUnavailable
from pennon.index.threads import cores
from tests.support.cli import run
from tests.support.processes import ROOT
from tests.support.tables import full_scan

ROWS, FRAGMENTS = 4000, 4
CONDITIONS = ("k = 7", "k < 100", "k >= 900", "k is null")
INDICES: list[tuple[str, str, dict[str, Any]]] = [
    ("k", "BTREE", {"ranges": 3}),
    ("k", "BTREE", {}),
    ("v", "IVF_FLAT", {"num_partitions": 8}),
    ("v", "IVF_PQ", {"num_partitions": 8, "num_sub_vectors": 4}),
    ("v", "IVF_SQ", {"num_partitions": 8}),
    ("v", "IVF_RQ", {"num_partitions": 8}),
    ("v", "IVF_HNSW_FLAT", {"num_partitions": 4}),
    ("v", "IVF_HNSW_PQ", {"num_partitions": 4, "num_sub_vectors": 4}),
    ("v", "IVF_HNSW_SQ", {"num_partitions": 4}),
]


def rows(start: int, count: int) -> pa.Table:
    rng = np.random.default_rng(start)
    k = rng.integers(0, 1000, count)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(count * 16, np.float32)), 16)
    return pa.table({"id": np.arange(start, start + count), "k": pa.array(k, mask=k % 25 == 0), "v": vectors})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    lance.write_dataset(rows(0, ROWS), tmp_path / "t.lance", max_rows_per_file=ROWS // FRAGMENTS)
    return str(tmp_path / "t.lance")


def contents(uri: str) -> list[Any]:
    """What the files of an index hold: pages to the byte, the others as they are read, because Lance writes metadata in
    any order. Names of pages and checksums go with the segment's random uuid."""
    [directory] = Path(uri, "_indices").iterdir()
    pages = sorted(path.read_bytes() for path in directory.glob("*page_data.lance"))
    others = [path for path in sorted(directory.iterdir()) if "page_data" not in path.name and path.suffix != ".json"]
    assert others
    return [pages, *(_read(path) for path in others)]


def _read(path: Path) -> tuple[Any, ...]:
    reader = LanceFileReader(str(path))
    metadata = reader.metadata()
    named = (b"per_range_partition", b"pennon:digest")
    schema = {key: value for key, value in metadata.schema.metadata.items() if not any(name in key for name in named)}
    buffers = [reader.read_global_buffer(number) for number in range(1, len(metadata.global_buffers))]
    return path.name, schema, buffers, reader.read_all().to_table().replace_schema_metadata().to_pylist()


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("column", "kind", "options"), INDICES)
def test_an_index_is_that_of_spark(uri: str, column: str, kind: str, options: dict[str, Any]) -> None:
    copy = f"{uri}.copy"
    shutil.copytree(uri, copy)
    on_spark, local = pennon.open(uri), pennon.open(copy, engine="local")
    for table in (on_spark, local):
        table.create_index(column, kind, rows_per_task=1000, **options)
    assert on_spark.engine.parallelism == local.engine.parallelism
    assert contents(uri) == contents(copy)


@pytest.mark.parametrize(("column", "kind", "options"), INDICES)
def test_an_index_is_the_same_every_time(uri: str, column: str, kind: str, options: dict[str, Any]) -> None:
    found: list[list[Any]] = []
    for number in range(2):
        copy = f"{uri}.{number}"
        shutil.copytree(uri, copy)
        pennon.open(copy, engine="local").create_index(column, kind, rows_per_task=500, **options)
        found.append(contents(copy))
    assert found[0] == found[1]


def use_every_verb(uri: str) -> None:
    table = pennon.open(uri)
    assert isinstance(table.engine, LocalEngine)
    table.create_index("k", ranges=3, rows_per_task=500)
    table.create_index("v", "IVF_PQ", num_partitions=8, num_sub_vectors=4, rows_per_task=500)
    table.create_index("v", "IVF_HNSW_SQ", "graphs", num_partitions=4, rows_per_task=500)
    for start in (ROWS, 2 * ROWS):
        lance.write_dataset(rows(start, 500), uri, mode="append")
        table.optimize_indices()
    lance.dataset(uri).delete("id % 7 = 3")
    table.update_column("k", "k + 1", where="id < 100")
    table.optimize_indices(num_indices_to_merge=9)
    table.compact(target_rows_per_fragment=2000)
    lance.write_dataset(rows(3 * ROWS, 500), uri, mode="append")
    table.optimize_indices()
    table.compact(remap="deferred", target_rows_per_fragment=9000)
    table.plan_catch_up(), table.plan_trim()
    table.catch_up_indices()
    table.trim_fragment_reuse()
    table.optimize_indices(retrain=True)
    table.maintain()
    table.report()
    report = table.audit(recall_queries=20)
    assert not [finding for finding in report.findings if finding.severity == "error"], report
    for condition in CONDITIONS:
        assert sorted(table.scan(condition, ["id"])["id"].to_pylist()) == full_scan(uri, condition), condition
    [query] = table.scan("id = 5", ["v"])["v"]
    exact = table.search("v", query, columns=["id"], use_index=False)["id"].to_pylist()
    found = table.search("v", query, columns=["id"], nprobes=8, refine_factor=20)["id"].to_pylist()
    assert len(set(exact) & set(found)) >= 9


@pytest.mark.process
@pytest.mark.parametrize("threads_of_pylance", ["1", "4"])
def test_every_verb_without_spark(uri: str, threads_of_pylance: str) -> None:
    """With one thread of pylance's too: what kept the GIL while it waits for that thread would stop the process."""
    environment = {"PENNON_ENGINE": "local", "PENNON_LOCAL_CORES": "4", "TOKIO_WORKER_THREADS": threads_of_pylance}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.test_local_tables", uri],
        env=os.environ | environment | {"JAVA_HOME": "/nowhere"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "without Spark"), ended.stderr[-3000:]


def test_an_argument_goes_before_the_environment(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(pennon.open(uri).engine, SparkEngine)
    monkeypatch.setenv("PENNON_ENGINE", "local")
    # Only its class is looked at before work begins.
    session: Any = type("SparkSession", (), {"__module__": "pyspark.sql.session"})()
    assert isinstance(pennon.open(uri).engine, LocalEngine)
    assert isinstance(pennon.open(uri, engine="spark").engine, SparkEngine)
    assert isinstance(pennon.open(uri, spark=session).engine, SparkEngine)
    with pytest.raises(InvalidArgument, match="Leave out spark="):
        pennon.open(uri, engine="local", spark=session)


def test_unknown_engines_are_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match=r"unknown engine engine='ray'\. Use spark or local"):
        pennon.open(uri, engine="ray")
    monkeypatch.setenv("PENNON_ENGINE", "dask")
    with pytest.raises(InvalidArgument, match=r"unknown engine PENNON_ENGINE='dask'\. Use spark or local"):
        pennon.open(uri)


def test_a_knn_join_needs_spark(uri: str) -> None:
    frame: Any = None
    with pytest.raises(SparkUnavailable, match=r"knn_join works on Spark DataFrames.*engine='spark'"):
        pennon.open(uri, engine="local").knn_join(frame, "v")


def test_the_command_line_takes_an_engine(uri: str, tmp_path: Path) -> None:
    built = run("create-index", uri, "k", "--engine", "local")
    assert built.exit_code == 0, built.stderr
    assert run("scan", uri, "--filter", "k = 7", "--count", "--engine", "local").stdout.strip() == str(
        len(full_scan(uri, "k = 7"))
    )
    refused = run("knn-join", uri, "v", "--queries", uri, "-o", str(tmp_path / "out.lance"), "--engine", "local")
    assert refused.exit_code == 1
    assert "--engine spark" in refused.stderr
    assert run("scan", uri, "--engine", "ray").exit_code == 2


def test_a_task_among_others_keeps_to_its_core(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENNON_LOCAL_CORES", "3")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before, meeting = cores(), threading.Barrier(3, timeout=20)

    def look(_: int) -> tuple[int, int]:
        meeting.wait()
        seen = cores(), faiss.omp_get_max_threads()
        meeting.wait()
        return seen

    assert pennon.open(uri, engine="local").engine.map("look", look, range(3)) == [(1, 1)] * 3
    assert cores() == before


if __name__ == "__main__":
    use_every_verb(sys.argv[1])
    assert not {"pyspark", "py4j"} & set(sys.modules)
    sys.stdout.write("without Spark\n")

"""Upserts by key into a table in an object store: Pennon's merge, and a Spark join that reads the table.

The server is Ceph's RADOS Gateway on loopback, as in `make test-cluster`, with its objects in a file of TMPDIR.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa

import pennon
import pennon.spark
from bench.harness import Choice, Grid, report_grids, say
from bench.timing import interleaved
from bench.upsert import FRAGMENTS, NAME_BYTES, NEW, SCHEMA, frame_of, joined, rows_of, run, write_source
from pennon.engine import SparkEngine

ROWS = 100_000_000
# Each reads 20 GB through a server on the same two cores.
TURNS = 3
SHARE = 100
# Of the file with the objects, in GiB: the table, its index, and what is merged in every turn.
LEAST_GIB, ROW_BYTES = 8, 300
READ = re.compile(r'beast: .* "GET (\S+) HTTP/[\d.]+" 20\d (\d+)')
HEADER = ("rows merged", "updated", "inserted", "Spark's join s", "merge s", "times the join", "read by merge")


@dataclass(frozen=True)
class Server:
    bucket: str
    storage_options: dict[str, str]
    log: Path

    def read(self, prefixes: set[str]) -> int:
        """Bytes that were sent of objects with these prefixes so far."""
        logged = READ.findall(self.log.read_text("utf-8", "replace"))
        return sum(int(sent) for path, sent in logged if any(path.startswith(prefix) for prefix in prefixes))


def upsert_s3(choice: Choice) -> None:
    rows, turns = choice.rows or ROWS, choice.turns or TURNS
    with _server(LEAST_GIB + (rows * ROW_BYTES >> 30)) as server:
        uri, options = f"s3://{server.bucket}/upsert.lance", server.storage_options
        say(f"table of {rows:,} rows of about {NAME_BYTES + 20} bytes")
        reader = pa.RecordBatchReader.from_batches(SCHEMA, rows_of(rows))
        lance.write_dataset(reader, uri, max_rows_per_file=-(-rows // FRAGMENTS), storage_options=options)
        engine = SparkEngine.attach()
        pennon.spark.register(engine.session)
        pennon.open(uri, storage_options=options).create_index("id")
        dataset = lance.dataset(uri, storage_options=options)
        version = dataset.version
        stored = sum(file.file_size_bytes or 0 for f in dataset.get_fragments() for file in f.data_files())
        target = _objects(server, dataset)
        source = write_source(rows, rows // SHARE, engine.parallelism)

        def restore() -> None:
            current = lance.dataset(uri, storage_options=options)
            if current.version != version:
                current.checkout_version(version).restore()

        def merge() -> pennon.RowsResult[pennon.RowsPlan]:
            return pennon.open(uri, storage_options=options).merge(frame_of(source), on="id", maintain=False)

        before = server.read(target)
        done = merge()
        share = f"{(server.read(target) - before) / stored:.2%} of the table's bytes"
        say(f"{done.rows_updated:,} updated, {share}")
        work: dict[str, Callable[[], object]] = {"joined": lambda: run(joined(uri, source, options)), "merged": merge}
        taken = interleaved(work, turns, restore)
        engine.stop()
    join, own = taken["joined"], taken["merged"]
    counts = f"{rows // SHARE:,}", f"{done.rows_updated:,}", f"{done.rows_inserted:,}"
    grid = [(*counts, f"{join:.1f}", f"{own:.1f}", f"{join.over(own):.1f}", share)]
    report_grids(
        "upsert-s3",
        f"Upsert in an object store, {rows:,} rows in {FRAGMENTS} fragments, a B-tree on the key",
        [Grid(HEADER, grid, f"{turns} turns")],
        note=f"One row in {NEW} is new. What is read is the bytes of the table's data files and of its index in the "
        "server's log. The server has its objects in a file and shares the two cores. Spark's join reads the table "
        "through Pennon's data source, replaces rows by those of the source, and writes nothing.",
        keep=choice.keep,
    )


def _objects(server: Server, dataset: lance.LanceDataset) -> set[str]:
    """Paths of the data files, and of the directories of indices, of a version."""
    root = f"/{server.bucket}/upsert.lance"
    files = {f"{root}/data/{file.path}" for f in dataset.get_fragments() for file in f.data_files()}
    return files | {
        f"{root}/_indices/{segment.uuid}/" for index in dataset.describe_indices() for segment in index.segments
    }


@contextmanager
def _server(gib: int) -> Generator[Server]:
    """In a process of its own: the tests set threads as tests need them."""
    command = [sys.executable, "-m", "tests.support.real_s3", str(gib)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        reached = json.loads(process.stdout.readline())
        yield Server(reached["bucket"], reached["storage_options"], Path(reached["log"]))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)

"""What would break first: manifests of many fragments, results of many ranges, requests to an object store.

The tables are simulated where real ones would not fit: all fragments of the first are one and the same data file.
"""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata

import pennon
from bench.harness import Choice, Grid, fresh, peak_memory, report_grids, say
from bench.lookup import page_stats
from bench.timing import Timing, interleaved
from pennon.index.cache import SHARED_CACHE
from pennon.index.vector.vectors import to_lists

FRAGMENTS = (1_000, 10_000, 100_000)
FRAGMENT_ROWS = 100
RANGE_PAGES = 2442
RANGES = 1000
STORED_ROWS, STORED_FRAGMENTS, STORED_RANGES = 80_000, 16, 8
BUCKET = "pennon-bench"


def limits(choice: Choice) -> None:
    sizes = FRAGMENTS if choice.keep else FRAGMENTS[:2]
    grids = [
        Grid(
            (
                "fragments",
                "manifest MiB",
                "pylance open s",
                "open s",
                "plan s",
                "build s",
                "cold lookup ms",
                "driver GiB",
            ),
            [_manifest(size) for size in sizes],
            f"Fragments of {FRAGMENT_ROWS} rows in one table",
        ),
        Grid(
            ("values", "bytes a page", "KiB a range", f"MiB for {RANGES:,} ranges"),
            [_results(name, values) for name, values in _page_values()],
            f"What ranges of {RANGE_PAGES:,} pages report to the driver",
        ),
        Grid(
            ("step", "read", "head", "list", "write", "delete"),
            _requests(),
            f"Requests to an object store: {STORED_ROWS:,} rows, {STORED_FRAGMENTS} fragments",
        ),
    ]
    report_grids(
        "limits",
        "What would break first",
        grids,
        note="All fragments of a table of the first part are one and the same data file; the builds are real. Requests "
        f"are those a server on loopback logged; the B-tree has {STORED_RANGES} ranges, the IVF_PQ 64 partitions of "
        "16 dimensions.",
        keep=choice.keep,
    )


def _manifest(fragments: int) -> tuple[object, ...]:
    say(f"manifest of {fragments:,} fragments")
    uri = _many_fragments(fragments)
    both = interleaved({"pylance": lambda: lance.dataset(uri), "pennon": lambda: pennon.open(uri)})
    opened_by_pylance, opened = both["pylance"], both["pennon"]
    table = pennon.open(uri)
    planned = _seconds(lambda: table.plan_index("id"))
    pennon.open(_many_fragments(10, "warm-up")).create_index("id")
    with peak_memory() as peaks:
        start = time.perf_counter()
        table.create_index("id")
        built = time.perf_counter() - start
    cold = _seconds(lambda: pennon.open(uri).count("id = 5"))
    size = max(path.stat().st_size for path in Path(uri, "_versions").iterdir())
    return (
        f"{fragments:,}",
        f"{size / 2**20:.1f}",
        f"{opened_by_pylance:.2f}",
        f"{opened:.2f}",
        f"{planned:.2f}",
        f"{built:.1f}",
        f"{cold.times(1000):.0f}",
        f"{peaks.driver:.2f}",
    )


def _many_fragments(fragments: int, name: str = "many-fragments") -> str:
    uri = str(fresh(f"{name}.lance"))
    rng = np.random.default_rng(1)
    rows = pa.table({"id": rng.integers(0, 1 << 40, FRAGMENT_ROWS)})
    dataset = lance.write_dataset(rows, uri)
    one: Any = dataset.get_fragments()[0].metadata
    same = [FragmentMetadata(number, one.files, one.physical_rows) for number in range(fragments)]
    lance.LanceDataset.commit(uri, lance.LanceOperation.Overwrite(dataset.schema, same))
    return uri


def _seconds(work: Callable[[], object]) -> Timing:
    return interleaved({"work": work})["work"]


def _page_values() -> list[tuple[str, pa.Array]]:
    numbers = np.arange(2 * RANGE_PAGES, dtype=np.int64) * 1000
    return [
        ("int64", pa.array(numbers)),
        ("16-byte strings", pa.array([f"{number:016x}" for number in numbers.tolist()])),
        ("256-byte strings", pa.array([f"{number:0256x}" for number in numbers.tolist()])),
    ]


def _results(name: str, values: pa.Array) -> tuple[object, ...]:
    size = len(pickle.dumps(page_stats(0, values), protocol=5))
    return name, f"{size / RANGE_PAGES:.0f}", f"{size / 1024:.0f}", f"{size * RANGES / 2**20:.0f}"


def _requests() -> list[tuple[object, ...]]:
    say("object store")
    rows: list[tuple[object, ...]] = []
    with _object_store() as (options, log):
        uri = f"s3://{BUCKET}/t.lance"
        rng = np.random.default_rng(3)
        vectors = rng.standard_normal((STORED_ROWS, 16), dtype=np.float32)
        data = pa.table({"id": rng.permutation(STORED_ROWS), "v": to_lists(vectors)})
        lance.write_dataset(
            data, uri, max_rows_per_file=STORED_ROWS // STORED_FRAGMENTS, storage_options=options, mode="overwrite"
        )

        def step(name: str, work: Callable[[], object]) -> None:
            before = log.stat().st_size
            work()
            time.sleep(0.2)
            lines = log.read_bytes()[before:].decode(errors="replace")
            rows.append((name, *_counted(lines)))
            say(f"{name}: {rows[-1]}")

        table = pennon.open(uri, storage_options=options)
        step("open", lambda: pennon.open(uri, storage_options=options))
        step("build a B-tree", lambda: table.create_index("id", ranges=STORED_RANGES))
        step("build an IVF_PQ", lambda: table.create_index("v", "IVF_PQ", num_partitions=64, num_sub_vectors=4))
        SHARED_CACHE.clear()
        step("first count by id on an open table", lambda: table.count("id = 7"))
        step("the same again", lambda: table.count("id = 7"))
        step("another id", lambda: table.count("id = 70000"))
        query = vectors[5]
        step("first search, 10 neighbors, 8 probes", lambda: table.search("v", query, nprobes=8, columns=["id"]))
        step("the same again", lambda: table.search("v", query, nprobes=8, columns=["id"]))
        step("open, count by id", lambda: pennon.open(uri, storage_options=options).count("id = 9"))
    return rows


def _counted(log: str) -> tuple[int, ...]:
    """Requests to read, to ask for a size, to list, to write (parts count one by one) and to delete."""
    asked = [line.split('"')[1] for line in log.splitlines() if line.count('"') > 1]
    kinds = [_kind(*request.split()[:2]) for request in asked]
    return tuple(kinds.count(kind) for kind in ("GET", "HEAD", "LIST", "PUT", "DELETE"))


def _kind(method: str, path: str) -> str:
    if method == "POST":
        return "DELETE" if path.endswith("?delete") else "PUT"
    return "LIST" if method == "GET" and "list-type=2" in path else method


@contextmanager
def _object_store() -> Generator[tuple[dict[str, str], Path]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    endpoint = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "requests.log")
        with log.open("wb") as stream:
            server = subprocess.Popen(command, stdout=stream, stderr=stream)
        try:
            for _ in range(200):
                try:
                    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield (
                {
                    "aws_access_key_id": "bench",
                    "aws_secret_access_key": "bench",
                    "aws_endpoint": endpoint,
                    "aws_region": "us-east-1",
                    "allow_http": "true",
                    "aws_virtual_hosted_style_request": "false",
                },
                log,
            )
        finally:
            server.terminate()
            server.wait()

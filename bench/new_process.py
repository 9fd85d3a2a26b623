"""A new process that asks an object store one question: its requests, and its wall time from start to end.

The server is Ceph's RADOS Gateway on loopback, as in `make test-cluster`, which downloads its packages the first time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa

import pennon
from bench.harness import Choice, Grid, report_grids, say
from bench.timing import TURNS, Timing
from pennon.index.vector.vectors import to_lists

if TYPE_CHECKING:
    from tests.support.real_s3 import RealS3

BUCKET = "pennon-test"
ROWS, FRAGMENTS, RANGES, DIMENSION = 80_000, 16, 8, 16
URI = f"s3://{BUCKET}/t.lance"
KEY = 41_237
HEADER = ("question", "requests: pylance", "Pennon", "pylance s", "Pennon s", "speed-up")


@dataclass(frozen=True)
class Question:
    """The same question in the words of both, each to the end of a program that has opened the table."""

    name: str
    pylance: str
    pennon: str


QUESTIONS = (
    Question("count by key", f"table.count_rows('id = {KEY}')", f"table.count('id = {KEY}')"),
    Question(
        "fetch one row",
        f"table.to_table(columns=['id', 'n'], filter='id = {KEY}')",
        f"table.scan('id = {KEY}', ['id', 'n'])",
    ),
    Question(
        "10 neighbors, 8 probes",
        "table.to_table(columns=['id'], nearest={'column': 'v', 'q': [0.1] * 16, 'k': 10, 'nprobes': 8})",
        "table.search('v', [0.1] * 16, 10, nprobes=8, columns=['id'])",
    ),
)


def new_process(choice: Choice) -> None:
    from tests.support.real_s3 import real_s3  # noqa: PLC0415 - which no other measurement needs

    turns = choice.turns or TURNS
    with real_s3() as server:
        _write(server)
        rows = [_compared(server, question, turns) for question in QUESTIONS]
    report_grids(
        "new-process",
        f"A new process that asks an object store, {ROWS:,} rows in {FRAGMENTS} fragments",
        [Grid(HEADER, rows, f"{turns} turns")],
        note=f"The table has a B-tree of {RANGES} ranges and an IVF_PQ of 64 partitions, both built by Pennon. "
        "Requests are those that the server logged for one turn; times include the start of Python and all imports.",
        keep=choice.keep,
    )


def _write(server: RealS3) -> None:
    rng = np.random.default_rng(3)
    vectors = to_lists(rng.standard_normal((ROWS, DIMENSION), dtype=np.float32))
    data = pa.table({"id": rng.permutation(ROWS), "n": np.arange(ROWS), "v": vectors})
    options = server.storage_options
    lance.write_dataset(data, URI, max_rows_per_file=ROWS // FRAGMENTS, storage_options=options)
    table = pennon.open(URI, storage_options=options, engine="local")
    table.create_index("id", ranges=RANGES)
    table.create_index("v", "IVF_PQ", num_partitions=64, num_sub_vectors=4)


def _compared(server: RealS3, question: Question, turns: int) -> tuple[object, ...]:
    open_table = f"({URI!r}, storage_options={server.storage_options!r})"
    programs = {
        "pylance": f"import lance\ntable = lance.dataset{open_table}\n{question.pylance}",
        "Pennon": f"import pennon\ntable = pennon.open{open_table}\n{question.pennon}",
    }
    requests = {name: _requests(server, code) for name, code in programs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(turns):
        for name, code in programs.items():
            start = time.perf_counter()
            _run(code)
            seconds[name].append(time.perf_counter() - start)
    theirs, ours = (Timing(tuple(taken)) for taken in seconds.values())
    say(f"{question.name}: {requests}, {theirs:.2f} and {ours:.2f} s")
    times = f"{theirs:.2f}", f"{ours:.2f}", f"{theirs.over(ours):.2f}"
    return question.name, requests["pylance"], requests["Pennon"], *times


def _requests(server: RealS3, code: str) -> int:
    """Requests of a program, those to list objects included."""
    before = len(_logged(server))
    _run(code)
    return len(_logged(server)) - before


def _logged(server: RealS3) -> list[str]:
    from tests.support.real_s3 import REQUEST  # noqa: PLC0415

    server.requests()  # waits for the last
    found = REQUEST.findall(server.log.read_text("utf-8", "replace"))
    return [path for _, path, *_ in found if path.startswith(f"/{BUCKET}")]


def _run(code: str) -> None:
    # Without a time limit: to wait with one takes steps of 0.05 s.
    subprocess.run([sys.executable, "-c", code], check=True)

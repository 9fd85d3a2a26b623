"""Building the other scalar indices, and filters through them: Pennon on Spark `local[2]`, warm, against pylance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import lance
import numpy as np
import pyarrow as pa

import pennon
from bench.data import CHUNK, write_once
from bench.harness import Choice, Grid, peak_memory, report_grids, say
from bench.timing import TURNS, interleaved, medians_in_turns

ROWS = 10_000_000
CALLS = range(20)
SCHEMA = pa.schema(
    [
        ("country", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("ts", pa.int64()),
        ("key", pa.int64()),
        ("text", pa.string()),
    ]
)


@dataclass(frozen=True)
class Case:
    index_type: str
    column: str
    content: str
    filters: tuple[str, ...]


CASES = (
    Case("BITMAP", "country", "200 countries, Zipf", ("country = 'c150'", "country IN ('c3', 'c77', 'c199')")),
    Case(
        "LABEL_LIST",
        "tags",
        "0 to 4 of 1,000 tags",
        ("array_has(tags, 't900')", "array_has_all(tags, ['t1', 't2'])", "array_has_any(tags, ['t970', 't980'])"),
    ),
    Case("ZONEMAP", "ts", "ascending, some out of order", ("ts BETWEEN 5000000 AND 5000100", "ts < 100")),
    Case("BLOOMFILTER", "key", "random int64", ("key = 123456789", "key IN (1, 2, 3)")),
    Case("NGRAM", "text", "texts of 18 letters", ("contains(text, 'rangeind')", "text LIKE '%zqxj%'")),
)


def scalar_build(choice: Choice) -> None:
    """Seconds of builds and milliseconds of filters, for each kind."""
    size, turns = choice.rows or ROWS, choice.turns or TURNS
    uri = scalar_table(size)
    builds: list[tuple[object, ...]] = []
    filters: list[tuple[object, ...]] = []
    for case in CASES:
        if choice.kinds and case.index_type not in choice.kinds:
            continue
        say(f"{case.index_type} on {case.content}")
        builds.append(_race(uri, case, size, turns))
        filters += _ask(uri, case, turns)
        _clean(uri)
    grids = [
        Grid(("index", "column", "rows", "pylance s", "Pennon s", "speed-up", "largest worker GiB"), builds, "Builds"),
        Grid(("index", "filter", "rows found", "pylance ms", "Pennon ms", "speed-up"), filters, "Filters, warm"),
    ]
    report_grids("scalar-build", "Bitmaps, label lists, zones, Bloom filters and n-grams", grids, keep=choice.keep)


def scalar_table(rows: int) -> str:
    """The address of the table, which is made once."""
    return write_once(f"scalars-{rows}", SCHEMA, _rows, rows)


def _race(uri: str, case: Case, size: int, turns: int) -> tuple[object, ...]:
    table = pennon.open(uri)
    with peak_memory() as peak:  # which is the warm-up, too
        table.create_index(case.column, case.index_type, name="ours")
    taken = interleaved(
        {
            "pylance": lambda: lance.dataset(uri).create_scalar_index(
                case.column, case.index_type, name="theirs", replace=True
            ),
            "Pennon": lambda: table.create_index(case.column, case.index_type, name="ours"),
        },
        turns,
    )
    theirs, ours = taken["pylance"], taken["Pennon"]
    ratio = f"{theirs.over(ours):.2f}"
    memory = f"{peak.largest_worker:.2f}"
    return case.index_type, case.content, f"{size:,}", f"{theirs:.2f}", f"{ours:.2f}", ratio, memory


def _ask(uri: str, case: Case, turns: int) -> Iterator[tuple[object, ...]]:
    """Each reader through its own index."""
    lance.dataset(uri).drop_index("theirs")
    for filter in case.filters:
        table = pennon.open(uri)
        dataset = lance.dataset(uri)
        found = table.count(filter)
        if dataset.count_rows(filter) != found:
            raise AssertionError(f"{filter}: Pennon finds {found} rows, pylance {dataset.count_rows(filter)}")
        taken = medians_in_turns(
            {
                "pylance": lambda _, filter=filter, dataset=dataset: dataset.to_table(columns=["key"], filter=filter),
                "Pennon": lambda _, filter=filter, table=table: table.scan(filter, ["key"]),
            },
            CALLS if found < 100_000 else CALLS[:5],
            turns,
        )
        theirs, ours = taken["pylance"].times(1000), taken["Pennon"].times(1000)
        ratio = f"{theirs.over(ours):.2f}"
        yield case.index_type, f"`{filter}`", f"{found:,}", f"{theirs:.2f}", f"{ours:.2f}", ratio


def _clean(uri: str) -> None:
    for index in pennon.open(uri).indices():
        lance.dataset(uri).drop_index(index.name)
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


def _rows(rows: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(3)
    countries = pa.array([f"c{number}" for number in range(200)])
    tags = pa.array([f"t{number}" for number in range(1000)])
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz ", dtype=np.uint8)
    common = 1 / np.arange(1, 201)
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        sizes = rng.integers(0, 5, count)
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        labels = tags.take(pa.array(rng.integers(0, 1000, int(ends[-1]))))
        # Early letters are frequent, as in words.
        text = letters[(rng.random((count, 18)) ** 2 * len(letters)).astype(np.int64)]
        places = pa.py_buffer(np.arange(0, 18 * (count + 1), 18, dtype=np.int32))
        yield pa.record_batch(
            [
                countries.take(pa.array(rng.choice(200, count, p=common / common.sum()))),
                pa.ListArray.from_arrays(pa.array(ends), labels),
                pa.array(np.arange(start, start + count) + rng.integers(-1000, 1000, count)),
                pa.array(rng.integers(-(2**63), 2**63 - 1, count)),
                pa.StringArray.from_buffers(count, places, pa.py_buffer(text.tobytes())),
            ],
            schema=SCHEMA,
        )

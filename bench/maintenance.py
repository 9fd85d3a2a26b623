"""Deltas merged, rows moved, indices read through the Fragment Reuse Index: Pennon beside pylance, on copies."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import lance
import numpy as np
import pyarrow as pa

import pennon
from bench.floor import floor_of_merge
from bench.harness import Choice, Grid, fresh, report_grids, say
from bench.timing import TURNS, Timing, interleaved, medians_in_turns
from bench.vectors import COLUMN, Matrix, vector_queries, vector_type
from pennon.index.cache import SHARED_CACHE
from pennon.index.vector.vectors import to_lists

DIM = 128
DELTAS, BTREE_DELTA, VECTOR_DELTA = 8, 1_000_000, 100_000
APPENDS = 64
ONE_FRAGMENT = 20_000_000


def optimize(choice: Choice) -> None:
    """Merging 8 deltas, of a B-tree and of an IVF_PQ."""
    turns = choice.turns or TURNS
    rows: list[tuple[object, ...]] = []
    cases: list[tuple[str, Callable[[], str]]] = [
        (f"B-tree, {DELTAS} x {BTREE_DELTA:,} int64", _btree_deltas),
        (f"IVF_PQ, {DELTAS} x {VECTOR_DELTA:,} x {DIM}, 16 sub-vectors", _vector_deltas),
    ]
    for label, make in cases:
        say(f"{label}: making the table")
        master = make()
        contestants: dict[str, Callable[[str], object]] = {
            "pylance": lambda uri: lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=DELTAS),
            "pennon": lambda uri: pennon.open(uri).optimize_indices(num_indices_to_merge=DELTAS),
        }
        taken = _in_turns(master, contestants, turns)
        floor = interleaved({"floor": _floor_of_merge(master)}, turns)["floor"]
        rows.append((label, *_compared(taken), f"{floor:.2f}"))
        say(f"{label}: {taken}")
    report_grids(
        "optimize",
        f"Merging {DELTAS} segments into one",
        [Grid(("index", "pylance s", "Pennon s", "speed-up", "turns", "floor s"), rows)],
        note="Each run on a fresh copy of the table; both merge all segments into one in a single commit. Floor: the "
        "segments are read and files like those of the merged one are written, by a thread for each core, and nothing "
        "else is done.",
        keep=choice.keep,
    )


def compact(choice: Choice) -> None:
    """Compaction with its indices remapped at once; the same compaction without indices shows what remapping costs."""
    turns = choice.turns or TURNS
    rows: list[tuple[object, ...]] = []
    cases: list[tuple[str, Callable[[], str]]] = [
        ("B-tree, 10,000,000 int64", lambda: _remapped_btree(10_000_000)),
        ("IVF_PQ, 500,000 x 128", lambda: _remapped_vectors(500_000)),
    ]
    for label, make in cases:
        say(f"{label}: making the table")
        master = make()
        bare = _without_indices(master)
        contestants: dict[str, Callable[[str], object]] = {
            "pylance": lambda uri: lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=ONE_FRAGMENT),
            "pennon": lambda uri: pennon.open(uri).compact(target_rows_per_fragment=ONE_FRAGMENT),
        }
        taken = _in_turns(master, contestants, turns)
        alone = _in_turns(bare, contestants, turns)
        remap = {name: taken[name].minus(alone[name]) for name in taken}
        ratio = f"{remap['pylance'].over(remap['pennon']):.2f}" if min(remap["pennon"].turns) else "-"
        rows.append((label, *_compared(taken), f"{remap['pylance']:.2f}", f"{remap['pennon']:.2f}", ratio))
        say(f"{label}: {taken}, without indices {alone}")
    header = ("index", "pylance s", "Pennon s", "speed-up", "turns", "pylance remap s", "Pennon remap s", "speed-up")
    report_grids(
        "compact",
        "Compaction with an immediate remap",
        [Grid(header, rows)],
        note="12 or 8 fragments with a tenth of their rows deleted become one. The remap is what the same compaction"
        " takes less where the table has no index.",
        keep=choice.keep,
    )


def latency(choice: Choice) -> None:
    """Query latency against the number of deltas, before and after `optimize`; write amplification of its policy."""
    uri = str(fresh("latency.lance"))
    lance.write_dataset(_mixed(20_000, 0), uri)
    table = pennon.open(uri)
    table.create_index("id")
    table.create_index(COLUMN, "IVF_PQ", num_partitions=64, num_sub_vectors=16)
    rows = [("1", *_latencies(uri))]
    for number in range(APPENDS):
        lance.write_dataset(_mixed(2_000, 20_000 + number * 2_000), uri, mode="append")
        table.optimize_indices(num_indices_to_merge=0)
        if number + 2 in (9, 17, 33, APPENDS + 1):
            rows.append((str(number + 2), *_latencies(uri)))
            say(f"{number + 2} segments: {rows[-1][1:]}")
    started = time.perf_counter()
    table.optimize_indices()
    seconds = time.perf_counter() - started
    after = ", ".join(f"{index.name} {len(index.segments)}" for index in table.indices())
    rows.append((f"after optimize ({seconds:.1f} s): {after}", *_latencies(uri)))
    report_grids(
        "latency",
        f"Query latency against segments, {20_000 + APPENDS * 2_000:,} rows",
        [
            Grid(("segments", "point lookup ms", "vector query ms", "pylance lookup ms", "pylance vector ms"), rows),
            Grid(("appends", "segments", "rows written : rows"), _amplification(), "Write amplification of the policy"),
        ],
        note="The median of 100 warm queries in each turn, k 10, nprobes 20."
        " The policy merges by size after each append of 1,000 rows,"
        " on an index of 1,000; rows written count those of the deltas and of all merges.",
        keep=choice.keep,
    )


# Reading takes a quarter of a second, so that many turns are affordable.
REUSE_TURNS = 25


def reuse(choice: Choice) -> None:
    """Reading an index through a Fragment Reuse Index of 10 versions, and without."""
    rows: list[tuple[object, ...]] = []
    query = np.zeros(DIM, np.float32)
    cases: list[tuple[str, pa.Table, Callable[[pennon.Table], object], Callable[[str], object]]] = [
        (
            "B-tree of 4,000,000 int64, all pages",
            pa.table({"id": pa.array(np.random.default_rng(4).permutation(4_000_000))}),
            lambda table: table.create_index("id"),
            lambda uri: pennon.open(uri).count("id >= 0 and id < 900000000"),
        ),
        (
            "IVF_PQ of 400,000 x 128, all partitions",
            _mixed(400_000, 0),
            lambda table: table.create_index(COLUMN, "IVF_PQ", num_partitions=99, num_sub_vectors=16),
            lambda uri: pennon.open(uri).search(COLUMN, query, 10, nprobes=99),
        ),
    ]
    for label, content, build, ask in cases:
        say(f"{label}: making the table")
        master = _with_reuse(10, content, build)
        caught_up = str(fresh("reuse-caught-up.lance"))
        shutil.copytree(master, caught_up)
        table = pennon.open(caught_up)
        table.catch_up_indices()
        table.trim_fragment_reuse()
        taken: dict[str, list[float]] = {"with": [], "without": []}
        for _ in range(choice.turns or REUSE_TURNS):
            for name, uri in (("with", master), ("without", caught_up)):
                SHARED_CACHE.clear()
                started = time.perf_counter()
                ask(uri)
                taken[name].append(time.perf_counter() - started)
        with_it, without = (Timing(tuple(taken[name])).times(1000) for name in ("with", "without"))
        rows.append((label, f"{with_it:.1f}", f"{without:.1f}", f"{with_it.over(without):.2f}"))
    report_grids(
        "reuse",
        "Loading an index through a Fragment Reuse Index of 10 versions",
        [Grid(("index", "with ms", "without ms", "ratio"), rows)],
        note="Table and index are reopened with empty caches and every page or partition is read;"
        f" {choice.turns or REUSE_TURNS} turns. A few rows were deleted before each of the 10 deferred compactions.",
        keep=choice.keep,
    )


def _in_turns(master: str, contestants: dict[str, Callable[[str], object]], turns: int) -> dict[str, Timing]:
    """Seconds of each on its own copy. The first turn warms up and does not count."""
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(turns + 1):
        for name, work in contestants.items():
            uri = str(fresh("contest.lance"))
            shutil.copytree(master, uri)
            started = time.perf_counter()
            work(uri)
            if number:
                taken[name].append(time.perf_counter() - started)
    return {name: Timing(tuple(seconds)) for name, seconds in taken.items()}


def _floor_of_merge(master: str) -> Callable[[], None]:
    """Of the only index of a table."""
    merged = str(fresh("merged.lance"))
    shutil.copytree(master, merged)
    table = pennon.open(merged)
    table.optimize_indices(num_indices_to_merge=DELTAS)
    [index] = table.indices()
    return floor_of_merge(master, index.name, merged)


def _compared(taken: dict[str, Timing]) -> tuple[object, ...]:
    pylance, ours = taken["pylance"], taken["pennon"]
    return f"{pylance:.2f}", f"{ours:.2f}", f"{pylance.over(ours):.2f}", len(ours.turns)


def _btree_deltas() -> str:
    uri = str(fresh("btree-deltas.lance"))
    rng = np.random.default_rng(1)
    table = None
    for number in range(DELTAS):
        values = pa.table({"id": pa.array(rng.integers(0, 1 << 60, BTREE_DELTA))})
        lance.write_dataset(values, uri, mode="append" if number else "create")
        table = table or pennon.open(uri)
        table.create_index("id", fragment_ids=[number]) if number else table.create_index("id")
    return uri


def _vector_deltas() -> str:
    uri = str(fresh("vector-deltas.lance"))
    table = None
    for number, batch in enumerate(_vectors(DELTAS * VECTOR_DELTA, VECTOR_DELTA)):
        lance.write_dataset(pa.table({COLUMN: batch}), uri, mode="append" if number else "create")
        if table is None:
            table = pennon.open(uri)
            table.create_index(COLUMN, "IVF_PQ", num_partitions=316, num_sub_vectors=16)
        else:
            table.optimize_indices(num_indices_to_merge=0)
    return uri


def _remapped_btree(rows: int) -> str:
    uri = str(fresh("remap-btree.lance"))
    values = np.random.default_rng(2).integers(0, 1 << 60, rows)
    lance.write_dataset(pa.table({"id": pa.array(values)}), uri, max_rows_per_file=-(-rows // 12))
    pennon.open(uri).create_index("id")
    lance.dataset(uri).delete("id % 10 = 0")
    return uri


def _remapped_vectors(rows: int) -> str:
    uri = str(fresh("remap-vectors.lance"))
    schema = pa.schema([("id", pa.int64()), (COLUMN, vector_type(DIM))])
    starts = range(0, rows, 62_500)
    parts = (
        pa.record_batch([pa.array(np.arange(start, start + len(batch))), batch], schema=schema)
        for start, batch in zip(starts, _vectors(rows, 62_500), strict=True)
    )
    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, parts), uri, max_rows_per_file=62_500)
    pennon.open(uri).create_index(COLUMN, "IVF_PQ", num_partitions=512, num_sub_vectors=16)
    lance.dataset(uri).delete("id % 10 = 0")
    return uri


def _without_indices(master: str) -> str:
    uri = str(fresh("bare.lance"))
    shutil.copytree(master, uri)
    table = pennon.open(uri)
    for index in table.indices():
        table.drop_index(index.name)
    return uri


def _with_reuse(versions: int, content: pa.Table, build: Callable[[pennon.Table], object]) -> str:
    """Several deferred compactions of the same rows, a few of them deleted before each."""
    uri = str(fresh("reuse.lance"))
    lance.write_dataset(content, uri, max_rows_per_file=content.num_rows // 8)
    table = pennon.open(uri)
    build(table)
    for number in range(versions):
        lance.dataset(uri).delete(f"id % 10007 = {number}")
        table.compact(remap="deferred", target_rows_per_fragment=1 << 24, materialize_deletions_threshold=0.0)
        lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    found = table.refresh().fragment_reuse()
    assert found is not None
    assert found.depth == versions
    return uri


def _mixed(rows: int, start: int) -> pa.Table:
    [vectors] = _vectors(rows, rows, seed=start)
    return pa.table({"id": pa.array(np.arange(start, start + rows)), COLUMN: vectors})


def _vectors(rows: int, at_once: int, seed: int = 5) -> Iterator[pa.Array]:
    centres = np.random.default_rng(9).standard_normal((2000, DIM), dtype=np.float32) * np.float32(3)
    rng = np.random.default_rng(seed)
    for _ in range(0, rows, at_once):
        noise = rng.standard_normal((at_once, DIM), dtype=np.float32)
        yield to_lists(centres[rng.integers(0, len(centres), at_once)] + noise)


def _latencies(uri: str) -> tuple[str, str, str, str]:
    table, dataset, queries = pennon.open(uri), lance.dataset(uri), vector_queries(100)

    def pylance_search(q: Matrix) -> object:
        nearest = {"column": COLUMN, "q": q, "k": 10, "nprobes": 20}
        return dataset.scanner(columns=["id", "_distance"], nearest=nearest).to_table()

    asked: dict[str, Callable[[int], object]] = {
        "lookup": lambda i: table.scan(f"id = {i * 199}", ["id"]),
        "search": lambda i: table.search(COLUMN, queries[i], 10, nprobes=20, columns=["id"]),
        "pylance lookup": lambda i: dataset.to_table(columns=["id"], filter=f"id = {i * 199}"),
        "pylance search": lambda i: pylance_search(queries[i]),
    }
    medians_in_turns(asked, range(100), 1)  # which warms up
    taken = medians_in_turns(asked, range(100))
    lookup, search, pylance_lookup, pylance_vector = (f"{taken[name].times(1000):.2f}" for name in asked)
    return lookup, search, pylance_lookup, pylance_vector


def _amplification() -> list[tuple[object, ...]]:
    uri = str(fresh("amplification.lance"))
    rng, size = np.random.default_rng(3), 1000
    lance.write_dataset(pa.table({"id": pa.array(rng.integers(0, 1 << 40, size))}), uri)
    table = pennon.open(uri)
    table.create_index("id")
    written, found = size, []
    for number in range(1, 101):
        lance.write_dataset(pa.table({"id": pa.array(rng.integers(0, 1 << 40, size))}), uri, mode="append")
        plan = table.optimize_indices().plan
        written += sum(step.rows + (len(step.new) * size if step.merged else 0) for step in plan.due)
        if number in (10, 25, 50, 100):
            [index] = table.indices()
            found.append((number, len(index.segments), f"{written / ((number + 1) * size):.2f}"))
    return found

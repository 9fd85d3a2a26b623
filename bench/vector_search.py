"""Searching vector indices that Pennon built: Pennon, pylance on the same index, and faiss in memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import faiss
import lance
import numpy as np

import pennon
from bench.harness import Choice, Grid, report_grids, say
from bench.timing import TURNS, Timing, interleaved
from bench.vectors import (
    COLUMN,
    DIM,
    ROWS,
    Ids,
    Kind,
    Matrix,
    chosen,
    copied,
    create_pennon,
    drop_files_of_old_versions,
    ids_by_query,
    num_partitions,
    pylance_scanner,
    read_vectors,
    recall,
    true_neighbors,
    vector_files,
    vector_queries,
    vector_table,
)
from pennon.index.cache import SHARED_CACHE
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.quantizers.pq.quantizer import ProductQuantizer
from pennon.table import Table

KINDS = (
    Kind("IVF_FLAT"),
    Kind("IVF_PQ", (("num_sub_vectors", 16),)),
    Kind("IVF_SQ"),
    Kind("IVF_RQ", (("num_bits", 1),)),
    Kind("IVF_RQ", (("num_bits", 5),)),
    Kind("IVF_HNSW_SQ"),
)
SINGLE, BATCH, K, NPROBES = 300, 1000, 10, 20
SINGLE_HEADER = ("kind", "pylance median ms", "pylance p95", "Pennon median ms", "Pennon p95", "speed-up of the median")
BATCH_HEADER = (
    "kind",
    "pylance one by one, queries/s",
    "pylance batch",
    "faiss",
    "Pennon",
    "Pennon : pylance one by one",
    "Pennon : pylance batch",
    "Pennon : faiss",
    "pylance recall",
    "faiss recall",
    "Pennon recall",
)


def vector_search(choice: Choice) -> None:
    rows, turns = choice.rows or ROWS, choice.turns or TURNS
    say(f"table of {rows:,} vectors")
    source = vector_table(rows)
    vectors, queries = read_vectors(source), vector_queries(BATCH)
    truth = true_neighbors(vectors, queries, K)
    uri = copied(source, "searched")
    table = pennon.open(uri)
    singles: list[tuple[object, ...]] = []
    batches: list[tuple[object, ...]] = []
    centroids: Matrix | None = None
    for kind in chosen(KINDS, choice.kinds):
        say(f"{kind}: building")
        # All kinds cluster alike; the first one is trained.
        create_pennon(table, kind, num_partitions(rows), ivf_centroids=centroids)
        drop_files_of_old_versions(uri)
        SHARED_CACHE.clear()
        files = vector_files(uri)
        centroids = files.ivf.centroids
        say(f"{kind}: single queries")
        singles.append((kind, *_single(uri, table, queries[:SINGLE], turns)))
        say(f"{kind}: {', '.join(map(str, singles[-1][1:]))}; loading faiss")
        native = _native(kind, files, vectors)
        batches.append((kind, *_batch(uri, table, native, queries, truth, turns)))
        say(f"{kind}: {', '.join(map(str, batches[-1][1:]))}")
    report_grids(
        "vector-search",
        f"Vector search, {rows:,} x 128 float32, {num_partitions(rows)} partitions, l2, k {K}, nprobes {NPROBES}",
        [
            Grid(SINGLE_HEADER, singles, f"Single queries, warm: {turns} turns of {SINGLE}"),
            Grid(BATCH_HEADER, batches, f"{BATCH:,} queries, queries per second, {turns} turns"),
        ],
        note="pylance and Pennon search the same index, which Pennon built, and return `id` and `_distance`; a batch"
        " of pylance is one scanner for all queries. faiss searches an IVF index in memory with the same centroids"
        f" (and codebook), {_cores()} threads, and returns positions: IndexIVFFlat, IndexIVFPQ, IndexIVFScalarQuantizer"
        " (QT_8bit) and, behind a random rotation, IndexIVFRaBitQ (queries of 4 bits); it has no IVF with HNSW graphs "
        "inside. Recall is against brute force.",
        packages=["faiss-cpu"],
        keep=choice.keep,
    )


def _single(uri: str, table: Table, queries: Matrix, turns: int) -> tuple[str, ...]:
    dataset = lance.dataset(uri)
    assert "ANN" in pylance_scanner(dataset, queries[0], K, NPROBES).explain_plan()
    work: dict[str, Callable[[Matrix], object]] = {
        "pylance": lambda query: pylance_scanner(dataset, query, K, NPROBES).to_table(),
        "pennon": lambda query: table.search(COLUMN, query, K, nprobes=NPROBES, columns=["id"]),
    }
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for turn in range(turns + 1):
        taken: dict[str, list[float]] = {name: [] for name in work}
        for number, query in enumerate(queries):
            # The second one finds the query's vectors in the processor's cache.
            for name in sorted(work, reverse=number % 2 == 0):
                start = time.perf_counter()
                work[name](query)
                taken[name].append(time.perf_counter() - start)
        if turn:  # the first one warms up
            for name, seconds in taken.items():
                middle, tail = np.percentile(np.array(seconds) * 1000, (50, 95)).tolist()
                figures[name].append((middle, tail))
    pylance, pylance_tail, ours, our_tail = (
        Timing(tuple(figure[part] for figure in figures[name])) for name in ("pylance", "pennon") for part in (0, 1)
    )
    return f"{pylance:.2f}", f"{pylance_tail:.2f}", f"{ours:.2f}", f"{our_tail:.2f}", f"{pylance.over(ours):.2f}"


def _batch(uri: str, table: Table, native: Any, queries: Matrix, truth: Ids, turns: int) -> tuple[str, ...]:
    dataset = lance.dataset(uri)
    found: dict[str, Ids] = {}

    def one_by_one() -> None:
        for query in queries:
            pylance_scanner(dataset, query, K, NPROBES).to_table()

    def pylance_batch() -> None:
        found["pylance"] = ids_by_query(pylance_scanner(dataset, queries, K, NPROBES).to_table(), len(queries), K)

    def in_faiss() -> None:
        faiss.omp_set_num_threads(_cores())
        found["faiss"] = native.search(queries, K)[1]

    def ours() -> None:
        answer = table.search_batch(COLUMN, queries, K, nprobes=NPROBES, columns=["id"])
        found["pennon"] = ids_by_query(answer, len(queries), K)

    contestants: dict[str, Callable[[], object]] = {"one": one_by_one, "pylance": pylance_batch, "pennon": ours}
    if native is not None:
        contestants["faiss"] = in_faiss
    for warm_up in (pylance_batch, ours):
        warm_up()
    taken = interleaved(contestants, turns)
    speed = {name: f"{seconds.per_second(len(queries)):,.0f}" for name, seconds in taken.items()}
    ratio = {name: f"{seconds.over(taken['pennon']):.2f}" for name, seconds in taken.items()}
    recalls = {name: f"{recall(ids, truth):.3f}" for name, ids in found.items()}
    return (
        *(speed.get(name, "-") for name in ("one", "pylance", "faiss", "pennon")),
        *(ratio.get(name, "-") for name in ("one", "pylance", "faiss")),
        *(recalls.get(name, "-") for name in ("pylance", "faiss", "pennon")),
    )


def _native(kind: Kind, files: VectorFiles, vectors: Matrix) -> Any:
    """The index of faiss that comes nearest to this one; None where it has none."""
    faiss.omp_set_num_threads(_cores())
    centroids, options = files.ivf.centroids, dict(kind.options)
    shape = DIM, len(centroids)
    index: Any
    if kind.index_type == "IVF_FLAT":
        index = inner = faiss.IndexIVFFlat(_coarse(centroids), *shape)
    elif kind.index_type == "IVF_SQ":
        index = inner = faiss.IndexIVFScalarQuantizer(_coarse(centroids), *shape, faiss.ScalarQuantizer.QT_8bit)
        index.train(vectors)
    elif kind.index_type == "IVF_PQ":
        assert isinstance(files.quantizer, ProductQuantizer)
        index = inner = faiss.IndexIVFPQ(_coarse(centroids), *shape, options["num_sub_vectors"], 8)
        faiss.copy_array_to_vector(files.quantizer.codebook.ravel(), index.pq.centroids)
        index.is_trained = True
        index.precompute_table()
    elif kind.index_type == "IVF_RQ":
        # Its codes are of the vectors as they come, so that rotating them is left to the caller.
        rotation = faiss.RandomRotationMatrix(DIM, DIM)
        rotation.init(1)
        coarse = _coarse(rotation.apply(centroids))
        inner = faiss.IndexIVFRaBitQ(coarse, *shape, faiss.METRIC_L2, True, options["num_bits"])
        inner.qb = 4
        index = faiss.IndexPreTransform(rotation, inner)
        index.train(vectors)
    else:
        return None
    index.add(vectors)
    inner.nprobe = NPROBES
    return index


def _coarse(centroids: Matrix) -> Any:
    coarse = faiss.IndexFlatL2(centroids.shape[1])
    coarse.add(np.ascontiguousarray(centroids))
    return coarse


def _cores() -> int:
    return os.cpu_count() or 1

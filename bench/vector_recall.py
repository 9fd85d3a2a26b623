"""Recall on vectors of English words (GloVe): pylance's indices and Pennon's, searched by pylance and by Pennon."""

from __future__ import annotations

from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import pennon
from bench.harness import Choice, Grid, fresh, report_grids, say
from bench.real_vectors import QUERIES, glove, held_out
from bench.vectors import (
    COLUMN,
    Ids,
    Kind,
    Matrix,
    check_partitions,
    chosen,
    create_pennon,
    create_pylance,
    drop_files_of_old_versions,
    ids_by_query,
    pylance_search,
    recall,
    true_neighbors,
    vector_files,
    vector_type,
)
from pennon.table import Table

KINDS = (
    Kind("IVF_FLAT"),
    Kind("IVF_SQ"),
    Kind("IVF_PQ", (("num_sub_vectors", 25),)),
    Kind("IVF_RQ", (("num_bits", 1),)),
    Kind("IVF_RQ", (("num_bits", 5),)),
    Kind("IVF_HNSW_FLAT"),
    Kind("IVF_HNSW_SQ"),
    Kind("IVF_HNSW_PQ", (("num_sub_vectors", 25),)),
)
METRICS = ("l2", "cosine")
K, PARTITIONS = 10, 224
# pylance trains fewer partitions than it is asked for where there are fewer than `sample_rate` rows for each.
SAMPLE_RATE = 200
FEW_PROBES = (1, 5, 20)
# Pairs of nprobes and refine_factor.
SEARCHES = tuple((nprobes, refine) for nprobes in (*FEW_PROBES, PARTITIONS) for refine in (None, 5))
SIDES = ("pylance's", "Pennon's")
# RQ wants a multiple of 8 dimensions.
PADDED = 104
BUILDS = 5
HEADER = (
    "kind",
    "metric",
    "nprobes",
    "refine",
    "pylance on pylance's",
    "pylance on Pennon's",
    "Pennon on Pennon's",
    "±",
)

Figures = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Measured:
    """Of every build (first axis): recall by search and column of the report; rows probed by side and nprobes."""

    recalls: Figures
    probed: Figures


def vector_recall(choice: Choice) -> None:
    kinds, builds = chosen(KINDS, choice.kinds), choice.turns or BUILDS
    vectors, queries = held_out(glove())
    vectors = vectors[: choice.rows]
    rows: list[tuple[object, ...]] = []
    probed: list[tuple[object, ...]] = []
    for metric in choice.metrics or METRICS:
        truth = true_neighbors(vectors, queries, K, metric)
        measured: list[Measured] = []
        for kind in kinds:
            measured.append(_measure(kind, metric, vectors, queries, truth, builds))
            rows += _rows(kind, metric, measured[-1].recalls)
            for row in rows[-len(SEARCHES) :]:
                say(", ".join(map(str, row)))
        means = np.concatenate([each.probed for each in measured]).mean(axis=0).round().astype(int)
        probed += [(metric, side, *map("{:,}".format, mean)) for side, mean in zip(SIDES, means.tolist(), strict=True)]
    report_grids(
        "vector-recall",
        f"Recall@{K}, GloVe, {len(vectors):,} x 100 float32, {PARTITIONS} partitions",
        [
            Grid(HEADER, rows, "Recall in percent, by whose search on whose index"),
            Grid(("metric", "index", *(f"{n} probed" for n in FEW_PROBES)), probed, "Rows behind nprobes, per query"),
        ],
        note=f"The queries are {QUERIES} words that are not indexed. Every figure is the mean of {builds} builds that"
        " differ in seed; ± is the standard error of the difference between the first and the last."
        " Partitions of even size hold fewer rows near a query than uneven ones do, so that equal nprobes may mean less"
        f" work and lower recall. For RQ, vectors are filled up with zeros to {PADDED} dimensions, since 100 is no"
        " multiple of 8; that changes no distance.",
        packages=["faiss-cpu"],
        keep=choice.keep,
    )


def _measure(kind: Kind, metric: str, vectors: Matrix, queries: Matrix, truth: Ids, builds: int) -> Measured:
    if kind.index_type == "IVF_RQ":
        vectors, queries = _padded(vectors), _padded(queries)
    partitions = min(PARTITIONS, len(vectors) // SAMPLE_RATE)
    pylance, ours = _write("glove-pylance", vectors), _write("glove-pennon", vectors)
    table = pennon.open(ours)
    recalls, probed = np.empty((builds, len(SEARCHES), 3)), np.empty((builds, len(SIDES), len(FEW_PROBES)))
    for seed in range(builds):
        say(f"{kind}, {metric}: build {seed + 1} of {builds}, pylance's")
        create_pylance(pylance, kind, partitions, metric, sample_rate=SAMPLE_RATE)
        check_partitions(pylance, partitions)
        say(f"{kind}, {metric}: build {seed + 1} of {builds}, Pennon's")
        create_pennon(table, kind, partitions, metric, sample_rate=SAMPLE_RATE, seed=seed)
        for number, (nprobes, refine) in enumerate(SEARCHES):
            found = (
                pylance_search(pylance, queries, K, nprobes, refine),
                pylance_search(ours, queries, K, nprobes, refine),
                _pennon_search(table, queries, nprobes, refine),
            )
            recalls[seed, number] = [recall(ids, truth) for ids in found]
        for side, uri in enumerate((pylance, ours)):
            probed[seed, side] = _rows_probed(uri, queries)
            drop_files_of_old_versions(uri)
    return Measured(recalls, probed)


def _rows_probed(uri: str, queries: Matrix) -> list[float]:
    """The mean of rows in the partitions nearest to a query, as FEW_PROBES has them."""
    files = vector_files(uri)
    order = files.ivf.rank(files.metric.prepare(queries), max(FEW_PROBES))[0]
    lengths = files.layout.lengths[order]
    return [float(lengths[:, :nprobes].sum(axis=1).mean()) for nprobes in FEW_PROBES]


def _rows(kind: Kind, metric: str, figures: Figures) -> list[tuple[object, ...]]:
    means = figures.mean(axis=0) * 100
    errors = _standard_errors(figures) * 100
    return [
        (
            kind,
            metric,
            "all" if nprobes == PARTITIONS else nprobes,
            refine or "-",
            *(f"{value:.1f}" for value in mean),
            f"{error:.1f}",
        )
        for (nprobes, refine), mean, error in zip(SEARCHES, means.tolist(), errors.tolist(), strict=True)
    ]


def _standard_errors(figures: Figures) -> Figures:
    """Of the difference between the means of the first and the last column, whose builds are independent."""
    builds = len(figures)
    if builds == 1:
        return np.full(figures.shape[1], np.nan)
    variances = figures[:, :, (0, 2)].var(axis=0, ddof=1) / builds
    return np.sqrt(variances.sum(axis=1))


def _pennon_search(table: Table, queries: Matrix, nprobes: int, refine: int | None) -> Ids:
    found = table.search_batch(COLUMN, queries, K, nprobes=nprobes, refine_factor=refine, columns=["id"])
    return ids_by_query(found, len(queries), K)


def _padded(vectors: Matrix) -> Matrix:
    filled = np.zeros((len(vectors), PADDED), dtype=vectors.dtype)
    filled[:, : vectors.shape[1]] = vectors
    return filled


def _write(name: str, vectors: Matrix) -> str:
    path = fresh(f"{name}.lance")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), type=vector_type(vectors.shape[1]))
    table = pa.table({"id": pa.array(np.arange(len(vectors))), COLUMN: lists})
    lance.write_dataset(table, str(path), max_rows_per_file=-(-len(vectors) // 4))
    return str(path)

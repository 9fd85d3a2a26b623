"""Vectors of real words and texts, and those of them that are asked for instead of indexed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bench.harness import DATA
from bench.vectors import Matrix

GLOVE, TEXTS = "PENNON_GLOVE", "PENNON_BENCH_TEXTS"
QUERIES = 500


def glove() -> Matrix:
    path = Path(os.environ.get(GLOVE, DATA / "glove-100d-50k.parquet"))
    if not path.exists():
        sys.exit(f"There is no {path}: set {GLOVE} to a Parquet file with a column `vector` of float32[100]")
    values = pq.read_table(path, columns=["vector"])["vector"].combine_chunks()
    return values.flatten().to_numpy().reshape(len(values), -1)


def texts(rows: int) -> Matrix:
    """Distinct vectors of texts, the first of them."""
    path = Path(os.environ.get(TEXTS, DATA / "texts.npy"))
    if not path.exists():
        sys.exit(f"There is no {path}: set {TEXTS} to a `.npy` file of the float32 vectors of texts, a row each")
    given = np.load(path, mmap_mode="r")
    vectors = np.ascontiguousarray(given[np.linalg.norm(given, axis=1) > 0], dtype=np.float32)
    raw = vectors.view(np.dtype((np.void, vectors.shape[1] * 4))).ravel()
    return vectors[np.sort(np.unique(raw, return_index=True)[1])[:rows]]


def held_out(vectors: Matrix) -> tuple[Matrix, Matrix]:
    """Vectors to index and vectors to ask for."""
    asked = np.random.default_rng(8).choice(len(vectors), QUERIES, replace=False)
    return np.delete(vectors, asked, axis=0), vectors[asked]

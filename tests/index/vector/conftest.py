"""Fixtures of the vector tests."""

from __future__ import annotations

from collections.abc import Iterator

import faiss
import pytest


@pytest.fixture(scope="session", autouse=True)
def _one_faiss_thread() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(threads)

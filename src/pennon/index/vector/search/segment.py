"""A vector segment, opened for searches: the files, its partitions through the cache, addresses through the FRI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.lance_file import LanceFile
from pennon.format.store import Store
from pennon.index.cache import ByteCache
from pennon.index.description import Description
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.threads import one_thread
from pennon.index.vector.description import describe_files
from pennon.index.vector.files.storage import AUXILIARY_FILE, ROW_ID, Partition, VectorFiles
from pennon.index.vector.hnsw.graph import HnswGraph
from pennon.index.vector.hnsw.search import HnswSearcher, default_ef
from pennon.index.vector.kinds import SubIndex
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.base import PointQuantizer
from pennon.index.vector.search.partition import Graph, SearchPartition, walk_graphs
from pennon.index.vector.search.partition_search import Found, search_partitions
from pennon.index.vector.vectors import Mask, Positions, Vectors, VectorType

# Lists of 2m neighbors at the default m, and a second copy of the node's codes.
GRAPH_ROW_BYTES = 512

# The number of threads that fetch partitions: an object store has a high latency but serves many requests at once.
FETCHING_THREADS = 16
# Partitions with up to this many rows in all are read from an object store by one call of pylance.
FETCHED_ROWS = 1 << 17


class VectorSegment:
    """`reuse` is None if stored ids are stable row ids, which compactions do not change."""

    def __init__(
        self, store: Store, segment: IndexSegment, type_: pa.DataType, cache: ByteCache, reuse: FragmentReuse | None
    ) -> None:
        self.files = VectorFiles(store, segment.directory, segment.file_sizes)
        held = VectorType.find(type_)
        if held is not None and self.files.ivf.dim != held.dim:
            where = store.describe(segment.directory)
            problem = f"{where} holds vectors of {self.files.ivf.dim} dimensions, the column of {held.dim}"
            raise DamagedFile(problem, "Rebuild the index")
        self._store, self._segment = store, segment
        self._cache, self._reuse = cache, reuse
        # `Scorer.radius` of the partitions that a search within a distance has read; infinite for the others.
        self.radii = np.full(self.files.ivf.num_partitions, np.inf)
        self._key = (store.location.uri, segment.uuid, reuse.uuid if reuse else None)

    @property
    def capacity(self) -> None:
        """No bound: rows without a complete vector have no entry."""
        return None

    def describe(self) -> Description:
        return describe_files(self.files, self._segment.details)

    @property
    def metric(self) -> Metric:
        return self.files.metric

    @property
    def lengths(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Rows of each partition."""
        return self.files.layout.lengths

    @property
    def scale(self) -> float:
        """The factor from distances of the index to those that Lance documents. Under cosine, codes represent vectors
        of length 1; their squared l2 distance is twice the cosine distance."""
        return 0.5 if self.metric is Metric.COSINE and self.files.quantizer.by_l2 else 1.0

    @cached_property
    def row_bytes(self) -> int:
        """The approximate size of a row of a loaded partition. RQ has one byte per dimension in memory for any number
        of bits."""
        graph = GRAPH_ROW_BYTES if self.files.kind.sub_index is SubIndex.HNSW else 0
        if graph and self.metric is Metric.HAMMING:
            graph += 8 * self.files.ivf.dim  # a byte for every bit
        return 8 + max(self.code_bytes, self.files.ivf.dim) + graph

    @cached_property
    def code_bytes(self) -> int:
        """The size of the code of a row as stored."""
        return sum(_byte_width(field.type) for field in self.files.quantizer.fields())

    def cached(self, numbers: Positions) -> Mask:
        """Which of some partitions are in the cache."""
        return np.array(self._cache.holds([(*self._key, number) for number in numbers.tolist()]), dtype=np.bool_)

    def ask(self, queries: Vectors) -> tuple[Vectors, Vectors]:
        """Queries prepared for the comparison with centroids, and with partitions."""
        prepared = self.metric.prepare(queries)
        # Threads of OpenBLAS go on waiting busily for a while after a product: the search would run next to them.
        with one_thread():
            return prepared, self.files.quantizer.prepare(prepared)

    def partition(self, number: int) -> SearchPartition:
        """May raise DamagedFile."""
        return self._cache.get_or_load((*self._key, number), lambda: self._load(number))

    def partitions(self, numbers: Sequence[int]) -> tuple[list[SearchPartition], int]:
        """Several partitions, and the number of them that were not cached; those are fetched together."""
        found = self._cache.get_all([(*self._key, number) for number in numbers])
        missing = [at for at, partition in enumerate(found) if partition is None]
        if len(missing) == 1:
            found[missing[0]] = self.partition(numbers[missing[0]])
        elif missing:
            stored = self._fetch([numbers[at] for at in missing])
            for at, partition in zip(missing, self._remapped(stored), strict=True):
                self._cache.put((*self._key, numbers[at]), partition, partition.nbytes)
                found[at] = partition
        return cast(list[SearchPartition], found), len(missing)

    def nearest(
        self,
        partitions: Mapping[int, SearchPartition],
        prepared: Vectors,
        probes: Positions,
        k: int,
        *,
        ef: int | None = None,
        allowed: Mapping[int, Mask] | None = None,
        threads: int = 1,
    ) -> Found:
        """The k nearest allowed rows of each query in those partitions it probes that are given. Distances are on the
        scale of the index; multiply by `scale` for Lance's."""
        allowed = allowed or {}
        graphs = self._worth_walking(partitions, probes, ef or default_ef(k), allowed)
        scorers = {number: partition.scorer for number, partition in partitions.items() if number not in graphs}
        found: list[Found] = []
        if graphs:
            found.append(walk_graphs(graphs, prepared, probes, k, ef=ef, allowed=allowed, threads=threads))
        if scorers or not graphs:
            quantizer = self.files.quantizer
            found.append(search_partitions(quantizer, scorers, prepared, probes, k, allowed=allowed, threads=threads))
        return found[0] if len(found) == 1 else Found.merged(found, k)

    def warm(self) -> Iterator[None]:
        filled = np.flatnonzero(self.lengths)
        for start in range(0, len(filled), FETCHING_THREADS):
            self.partitions(filled[start : start + FETCHING_THREADS].tolist())
            yield

    def stored_ids(self) -> Iterator[Addresses]:
        file = LanceFile(self._store, f"{self._segment.directory}/{AUXILIARY_FILE}", columns=[ROW_ID])
        for batch in file.batches(0, file.num_rows):
            if batch.column(0).null_count:
                raise DamagedFile(f"{file.where} has rows without an id", "Rebuild the index")
            yield batch.column(0).to_numpy()

    def current_ids(self) -> Iterator[tuple[Addresses, Mask | None]]:
        """The ids of all rows, one partition after another, and which are alive, as loaded partitions have them."""
        for row_ids in self.stored_ids():
            yield (row_ids, None) if self._reuse is None else self._reuse.remap(row_ids)

    def _worth_walking(
        self, partitions: Mapping[int, SearchPartition], probes: Positions, ef: int, allowed: Mapping[int, Mask]
    ) -> dict[int, Graph]:
        if self.files.kind.sub_index is not SubIndex.HNSW:
            return {}
        crowds = np.bincount(probes[probes >= 0], minlength=self.files.ivf.num_partitions)
        return {
            number: partition.graph
            for number, partition in partitions.items()
            if partition.graph and partition.graph.worth_walking(int(crowds[number]), ef, allowed.get(number))
        }

    def _load(self, number: int) -> tuple[SearchPartition, int]:
        [loaded] = self._remapped([self._read(number)])
        return loaded, loaded.nbytes

    def _fetch(self, numbers: Sequence[int]) -> list[SearchPartition]:
        """Several partitions with their row ids as stored."""
        rows = int(self.lengths[list(numbers)].sum())
        together = not self._store.is_local and 0 < rows <= FETCHED_ROWS
        read = self.files.read_partitions(numbers) if together else [None] * len(numbers)
        with ThreadPoolExecutor(min(FETCHING_THREADS, len(numbers))) as threads:
            # The context holds the counter of reads.
            contexts = [copy_context() for _ in numbers]
            parts = zip(contexts, numbers, read, strict=True)
            tasks = [threads.submit(context.run, self._read, number, stored) for context, number, stored in parts]
            return [task.result() for task in tasks]

    def _read(self, number: int, stored: Partition | None = None) -> SearchPartition:
        """A partition with its row ids as stored."""
        files = self.files
        stored = files.read_partition(number) if stored is None else stored
        scorer = files.quantizer.scorer(stored.columns, files.ivf.centroids[number])
        graph = self._load_graph(number, stored) if files.kind.sub_index is SubIndex.HNSW else None
        return SearchPartition(stored.row_ids, None, scorer, graph)

    def _remapped(self, stored: Sequence[SearchPartition]) -> Sequence[SearchPartition]:
        """The row ids of all of them are remapped at once: many short arrays take several times as long."""
        if self._reuse is None:
            return stored
        ids, alive = self._reuse.remap(np.concatenate([partition.row_ids for partition in stored]))
        ends = np.cumsum([len(partition.row_ids) for partition in stored]).tolist()
        found: list[SearchPartition] = []
        for partition, start, end in zip(stored, [0, *ends], ends, strict=False):
            # Copies, so that no partition keeps the rows of the others in memory.
            mask = None if alive[start:end].all() else alive[start:end].copy()
            found.append(replace(partition, row_ids=ids[start:end].copy(), alive=mask))
        return found

    def _load_graph(self, number: int, stored: Partition) -> Graph:
        files, quantizer = self.files, cast(PointQuantizer, self.files.quantizer)
        where = f"partition {number} of {files.index.where}"
        graph = HnswGraph.from_columns(files.read_graph_rows(number), files.sub_index[number], where)
        searcher = HnswSearcher(graph, quantizer.node_vectors(stored.columns))
        return Graph(quantizer, files.ivf.centroids[number], searcher)


def _byte_width(type_: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(type_):
        return type_.list_size * _byte_width(type_.value_type)
    return type_.bit_width // 8

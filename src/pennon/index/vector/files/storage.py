"""The two files of a vector segment.

`auxiliary.idx` holds the row ids and codes of all partitions, one after another in the order of partition ids. Its
schema metadata has `distance_type`, `lance:ivf` (the global buffer with offsets and lengths) and `storage_metadata` (a
JSON list of one JSON string: the quantizer's). `index.idx` holds the sub-index: for FLAT no rows at all under the
column `__flat_marker`, for HNSW the graphs. Its metadata has `lance:index` (`{"type", "distance_type"}`), `lance:ivf`
(the global buffer with centroids and the runs of its rows) and `lance:flat` or `lance:hnsw`: a JSON list with one
string per partition. Global buffers are numbered from 1; number 0 is a file's schema. Both files also have digests, see
`checksums`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from pennon.errors import BuildFailed, DamagedFile, UnsupportedTable
from pennon.format.footer import container_version
from pennon.format.index_metadata import IndexFile
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.pb import lance_pb2 as pb
from pennon.format.segment_contents import check_is_own
from pennon.format.store import Store
from pennon.index.checksums import Digester
from pennon.index.vector.files.checksums import DIGESTS_KEY, FileDigests
from pennon.index.vector.files.recorded import AUXILIARY_FILE, INDEX_FILE, OLDER_LAYOUT
from pennon.index.vector.ivf import Ivf, Layout, read_ivf, read_layout, write_ivf
from pennon.index.vector.kinds import VECTOR_KINDS, SubIndex, VectorKind
from pennon.index.vector.metric import Metric
from pennon.index.vector.quantizers.base import Columns, Quantizer
from pennon.index.vector.vectors import to_lists, to_matrix

ROW_ID = "_rowid"

INDEX_KEY, IVF_KEY = "lance:index", "lance:ivf"
DISTANCE_KEY, STORAGE_KEY = "distance_type", "storage_metadata"
# Keys of a quantizer's metadata in older layouts; pylance reads only `storage_metadata`.
OLD_STORAGE_KEYS = ("lance:pq", "lance:sq", "lance:rabit")
SUB_INDEX_KEYS = {SubIndex.FLAT: "lance:flat", SubIndex.HNSW: "lance:hnsw"}
IVF_BUFFER = 1

# Containers before this version hold IVF_PQ in one file, in an older layout; pylance still writes it on request.
FIRST_CONTAINER = (0, 3)

FLAT_SCHEMA = pa.schema([pa.field("__flat_marker", pa.uint64(), nullable=False)])

RowIds = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows of one partition with the plain columns of `Quantizer.encode`."""

    row_ids: RowIds
    columns: Columns

    def __len__(self) -> int:
        return len(self.row_ids)

    @property
    def nbytes(self) -> int:
        return self.row_ids.nbytes + sum(column.nbytes for column in self.columns.values())


@dataclass(frozen=True)
class Graphs:
    """The rows of `index.idx` for a sub-index that has any, run by run in the order of partition ids."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    layout: Layout
    metadata: tuple[str, ...]  # one string per partition, empty for an empty one


def pack_partition(quantizer: Quantizer, partition: Partition) -> pa.RecordBatch:
    """A whole partition in the format of `auxiliary.idx`. Some columns are rearranged over all its rows."""
    stored = quantizer.pack(partition.columns)
    arrays = [pa.array(partition.row_ids, pa.uint64())]
    for field in quantizer.fields():
        column = stored[field.name]
        arrays.append(to_lists(column) if column.ndim == 2 else pa.array(column))
    return pa.record_batch(arrays, schema=auxiliary_schema(quantizer))


def auxiliary_schema(quantizer: Quantizer) -> pa.Schema:
    return pa.schema([pa.field(ROW_ID, pa.uint64()), *quantizer.fields()])


def write_auxiliary(
    store: Store,
    directory: str,
    quantizer: Quantizer,
    layout: Layout,
    batches: Iterable[pa.RecordBatch],
    storage_version: str,
) -> IndexFile:
    """Write the rows of all partitions, packed by `pack_partition`, one after another in batches of any size."""
    content, buffers = quantizer.to_metadata()
    metadata = {
        DISTANCE_KEY: quantizer.metric.value,
        IVF_KEY: str(IVF_BUFFER),
        STORAGE_KEY: _compact([_compact(content)]),
    }
    buffers = [write_ivf(layout), *buffers]
    schema = auxiliary_schema(quantizer)
    return _write_runs(store, directory, AUXILIARY_FILE, schema, layout, batches, storage_version, metadata, buffers)


def write_index(
    store: Store,
    directory: str,
    kind: VectorKind,
    ivf: Ivf,
    storage_version: str,
    graphs: Graphs | None = None,
) -> IndexFile:
    """Write the sub-index. FLAT has no rows: its partitions are searched whole."""
    rows = graphs or Graphs(FLAT_SCHEMA, (), Layout.empty(ivf.num_partitions), ("",) * ivf.num_partitions)
    metadata = {
        INDEX_KEY: _compact({"type": kind.name, "distance_type": ivf.metric.value}),
        IVF_KEY: str(IVF_BUFFER),
        SUB_INDEX_KEYS[kind.sub_index]: _compact(rows.metadata),
    }
    buffers = [write_ivf(rows.layout, ivf)]
    return _write_runs(
        store, directory, INDEX_FILE, rows.schema, rows.layout, rows.batches, storage_version, metadata, buffers
    )


def _write_runs(
    store: Store,
    directory: str,
    name: str,
    schema: pa.Schema,
    layout: Layout,
    batches: Iterable[pa.RecordBatch],
    storage_version: str,
    metadata: dict[str, str],
    buffers: list[bytes],
) -> IndexFile:
    """Write the rows of all partitions, and their digests."""
    digester, written = Digester(layout.lengths.tolist()), 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal written
        for batch in batches:
            written += batch.num_rows
            if written > layout.rows:
                break
            digester.add(batch.columns)
            yield batch

    def global_buffers() -> Iterator[bytes]:
        if written != layout.rows:
            raise BuildFailed(f"{written:,} rows were written for partitions of a new index that have {layout.rows:,}")
        metadata[DIGESTS_KEY] = FileDigests.of(directory, metadata, buffers, digester.finish()).to_text()
        yield from buffers

    return write_lance_file(store, directory, name, schema, counted(), storage_version, metadata, global_buffers())


class VectorFiles:
    """A segment's two files, opened and checked against each other. Raises `DamagedFile` if they are inconsistent, and
    `UnsupportedTable` for the older layout and for unknown kinds and metrics."""

    def __init__(self, store: Store, directory: str, sizes: Mapping[str, int] | None = None) -> None:
        sizes = sizes or {}
        if AUXILIARY_FILE not in sizes and _is_older(store, f"{directory}/{INDEX_FILE}", sizes.get(INDEX_FILE)):
            raise UnsupportedTable(f"{store.describe(directory)}: {OLDER_LAYOUT}")
        self.index = LanceFile(store, f"{directory}/{INDEX_FILE}", sizes.get(INDEX_FILE))
        self.auxiliary = LanceFile(store, f"{directory}/{AUXILIARY_FILE}", sizes.get(AUXILIARY_FILE))
        try:
            self._index_digests = FileDigests.read(self.index.metadata, directory)
            self._auxiliary_digests = FileDigests.read(self.auxiliary.metadata, directory)
            if (self._index_digests is None) != (self._auxiliary_digests is None):
                raise ValueError("files of two segments")
            check_is_own(sizes, self._index_digests, self.index.where)
            self.kind, metric = _read_kind(self.index.metadata)
            coded = Metric.named(self.auxiliary.metadata[DISTANCE_KEY])
            if coded is not metric:
                raise ValueError(f"codes for {coded} in an index for {metric}")
            buffers = _buffers(self.auxiliary, self._auxiliary_digests)
            clusters = _read_message(self.index.metadata, _buffers(self.index, self._index_digests))
            runs = _read_message(self.auxiliary.metadata, buffers)
            self.layout, self.graph_layout = read_layout(runs), read_layout(clusters)
            self.ivf = read_ivf(clusters, metric, len(self.layout.lengths))
            if not metric.measures(self.ivf.element):
                raise ValueError(f"centroids of {self.ivf.element} for {metric}")
            self.sub_index = _read_sub_index(self.index.metadata, self.kind, self.ivf.num_partitions)
            self.quantizer = self.kind.quantizer.from_metadata(
                _read_storage_metadata(self.auxiliary.metadata), self.ivf, buffers
            )
            self._check()
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
            DecodeError,
        ) as error:
            problem = f"no {error}" if isinstance(error, KeyError) else getattr(error, "problem", str(error))
            where = store.describe(directory)
            raise DamagedFile(f"the vector index in {where} is damaged: {problem}", "Rebuild the index") from error

    @property
    def metric(self) -> Metric:
        return self.ivf.metric

    def read_partition(self, partition: int) -> Partition:
        rows = self.auxiliary.read(int(self.layout.offsets[partition]), int(self.layout.lengths[partition]))
        return self._partition(partition, rows)

    def read_partitions(self, partitions: Sequence[int]) -> list[Partition]:
        """Several partitions by one read, in which pylance describes the pages once, and fetches what is needed of them
        at once."""
        order = sorted(partitions)
        offsets, lengths = self.layout.offsets[order], self.layout.lengths[order]
        wanted = [
            np.arange(first, first + count) for first, count in zip(offsets.tolist(), lengths.tolist(), strict=True)
        ]
        rows = self.auxiliary.take(np.concatenate(wanted).tolist())
        ends = np.cumsum(lengths).tolist()
        parts = zip(order, [0, *ends], lengths.tolist(), strict=False)
        read = {number: self._partition(number, rows.slice(start, count)) for number, start, count in parts}
        return [read[number] for number in partitions]

    def _partition(self, partition: int, rows: pa.Table) -> Partition:
        try:
            if self._auxiliary_digests is not None:
                self._auxiliary_digests.check_runs(partition, [rows.num_rows], rows)
            row_ids, stored = _columns(rows)
            return Partition(row_ids, self.quantizer.unpack(stored))
        except ValueError as error:
            where = f"partition {partition} of {self.auxiliary.where}"
            raise DamagedFile(f"{where} is damaged: {error}", "Rebuild the index") from error

    def read_rows(self, first: int, end: int) -> tuple[RowIds, Columns, list[slice]]:
        """Read neighboring partitions at once: ids and columns as stored, and the slice of each partition. The caller
        must unpack each partition separately."""
        offsets, lengths = self.layout.offsets[first:end], self.layout.lengths[first:end]
        filled = np.flatnonzero(lengths)
        start = int(offsets[filled[0]]) if len(filled) else 0
        try:
            rows = self.auxiliary.read(start, int(lengths.sum()))
            if self._auxiliary_digests is not None:
                self._auxiliary_digests.check_runs(first, lengths.tolist(), rows)
            row_ids, stored = _columns(rows)
        except ValueError as error:
            where = f"partitions {first} to {end - 1} of {self.auxiliary.where}"
            raise DamagedFile(f"{where} are damaged: {error}", "Rebuild the index") from error
        cuts = zip((offsets - start).tolist(), lengths.tolist(), strict=True)
        return row_ids, stored, [slice(offset, offset + length) if length else slice(0, 0) for offset, length in cuts]

    def read_graph(self, partition: int) -> tuple[pa.RecordBatch, str]:
        """The graph of a partition as stored, and its metadata."""
        rows = self.read_graph_rows(partition)
        return rows.combine_chunks().to_batches()[0], self.sub_index[partition]

    def read_graph_rows(self, partition: int) -> pa.Table:
        layout = self.graph_layout
        rows = self.index.read(int(layout.offsets[partition]), int(layout.lengths[partition]))
        try:
            if self._index_digests is not None:
                self._index_digests.check_runs(partition, [rows.num_rows], rows)
        except ValueError as error:
            where = f"the graph of partition {partition} of {self.index.where}"
            raise DamagedFile(f"{where} is damaged: {error}", "Rebuild the index") from error
        return rows

    def _check(self) -> None:
        if self.quantizer.dim != self.ivf.dim:
            raise ValueError(f"codes of {self.quantizer.dim} dimensions around centroids of {self.ivf.dim}")
        problem = self.layout.problem(self.ivf.num_partitions, self.auxiliary.num_rows)
        if problem is None and self.kind.sub_index is not SubIndex.FLAT:
            problem = self.graph_layout.problem(self.ivf.num_partitions, self.index.num_rows)
        if problem:
            raise ValueError(problem)
        # Encoding zero rows shows whether the columns are those that the quantizer needs.
        row_ids, stored = _columns(self.auxiliary.schema.empty_table())
        plain = self.quantizer.unpack(stored)
        self.empty = Partition(row_ids, plain)
        for field in self.quantizer.fields():
            column = plain[field.name]
            found = to_lists(column).type if column.ndim == 2 else pa.from_numpy_dtype(column.dtype)
            if found != field.type:
                raise ValueError(f"{found} in the column {field.name}, where {field.type} is expected")


def _is_older(store: Store, path: str, recorded: int | None) -> bool:
    """Whether the version of the container is older; False if the size of the file is unknown."""
    try:
        size = recorded or store.size(path)
        version = container_version(partial(store.read_range, path), size) if size else None
    except DamagedFile:
        return False
    return version is not None and version < FIRST_CONTAINER


def read_kind(store: Store, directory: str, sizes: Mapping[str, int]) -> tuple[VectorKind, Metric]:
    """The kind and the metric of a segment, from its file alone."""
    file = LanceFile(store, f"{directory}/{INDEX_FILE}", sizes.get(INDEX_FILE))
    try:
        return _read_kind(file.metadata)
    except (LookupError, AttributeError, RecursionError, TypeError, ValueError) as error:
        raise DamagedFile(f"{file.where} does not record its kind of index", "Rebuild the index") from error


def _read_kind(metadata: Mapping[str, str]) -> tuple[VectorKind, Metric]:
    recorded = json.loads(metadata[INDEX_KEY])
    kind = VECTOR_KINDS.get(recorded["type"])
    if kind is None:
        raise UnsupportedTable(f"vector index type {recorded['type']!r} is not supported by this version of Pennon")
    metric = Metric.named(recorded["distance_type"])
    if metric is Metric.HAMMING and not kind.quantizer.stores_vectors:
        raise UnsupportedTable(f"{kind.name} for hamming is not supported by this version of Pennon")
    return kind, metric


def _buffers(file: LanceFile, digests: FileDigests | None) -> Callable[[int], bytes]:
    """A function that reads a file's global buffers. Raises ValueError if one is not as it was written."""

    def read(number: int) -> bytes:
        content = file.read_global_buffer(number)
        if digests is not None:
            digests.check_buffer(number, content)
        return content

    return read


def _read_message(metadata: Mapping[str, str], read_buffer: Callable[[int], bytes]) -> pb.IVF:
    return pb.IVF.FromString(read_buffer(int(metadata[IVF_KEY])))


def _read_sub_index(metadata: Mapping[str, str], kind: VectorKind, num_partitions: int) -> tuple[str, ...]:
    """One string per partition. The seed has no list for FLAT, whose list has no content anyway."""
    if kind.sub_index is SubIndex.FLAT:
        return ("",) * num_partitions
    recorded = json.loads(metadata[SUB_INDEX_KEYS[kind.sub_index]])
    if len(recorded) != num_partitions or not all(isinstance(text, str) for text in recorded):
        raise ValueError(f"{len(recorded)} graphs for {num_partitions} partitions")
    return tuple(recorded)


def _read_storage_metadata(metadata: Mapping[str, str]) -> dict[str, Any]:
    old = next((key for key in OLD_STORAGE_KEYS if key in metadata), None)
    if STORAGE_KEY not in metadata and old is not None:
        return _unwrapped(json.loads(metadata[old]))
    (text,) = json.loads(metadata[STORAGE_KEY])
    return _unwrapped(json.loads(text))


def _unwrapped(recorded: dict[str, Any]) -> dict[str, Any]:
    """The seed also has it as `{"pq": {...}}`."""
    inner = next(iter(recorded.values())) if len(recorded) == 1 else None
    return dict(inner if isinstance(inner, dict) else recorded)


def _columns(rows: pa.Table) -> tuple[RowIds, dict[str, npt.NDArray[Any]]]:
    """Row ids and the other columns as numpy. Raises ValueError for NULLs, which no writer writes."""
    arrays = {name: _flat(rows.column(name)) for name in rows.column_names}
    columns: dict[str, npt.NDArray[Any]] = {}
    for name, array in arrays.items():
        if pa.types.is_fixed_size_list(array.type):
            columns[name], whole = to_matrix(array)
            valid = bool(whole.all())
        else:
            valid = array.null_count == 0
            columns[name] = array.to_numpy(zero_copy_only=False)
        if not valid:
            raise ValueError(f"NULLs in the column {name}")
    row_ids = columns.pop(ROW_ID)
    if row_ids.dtype != np.uint64:
        raise ValueError(f"row ids of type {row_ids.dtype}")
    return row_ids, columns


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))

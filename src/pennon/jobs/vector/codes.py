"""Checks that the codes of a vector index match its vectors, and that its graphs are valid.

A sample of every fragment's vectors is encoded again with the segment's models. A code that differs counts as wrong if
its distances differ too: it was encoded with other bounds, or from a vector that has changed since.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses, fragment_of, offset_of
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.vector.files.storage import Partition, VectorFiles
from pennon.index.vector.hnsw.graph import HnswGraph
from pennon.index.vector.kinds import SubIndex
from pennon.index.vector.metric import Metric, squared_lengths
from pennon.index.vector.quantizers.base import Columns, Quantizer, take_columns
from pennon.index.vector.vectors import Floats, Mask, Positions, Vectors, to_rows
from pennon.jobs.audit.checksums import Sums, facts_of_hashes, mixed
from pennon.jobs.audit.targets import CodeTally, Piece, Subject, answered_by
from pennon.jobs.vector.scan import PRESENT, files_of

# The number of rows of a fragment whose codes are checked, and of a whole segment.
FRAGMENT_ROWS = 64
SEGMENT_ROWS = 20_000
# The tolerance of a distance: as a share of the spread of a partition, and for rounding as a share of the length.
SPREAD_SHARE, LENGTH_SHARE = 1e-2, 1e-5
COMPARED_ROWS = 256


def check_partitions(pin: Pin, piece: Piece) -> tuple[Sums, CodeTally]:
    """Check some partitions of a segment: their rows, codes and graphs."""
    files, answered = files_of(pin, piece.subject), answered_by(pin, piece.subject)
    sums, codes = Sums.over(piece.subject.fragments), CodeTally()
    snapshot = pin.open()
    column, chances = snapshot.column(piece.subject.column), _Chances(snapshot, piece.subject)
    for number in range(piece.start, piece.stop):
        partition = files.read_partition(number)
        _check_graph(files, number, partition)
        addresses, kept = answered.locate(partition.row_ids)
        sums.add(addresses[kept], facts_of_hashes(addresses[kept], PRESENT))
        picked = np.flatnonzero(kept)
        picked = picked[chances.pick(addresses[picked])]
        for start in range(0, len(picked), COMPARED_ROWS):
            rows = picked[start : start + COMPARED_ROWS]
            vectors, owners = _vectors(snapshot, column.path, files.metric, addresses[rows])
            wrong = wrong_codes(files, number, take_columns(partition.columns, rows[owners]), vectors)
            # Of several vectors of a row, one has the code.
            right, checked = np.unique(owners[~wrong]), np.unique(owners)
            codes.add(len(checked), addresses[rows[np.setdiff1d(checked, right)]])
    return sums.filled(), codes


def wrong_codes(files: VectorFiles, number: int, stored: Columns, vectors: Vectors) -> Mask:
    """A mask of the rows of a partition whose codes do not match their vectors."""
    quantizer, centroids = files.quantizer, files.ivf.centroids
    prepared = files.metric.prepare(vectors)
    fresh = quantizer.encode(prepared, centroids, np.full(len(vectors), number, dtype=np.uint32))
    suspects = np.flatnonzero(quantizer.differs(stored, fresh))
    wrong = np.zeros(len(vectors), dtype=np.bool_)
    if len(suspects):
        prepared_queries = quantizer.prepare(prepared[suspects])
        found = _own_distances(quantizer, take_columns(stored, suspects), centroids[number], prepared_queries)
        expected = _own_distances(quantizer, take_columns(fresh, suspects), centroids[number], prepared_queries)
        points = files.metric.points(prepared)
        lengths = squared_lengths(points)
        spread = lengths
        if files.metric.by_l2:
            spread = squared_lengths(points - files.metric.points(centroids[[number]]))
        # Bits are not rounded.
        spread = spread * (files.metric is not Metric.HAMMING)
        allowed = SPREAD_SHARE * float(spread.mean()) + LENGTH_SHARE * lengths[suspects]
        # Negated <=, so that NaN is wrong too.
        wrong[suspects] = ~(np.abs(found - expected) <= allowed)
    return wrong


def _own_distances(quantizer: Quantizer, columns: Columns, centroid: Vectors, prepared_queries: Vectors) -> Floats:
    """The distance of each vector to its own code."""
    return np.diagonal(quantizer.scorer(columns, centroid).distances(prepared_queries))


def _check_graph(files: VectorFiles, number: int, partition: Partition) -> None:
    if files.kind.sub_index is not SubIndex.HNSW:
        return
    where = f"partition {number} of {files.index.where}"
    layout = files.graph_layout
    rows = files.index.read(int(layout.offsets[number]), int(layout.lengths[number]))
    graph = HnswGraph.from_columns(rows, files.sub_index[number], where)
    if len(graph) != len(partition):
        raise DamagedFile(f"{where} has a graph of {len(graph)} nodes over {len(partition)} rows")


class _Chances:
    """Selects the rows to check: sampled by address, about equally many of each fragment."""

    def __init__(self, snapshot: Snapshot, subject: Subject) -> None:
        self._fragments = np.array(sorted(subject.fragments), dtype=np.uint32)
        quota = min(FRAGMENT_ROWS, max(1.0, SEGMENT_ROWS / max(1, len(self._fragments))))
        rows = np.array([max(1, snapshot.manifest.fragments[int(f)].live_rows) for f in self._fragments])
        self._limits: npt.NDArray[np.float64] = np.minimum(1.0, quota / rows)

    def pick(self, addresses: Addresses) -> Mask:
        limits = self._limits[np.searchsorted(self._fragments, fragment_of(addresses))]
        return np.asarray(mixed(addresses) / 2.0**64 < limits)


def _vectors(snapshot: Snapshot, path: str, metric: Metric, addresses: Addresses) -> tuple[Vectors, Positions]:
    """The vectors that can be measured, and the positions of their rows; the comparison of rows reports the others."""
    there = np.flatnonzero(_exist(snapshot, addresses))
    values: pa.Array = snapshot.take_in_order(addresses[there], [path]).column(0).combine_chunks()
    while pa.types.is_struct(values.type):  # pylance returns a nested column inside its structs
        [values] = values.flatten()
    vectors, rows = to_rows(values)
    kept = metric.indexable(vectors)
    return vectors[kept], there[rows[kept]]


def _exist(snapshot: Snapshot, addresses: Addresses) -> Mask:
    """A damaged file may list rows beyond the end of a fragment."""
    fragments, at = np.unique(fragment_of(addresses), return_inverse=True)
    ends = np.array([snapshot.manifest.fragments[int(f)].physical_rows for f in fragments], dtype=np.uint64)
    return offset_of(addresses) < ends[at]

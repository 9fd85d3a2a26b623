"""The audit's reads of a vector column and of the files of a segment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.metric import Metric
from pennon.index.vector.vectors import Vectors, VectorType, to_rows
from pennon.jobs.audit.checksums import Facts, facts_of_hashes
from pennon.jobs.audit.targets import Subject, View

# For a vector, only its presence is compared; codes are checked separately.
PRESENT = np.uint64(1)
# Vectors scanned at once.
SCANNED_BYTES = 32 << 20


def metric_of(view: View) -> Metric:
    return cast(Metric, view.detail)


def read_vectors(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Addresses, Facts]]:
    """The rows whose vectors an index contains."""
    for _, addresses in scan_vectors(pin, view, part):
        yield addresses, facts_of_hashes(addresses, PRESENT)


def scan_vectors(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Vectors, Addresses]]:
    """Vectors that an index contains, with the addresses of their rows."""
    snapshot = pin.open()
    column = snapshot.column(view.column)
    width = VectorType.of(column.type).nbytes
    metric = metric_of(view)
    for values, addresses in snapshot.scan_column(column, part, max(1, SCANNED_BYTES // width)):
        vectors, rows = to_rows(values)
        kept = metric.indexable(vectors)
        yield vectors[kept], addresses[rows[kept]]


def files_of(pin: Pin, subject: Subject) -> VectorFiles:
    """Raises DamagedFile, also if the dimension differs from that of the column."""
    snapshot, segment = pin.open(), subject.segment
    files = VectorFiles(snapshot.store, segment.directory, segment.file_sizes)
    width = VectorType.of(snapshot.column(subject.column).type).dim
    if files.ivf.dim != width:
        where = snapshot.store.describe(segment.directory)
        raise DamagedFile(f"{where} holds vectors of {files.ivf.dim} dimensions, the column of {width}")
    return files

"""The audit of a vector index: its rows, a sample of its codes, its graphs, and the recall of a search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pennon.engine import Engine
from pennon.format.addresses import Addresses
from pennon.format.snapshot import Pin, Snapshot
from pennon.jobs.audit.checksums import Facts, Sums, facts_of_hashes
from pennon.jobs.audit.targets import CodeTally, Piece, Subject, View, answered_by
from pennon.jobs.kinds import Recall
from pennon.jobs.vector.codes import check_partitions
from pennon.jobs.vector.recall import POOR_RECALL, REFINE, K, measure_recall
from pennon.jobs.vector.scan import PRESENT, files_of, read_vectors
from pennon.wording import plural


@dataclass(frozen=True)
class VectorAudit:
    scalar: bool = False
    repeating: bool = False

    def inspect(self, pin: Pin, subject: Subject) -> tuple[npt.NDArray[np.integer[Any]], View]:
        files = files_of(pin, subject)
        return files.layout.lengths, View(subject.column, read_vectors, files.metric)

    def stored_rows(self, pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
        answered, files = answered_by(pin, piece.subject), files_of(pin, piece.subject)
        for number in range(piece.start, piece.stop):
            addresses, kept = answered.locate(files.read_partition(number).row_ids)
            yield addresses[kept], facts_of_hashes(addresses[kept], PRESENT)

    def check(self, pin: Pin, piece: Piece) -> tuple[Sums, CodeTally]:
        return check_partitions(pin, piece)

    def recall(self, engine: Engine, snapshot: Snapshot, index: str, view: View, queries: int) -> Recall | None:
        measured = measure_recall(engine, snapshot, index, view, queries)
        if measured is None:
            return None
        share, queried = measured
        by = plural(queried, "query", "queries")
        problem = f"recall@{K} is {share:.3f} with refine_factor={REFINE}, by {by}"
        return Recall(share, problem, share < POOR_RECALL)

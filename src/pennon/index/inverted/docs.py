"""The documents of a partition: which row each is, and how many tokens it has. A document's number is its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import FrozenBitMap

from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses, fragment_of
from pennon.index.arrays import Flags, UInt32s
from pennon.index.inverted.scoring import Statistics

REMEDY = "Rebuild the index"
ROW_ID, NUM_TOKENS = "_rowid", "_num_tokens"
TOTAL_TOKENS = "total_tokens"
SCHEMA = pa.schema([pa.field(ROW_ID, pa.uint64(), nullable=False), pa.field(NUM_TOKENS, pa.uint32(), nullable=False)])
# A number of 32 bits is left for documents that are dead.
MOST_DOCS = (1 << 32) - 1


@dataclass(frozen=True, eq=False)
class Docs:
    """Documents with at least one token."""

    row_ids: Addresses
    lengths: UInt32s

    def __len__(self) -> int:
        return len(self.row_ids)

    @property
    def nbytes(self) -> int:
        return self.row_ids.nbytes + self.lengths.nbytes

    @property
    def statistics(self) -> Statistics:
        return Statistics(len(self), int(self.lengths.sum(dtype=np.int64)))

    def to_batch(self) -> pa.RecordBatch:
        return pa.record_batch([pa.array(self.row_ids), pa.array(self.lengths)], schema=SCHEMA)

    @classmethod
    def of(cls, table: pa.Table, total_tokens: str | None, where: str) -> Docs:
        """Documents as read; the sum of their tokens is checked where it is recorded."""
        if table.schema.names[:2] != SCHEMA.names or table.schema.types[:2] != SCHEMA.types:
            raise DamagedFile(f"{where} does not hold documents", REMEDY)
        if len(table.schema.names) > len(SCHEMA.names):
            raise DamagedFile(f"{where} holds documents of list elements, which Pennon does not read", REMEDY)
        if any(column.null_count for column in table.columns) or len(table) >= MOST_DOCS:
            raise DamagedFile(f"{where} has NULLs or too many documents", REMEDY)
        row_ids, lengths = (column.to_numpy() for column in table.columns)
        docs = cls(row_ids, lengths)
        if total_tokens is not None and total_tokens != str(docs.statistics.total_tokens):
            raise DamagedFile(f"the tokens of documents in {where} do not add up to {total_tokens[:32]}", REMEDY)
        return docs

    @classmethod
    def concatenated(cls, parts: Sequence[Docs]) -> Docs:
        """Documents of several partitions, one after another."""
        if not parts:
            return cls(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint32))
        return cls(np.concatenate([part.row_ids for part in parts]), np.concatenate([part.lengths for part in parts]))


def in_fragments(row_ids: Addresses, fragments: FrozenBitMap) -> Flags:
    """Which row ids, of tables without stable ones, are addresses in some fragments."""
    if not fragments:
        return np.zeros(len(row_ids), dtype=np.bool_)
    return np.isin(fragment_of(row_ids), np.fromiter(fragments, dtype=np.uint32, count=len(fragments)))

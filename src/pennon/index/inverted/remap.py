"""A segment after its rows got new addresses.

Only documents have row ids: tokens and postings are copied as they are. Dead documents keep their old address, and
their old fragments, whose ids are never used again, are listed as deleted, so that every reader leaves them out.
They still count in scores and take room: where many died, and where a dead row's fragment lives on, which is always so
for stable row ids, the partitions are rewritten instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap, FrozenBitMap

from pennon.format.addresses import Addresses, fragment_of
from pennon.index.arrays import Flags
from pennon.index.inverted.docs import Docs, in_fragments
from pennon.index.inverted.files import PartitionFiles
from pennon.index.inverted.merge import Source

# The row ids of today, and which rows still exist; the first is of no meaning for those that do not.
Remap = Callable[[Addresses], tuple[Addresses, Flags]]
# Beyond this share of dead documents, those that live are worth writing again.
MOST_DEAD = 0.2


@dataclass(frozen=True, eq=False)
class RemappedPartition:
    """The documents of a partition after a remap: dead ones have the address they had."""

    files: PartitionFiles
    docs: Docs
    alive: Flags

    @classmethod
    def of(cls, files: PartitionFiles, deleted: FrozenBitMap, remap: Remap) -> RemappedPartition:
        """`deleted` are fragments whose documents have been dead before."""
        docs = files.read_docs()
        row_ids, alive = remap(docs.row_ids)
        alive = alive & ~in_fragments(docs.row_ids, deleted)
        return cls(files, Docs(np.where(alive, row_ids, docs.row_ids), docs.lengths), alive)

    @property
    def dead(self) -> int:
        return len(self.docs) - int(np.count_nonzero(self.alive))

    @property
    def dead_fragments(self) -> BitMap:
        """Fragments that dead documents have been in."""
        return BitMap(np.unique(fragment_of(self.docs.row_ids[~self.alive])))

    def source(self) -> Source:
        """The partition without its dead documents, to be merged."""
        return Source(self.files, self.docs, None if self.alive.all() else self.alive)


def must_rewrite(
    parts: Sequence[RemappedPartition], live_fragments: BitMap | FrozenBitMap, stable_row_ids: bool
) -> bool:
    """Whether a remap of documents alone would be wrong, or would leave too many dead ones. A live fragment cannot be
    masked: it has documents that are not dead."""
    dead, docs = sum(part.dead for part in parts), sum(len(part.docs) for part in parts)
    if dead and (stable_row_ids or dead > MOST_DEAD * docs):
        return True
    return any(part.dead_fragments & live_fragments for part in parts)

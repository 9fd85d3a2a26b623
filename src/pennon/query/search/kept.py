"""What a handle keeps of a filter, so that the next search with the same one does not start over: the rows that it
selects, and their vectors once it has been asked often enough. All of it is in the cache of the process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pennon.format.addresses import Addresses
from pennon.index.cache import ByteCache
from pennon.index.vector.vectors import Vectors
from pennon.query.catalog import Catalog
from pennon.query.search.prefilter import Prefilter, Selection
from pennon.query.search.source import Source

# Vectors of more bytes than these are not kept.
MOST_BYTES = 16 << 20


@dataclass(eq=False)
class KeptFilter:
    """`spent` is what searches in partitions have cost so far, in nanoseconds."""

    prefilter: Prefilter
    selection: Selection
    spent: float = 0.0


def filter_of(catalog: Catalog, source: Source, filter: str) -> tuple[KeptFilter, bool]:
    """What a filter selects of what an index covers, and whether it was known."""
    key = ("filter", source.segments[0].live.token, filter)
    kept = catalog.cache.get(key)
    if kept is not None:
        return kept, True
    prefilter = Prefilter.of(catalog, filter)
    made = KeptFilter(prefilter, Selection.of(prefilter.rows(source.covered)))
    flags = catalog.snapshot.manifest.rows_in(source.covered)
    catalog.cache.put(key, made, prefilter.answer.indexed.rows.nbytes + made.selection.rows.nbytes + flags)
    return made, False


@dataclass(frozen=True, eq=False)
class KeptVectors:
    """The vectors of the rows that a filter selects, without those that have no distance."""

    cache: ByteCache
    key: tuple[object, ...]

    @classmethod
    def of(cls, catalog: Catalog, source: Source, filter: str) -> KeptVectors:
        return cls(catalog.cache, ("vectors", source.segments[0].live.token, source.metric, filter))

    @property
    def known(self) -> bool:
        return self.key in self.cache

    def get(self) -> tuple[Vectors, Addresses] | None:
        return self.cache.get(self.key)

    def put(self, batches: list[tuple[Vectors, Addresses]]) -> None:
        if not batches or sum(vectors.nbytes for vectors, _ in batches) > MOST_BYTES:
            return
        vectors = np.concatenate([vectors for vectors, _ in batches])
        addresses = np.concatenate([addresses for _, addresses in batches])
        self.cache.put(self.key, (vectors, addresses), vectors.nbytes + addresses.nbytes)

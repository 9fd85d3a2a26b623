"""The cache of this process: what it holds, and how it is filled before queries come."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pennon.deferred import deferred
from pennon.index.cache import CacheStatistics
from pennon.table.arguments import check_texts
from pennon.table.handle import TableHandle

if TYPE_CHECKING:
    from pennon.query.warm import Warmed, warm
else:
    warm = deferred("pennon.query.warm", "warm")


class CacheVerbs(TableHandle):
    def warm(self, index: str | None = None) -> Warmed:
        """Load indices into the cache of this process, so that the first queries need not: lookups and centroids,
        then pages, partitions and posting lists, until the cache is full.

        The cache holds 512 MiB unless PENNON_CACHE_BYTES of the environment gives another number. With a disk cache
        (`pennon.open(..., disk_cache=...)`), the files read are then on disk for other processes, too.

        Args:
            index: the name of an index. Default: all, in the order of the table.

        Returns:
            Counts and bytes of what was loaded, for each index.

        Raises:
            IndexNotFound: there is no index of that name.
            StoreUnavailable: the store does not answer; try again later.
            InvalidArgument: an argument of another type.
        """
        if index is not None:
            check_texts(index=index)
        return warm(self._indices(), index)

    def cache_statistics(self) -> CacheStatistics:
        """The cache of this process, which all tables share: bytes, entries, hits, misses and evictions; and its
        disk cache, if it has one.

        Returns:
            Figures since the process started. `explain(analyze=True)` has those of one query.

        Raises:
            StoreUnavailable: the store does not answer; try again later.
        """
        disk = self._snapshot.store.disk_cache
        found = self._indices().cache.statistics()
        return found if disk is None else replace(found, disk=disk.statistics())

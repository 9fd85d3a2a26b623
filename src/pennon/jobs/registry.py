"""The work on every kind of index. A new kind is a package in `index/`, one here, and a line in each registry."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from pennon.errors import UnsupportedTable
from pennon.format.index_metadata import IndexSegment
from pennon.index.bitmap.kind import BITMAP, LABEL_LIST
from pennon.index.btree.kind import BTREE
from pennon.index.inverted.kind import INVERTED
from pennon.index.kind import IndexKind
from pennon.index.ngram.kind import NGRAM
from pennon.index.registry import kind_named, kind_of
from pennon.index.rtree.kind import RTREE
from pennon.index.vector.kind import VECTOR
from pennon.index.zones.kind import BLOOM_FILTER, ZONE_MAP
from pennon.jobs.kinds import KindJobs


def _imported(family: str, name: str, *arguments: IndexKind) -> Callable[[], KindJobs]:
    """Imported when first needed: queries need none of it, and kernels take seconds to load."""
    return cache(lambda: getattr(import_module(f"pennon.jobs.{family}.jobs"), name)(*arguments))


JOBS: dict[IndexKind, Callable[[], KindJobs]] = {
    BTREE: _imported("btree", "BTreeJobs"),
    ZONE_MAP: _imported("zones", "ZonesJobs", ZONE_MAP),
    BLOOM_FILTER: _imported("zones", "ZonesJobs", BLOOM_FILTER),
    BITMAP: _imported("bitmap", "BitmapJobs", BITMAP),
    LABEL_LIST: _imported("bitmap", "BitmapJobs", LABEL_LIST),
    NGRAM: _imported("ngram", "NGramJobs"),
    RTREE: _imported("rtree", "RTreeJobs"),
    INVERTED: _imported("inverted", "InvertedJobs"),
    VECTOR: _imported("vector", "VectorJobs"),
}


def jobs_named(index_type: str) -> KindJobs:
    """Of a type that users ask for; UnknownIndexType where there is none."""
    return JOBS[kind_named(index_type)]()


def jobs_of(segment: IndexSegment) -> KindJobs:
    """Of the kind that a segment is of; UnsupportedTable where Pennon does not know it."""
    kind = kind_of(segment)
    if kind is None:
        raise UnsupportedTable(
            f"index {segment.name!r} is of a type that Pennon does not know ({segment.type_url or 'none'})",
            "Use the tool that wrote it",
        )
    return JOBS[kind]()

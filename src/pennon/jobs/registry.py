"""The work on every kind of index. A new kind is a package in `index/`, one here, and a line in each registry."""

from __future__ import annotations

from pennon.errors import UnsupportedTable
from pennon.format.index_metadata import IndexSegment
from pennon.index.btree.kind import BTREE
from pennon.index.kind import IndexKind
from pennon.index.registry import kind_named, kind_of
from pennon.index.vector.kind import VECTOR
from pennon.jobs.btree.jobs import BTreeJobs
from pennon.jobs.kinds import KindJobs
from pennon.jobs.vector.jobs import VectorJobs

JOBS: dict[IndexKind, KindJobs] = {BTREE: BTreeJobs(), VECTOR: VectorJobs()}


def jobs_named(index_type: str) -> KindJobs:
    """Of a type that users ask for; UnknownIndexType where there is none."""
    return JOBS[kind_named(index_type)]


def jobs_of(segment: IndexSegment) -> KindJobs:
    """Of the kind that a segment is of; UnsupportedTable where Pennon does not know it."""
    kind = kind_of(segment)
    if kind is None:
        raise UnsupportedTable(
            f"index {segment.name!r} is of a type that Pennon does not know ({segment.type_url or 'none'})",
            "Use the tool that wrote it",
        )
    return JOBS[kind]

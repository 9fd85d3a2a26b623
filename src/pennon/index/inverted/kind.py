"""The inverted index as one of the kinds Pennon knows."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from pennon.errors import DamagedFile, InvalidArgument, UnsupportedTable
from pennon.format.index_metadata import IndexSegment
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.inverted.analysis.column_types import supports_type
from pennon.index.inverted.analysis.params import TYPE_URL, TextParams
from pennon.index.kind import KindDefaults, Query
from pennon.index.options import IndexOptions, OptionsByType

# Imported where they are used: their kernels take seconds to load, and every query imports this module.
if TYPE_CHECKING:
    from pennon.index.inverted.files import SegmentMetadata
    from pennon.index.inverted.segment import InvertedSegment

# What pylance writes for the format that Pennon writes; 3 is read where blocks are the same.
INDEX_VERSION = 2
LEFT_TO_PYLANCE = "it is left to pylance"


@dataclass(frozen=True)
class InvertedKind(KindDefaults):
    """Documents are named by row id: by address, or by stable row id on tables that have them."""

    queries: frozenset[Query] = frozenset({Query.TEXT})
    options: ClassVar[Mapping[str, type[IndexOptions]]] = OptionsByType(
        "pennon.index.inverted.options", INVERTED="Inverted"
    )
    names: tuple[str, ...] = tuple(options)
    type_url: str = TYPE_URL
    type_names: frozenset[str] = frozenset({"lance.table.invertedindexdetails", "lance.index.pb.invertedindexdetails"})
    versions: frozenset[int] = frozenset({INDEX_VERSION, 3})
    types: str = "strings, lists of strings, and JSON"

    def supports(self, type_: pa.DataType) -> bool:
        return supports_type(type_)

    def objection(self, segment: IndexSegment) -> str | None:
        """Where text becomes terms in a way that Pennon cannot reproduce, or the files have another form."""
        if not segment.details:
            return f"an inverted index without recorded parameters; {LEFT_TO_PYLANCE}"
        try:
            TextParams.from_details(segment.details)
        except (InvalidArgument, DamagedFile) as error:
            return f"{error.problem}; {LEFT_TO_PYLANCE}"
        return None

    def open(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> InvertedSegment:
        from pennon.index.inverted.segment import InvertedSegment  # noqa: PLC0415

        with _reproducible():
            return InvertedSegment(snapshot.store, segment, cache, reuse)

    def metadata_of(self, snapshot: Snapshot, segment: IndexSegment) -> SegmentMetadata:
        """Parameters and partitions. DamagedFile, or UnsupportedTable where the parameters cannot be reproduced."""
        from pennon.index.inverted.files import read_metadata  # noqa: PLC0415

        with _reproducible():
            return read_metadata(snapshot.store, segment.directory, segment.file_sizes)


INVERTED = InvertedKind()


@contextmanager
def _reproducible() -> Generator[None]:
    try:
        yield
    except InvalidArgument as error:
        raise UnsupportedTable(f"{error.problem}; {LEFT_TO_PYLANCE}") from error

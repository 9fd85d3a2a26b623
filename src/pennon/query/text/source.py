"""Where a text search finds the words of a column: the segments of one index, and the fragments that none covers."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

from pyroaring import BitMap

from pennon.errors import DamagedFile, DamagedTable, IndexNotFound, InvalidArgument, UnsupportedTable
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import LogicalIndex, group_segments
from pennon.format.schema import Column
from pennon.format.snapshot import Snapshot
from pennon.index.arrays import Flags
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse.coverage import effective_coverage
from pennon.index.inverted.analysis.analyzer import FUZZY_PARAMS
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.files import read_metadata
from pennon.index.inverted.search.combined import RowLengths
from pennon.index.inverted.search.leaves import TextIndex
from pennon.index.inverted.segment import InvertedSegment, Partition
from pennon.index.kind import Query
from pennon.index.registry import kind_of, why_unusable
from pennon.query.catalog import Catalog, Skipped, UnusableSegment, UsableSegment, attributing_errors
from pennon.query.search.live_rows import LiveRows, PartitionRows

# Without an index, pylance compares words as they are written. Its fuzzy queries do so in any case.
PLAIN_PARAMS = FUZZY_PARAMS
_LEFT_OUT = ("text", "segments left out")


@dataclass(frozen=True, eq=False)
class TextSegment:
    """An open segment, and the live fragments it is asked about. One that covers none counts in statistics only."""

    usable: UsableSegment
    opened: InvertedSegment
    coverage: BitMap
    live: LiveRows


@dataclass(frozen=True, eq=False)
class TextSource:
    """`scanned` are the live fragments whose texts are read. Segments with other parameters are passed over."""

    column: Column
    name: str | None
    params: TextParams
    segments: tuple[TextSegment, ...]
    index: TextIndex | None
    covered: BitMap
    scanned: BitMap
    passed_over: tuple[Skipped, ...]
    cache: ByteCache
    owners: Mapping[Partition, TextSegment]

    def rows(self, partition: Partition) -> PartitionRows:
        """Worked out once per handle on a version, and cached with the documents."""
        live = self.owners[partition].live

        def load() -> tuple[PartitionRows, int]:
            found = live.of(partition.docs.docs.row_ids, partition.docs.alive)
            return found, found.nbytes

        return self.cache.get_or_load((live.token, partition.files.partition), load)

    def allowed(self, partition: Partition, chosen: Addresses | None) -> Flags | None:
        """The documents of a partition that may be found: live, covered, and among the chosen (ascending) addresses;
        None for all."""
        return self.rows(partition).among(chosen)

    def lengths(self, partition: Partition) -> RowLengths:
        """The tokens of its documents that may be found, by address; cached with the documents."""
        token = self.owners[partition].live.token

        def load() -> tuple[RowLengths, int]:
            rows, lengths = self.rows(partition), partition.docs.docs.lengths
            kept = slice(None) if rows.allowed is None else rows.allowed
            found = RowLengths.of(rows.addresses[kept], lengths[kept])
            return found, found.nbytes

        return self.cache.get_or_load((token, partition.files.partition, "lengths"), load)

    @contextmanager
    def attributing_damage(self) -> Generator[None]:
        """Name the segment that a damaged file belongs to."""
        try:
            yield
        except DamagedTable:
            raise
        except DamagedFile as error:
            for segment in self.segments:
                if segment.usable.segment.uuid in error.problem:
                    raise UnusableSegment(segment.usable, error) from error
            raise


def find_source(catalog: Catalog, column: Column, name: str | None = None) -> TextSource:
    """By the named index, if it is one on the column, or the one that covers most. Remembered, since most searches of a
    column have the same. May raise UnusableSegment.

    Raises:
        UnsupportedTable: the column has an index whose analysis Pennon does not reproduce.
        DamagedFile: what the index records of its analysis cannot be read.
    """
    known = catalog.memory.setdefault(("text", column.path), {})
    found = known.get(name)
    if found is None:
        found = known[name] = _source(catalog, column, name)
    return found


def check_index(snapshot: Snapshot, name: str, columns: Iterable[Column]) -> None:
    """Whether a text index of this name is on one of the columns.

    Raises:
        IndexNotFound: the table has no index of this name.
        InvalidArgument: it is of another kind, or on another column.
    """
    searched = list(columns)
    here = {index.name for column in searched for index in _indices(snapshot, column)}
    if name in here:
        return
    every = [segment.name for segment in snapshot.manifest.user_segments]
    if name not in every:
        raise IndexNotFound.among(every, name, snapshot.uri)
    paths = ", ".join(repr(column.path) for column in searched)
    known = f"Indices that it could be: {', '.join(sorted(here))}" if here else "Leave out index"
    raise InvalidArgument(f"index {name!r} is not a text index on a column that is searched: {paths}", known)


def exclude(catalog: Catalog, unusable: UnusableSegment) -> None:
    """Search without a segment from now on, also without one that only counted in statistics."""
    catalog.lasting.setdefault(_LEFT_OUT, set()).add(unusable.usable.segment.uuid)
    catalog.memory.pop(("text", unusable.usable.column.path), None)
    catalog.exclude(unusable)


def indexed_columns(snapshot: Snapshot) -> list[str]:
    """Paths of the columns that have an index for text, in the order of the schema."""
    return [column.path for column in snapshot.columns if _indices(snapshot, column)]


def combined_params(sources: Sequence[TextSource]) -> TextParams:
    """How columns that are searched as one analyze text: as their indices do, which must agree.

    Raises:
        InvalidArgument: none has an index, or they analyze text in different ways.
    """
    indexed = [source for source in sources if source.name is not None]
    if not indexed:
        columns = ", ".join(repr(source.column.path) for source in sources)
        raise InvalidArgument(f"none of the combined columns has an inverted index: {columns}", "Build one of them")
    first = indexed[0]
    params = replace(first.params, with_position=False)
    for other in indexed[1:]:
        if replace(other.params, with_position=False) != params:
            raise InvalidArgument(
                f"indices {first.name!r} and {other.name!r} of combined columns analyze text in different ways",
                "Build them with the same parameters, or use a MultiMatch",
            )
    return params


def _source(catalog: Catalog, column: Column, name: str | None) -> TextSource:
    snapshot = catalog.snapshot
    live = BitMap(snapshot.manifest.live)
    indices = _indices(snapshot, column)
    if not indices:
        return TextSource(column, None, PLAIN_PARAMS, (), None, BitMap(), live, (), catalog.cache, {})
    usable = {own.segment.uuid: own for index in catalog.serving(Query.TEXT, column.path) for own in index.segments}
    rows = snapshot.manifest.rows_in
    index = next((index for index in indices if index.name == name), None) or max(
        indices, key=lambda index: sum(rows(usable[s.uuid].coverage) for s in index.segments if s.uuid in usable)
    )
    chosen = [*_usable(catalog, index, column, usable)]
    segments: list[TextSegment] = []
    passed_over: list[Skipped] = []
    params: TextParams | None = None
    covered = BitMap()
    for own in chosen:
        with attributing_errors(own):
            opened = cast(InvertedSegment, catalog.open(own))
            _ = opened.statistics  # reads the documents, which every search needs
        params = params or opened.metadata.params
        if replace(opened.metadata.params, with_position=params.with_position) != params:
            passed_over.append(Skipped(index.name, own.segment.uuid, "has other parameters than the first segment"))
            continue
        # No writer lets segments overlap; if one did, a row would be found twice.
        coverage = own.coverage - covered
        addresses = own.kind.stores_addresses(own.segment.index_version, snapshot.manifest.has_stable_row_ids)
        segments.append(TextSegment(own, opened, coverage, LiveRows(snapshot, coverage, addresses)))
        covered |= coverage
    text_index = TextIndex([segment.opened for segment in segments]) if segments else None
    params = params or _recorded_params(snapshot, index, column)
    owners = {part: segment for segment in segments for part in segment.opened.partitions}
    return TextSource(
        column,
        index.name,
        params,
        tuple(segments),
        text_index,
        covered,
        live - covered,
        tuple(passed_over),
        catalog.cache,
        owners,
    )


def _indices(snapshot: Snapshot, column: Column) -> list[LogicalIndex]:
    """The text indices on a column, usable or not."""
    found: list[LogicalIndex] = []
    for index in group_segments(snapshot.manifest.user_segments):
        kinds = [kind_of(segment) for segment in index.segments if segment.fields == (column.field_id,)]
        if any(kind is not None and Query.TEXT in kind.queries for kind in kinds):
            found.append(index)
    return found


def _usable(
    catalog: Catalog, index: LogicalIndex, column: Column, usable: Mapping[str, UsableSegment]
) -> Generator[UsableSegment]:
    """The segments of an index that answer, and those that cover nothing any more: pylance counts their documents."""
    snapshot, left_out = catalog.snapshot, catalog.lasting.get(_LEFT_OUT, ())
    for segment in index.segments:
        kind = kind_of(segment)
        if segment.uuid in left_out or kind is None or Query.TEXT not in kind.queries:
            continue
        if segment.uuid in usable:
            yield usable[segment.uuid]
        elif (
            segment.fields == (column.field_id,)
            and why_unusable(snapshot, segment) is None
            and not effective_coverage(segment, snapshot, catalog.reuse, index.segments)
        ):
            yield UsableSegment(segment, kind, column, BitMap())


def _recorded_params(snapshot: Snapshot, index: LogicalIndex, column: Column) -> TextParams:
    """The parameters of an index none of whose segments can be used. Its rows are scanned with them."""
    reasons = [reason for segment in index.segments if (reason := why_unusable(snapshot, segment)) is not None]
    for segment in index.segments:
        try:
            if why_unusable(snapshot, segment) is None:
                return read_metadata(snapshot.store, segment.directory, segment.file_sizes).params
        except InvalidArgument as error:
            reasons.append(error.problem)
        except DamagedTable:
            raise
        except DamagedFile:
            continue
    if reasons:
        raise UnsupportedTable(
            f"index {index.name!r} on column {column.path!r} of {snapshot.uri} cannot be searched: {reasons[0]}",
            "Search it with pylance, or build an index with other parameters by create_index",
        )
    raise DamagedFile(
        f"how index {index.name!r} of {snapshot.uri} analyzes column {column.path!r} cannot be read",
        "Build it again with create_index",
    )

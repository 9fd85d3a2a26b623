"""A look into the files of a segment: whether they are all there, with which parameters, and how even."""

from __future__ import annotations

from dataclasses import dataclass

from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store
from pennon.index.btree.segment import BTreeSegment
from pennon.index.cache import ByteCache
from pennon.index.registry import kind_of, why_unusable
from pennon.index.vector.files.details import VectorDetails
from pennon.index.vector.search.segment import VectorSegment
from pennon.report.balance import PageBalance, PartitionBalance

Parameters = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Inspection:
    """`strange` is what only the files tell: an index for a metric that Pennon does not know."""

    opened: bool
    damage: str | None = None
    strange: str | None = None
    parameters: Parameters = ()
    pages: PageBalance | None = None
    partitions: PartitionBalance | None = None


def inspect(snapshot: Snapshot, segment: IndexSegment, *, open_: bool) -> Inspection:
    """Reads what a query reads first: a lookup, or centroids. Never from the cache, which outlives the files."""
    if not open_ or segment.base_id is not None:
        return Inspection(opened=False)
    damage = _missing(snapshot.store, segment)
    if damage:
        return Inspection(opened=True, damage=damage)
    try:
        return _open(snapshot, segment)
    except DamagedFile as error:
        return Inspection(opened=True, damage=error.problem)
    except UnsupportedTable as error:
        return Inspection(opened=True, strange=error.problem)


def _open(snapshot: Snapshot, segment: IndexSegment) -> Inspection:
    kind = kind_of(segment)
    column = snapshot.columns.by_id(segment.field_id)
    if kind is None or column is None or why_unusable(snapshot, segment):
        return Inspection(opened=True)
    match kind.open(snapshot, segment, column, None, ByteCache(0)):
        case BTreeSegment() as found:
            pages = PageBalance.of(found.lookup)
            return Inspection(True, parameters=_of_tree(pages), pages=pages)
        case VectorSegment() as found:
            balance = PartitionBalance.of(found.lengths)
            return Inspection(True, parameters=_of_vectors(found, segment), partitions=balance)
        case _:
            return Inspection(True)


def _missing(store: Store, segment: IndexSegment) -> str | None:
    """The first file that is not there, or not as long as recorded where that costs nothing to find out."""
    there = {path.rpartition("/")[2] for path in store.list(segment.directory)}
    for file in segment.files:
        path = f"{segment.directory}/{file.path}"
        if file.path not in there:
            return f"{store.describe(path)} is missing"
        size = store.size(path)
        if size is not None and file.size_bytes and size != file.size_bytes:
            return f"{store.describe(path)} has {size:,} bytes instead of {file.size_bytes:,}"
    return None


def _of_tree(pages: PageBalance) -> Parameters:
    return (("rows a page", f"{pages.page_rows:,}"), ("ranges", f"{len(pages.range_pages):,}"))


def _of_vectors(found: VectorSegment, segment: IndexSegment) -> Parameters:
    files = found.files
    said = VectorDetails.of(files.kind, files.quantizer)
    shown = [("metric", files.metric.value), ("partitions", f"{files.ivf.num_partitions:,}")]
    shown.append(("dimensions", f"{files.ivf.dim:,}"))
    if said.num_sub_vectors:
        shown.append(("sub-vectors", f"{said.num_sub_vectors:,}"))
    if said.num_bits:
        shown.append(("bits", str(said.num_bits)))
    recorded = VectorDetails.from_bytes(segment.details)
    if recorded and recorded.hnsw:
        shown += [("m", str(recorded.hnsw.m)), ("ef_construction", str(recorded.hnsw.ef_construction))]
    return tuple(shown)

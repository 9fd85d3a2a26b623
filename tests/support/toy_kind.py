"""A kind of index of a few lines, to show that nothing but the two registries knows the kinds: one file with the values
of an integer column and the addresses of their rows, in no order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.row_set import RowSet
from pennon.format.rows import ScanSlice
from pennon.format.schema import Column
from pennon.format.segment_contents import write_contents
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.cache import ByteCache
from pennon.index.conditions import ColumnRanges, Condition
from pennon.index.description import Description
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.kind import Estimate, Precision, Query
from pennon.index.option_text import documented
from pennon.index.options import IndexOptions, by_type, option
from pennon.jobs.audit.checksums import Facts, Sums, facts_of
from pennon.jobs.audit.targets import CodeTally, Piece, Subject, View, answered_by
from pennon.jobs.kinds import BuildRequest, JobsDefaults, MergeRequest, PlanContext
from pennon.jobs.shared.remap import RemapPlan

FILE = "toy.lance"


@dataclass(frozen=True)
class ToySegment:
    values: npt.NDArray[np.int64]
    present: npt.NDArray[np.bool_]
    ids: Addresses
    reuse: FragmentReuse | None

    @property
    def capacity(self) -> int:
        return len(self.ids)

    def stored_ids(self) -> Iterator[Addresses]:
        yield self.ids

    def describe(self) -> Description:
        return Description((("rows", str(len(self.ids))),))

    def warm(self) -> Iterator[None]:
        yield

    def search(self, condition: Condition) -> RowSet:
        assert isinstance(condition, ColumnRanges)
        found = ~self.present if condition.nulls else np.zeros(len(self.ids), dtype=np.bool_)
        for interval in condition.intervals:
            inside = self.present.copy()
            if interval.low is not None:
                low = interval.low.as_py()
                inside &= self.values >= low if interval.low_inclusive else self.values > low
            if interval.high is not None:
                high = interval.high.as_py()
                inside &= self.values <= high if interval.high_inclusive else self.values < high
            found |= inside
        if self.reuse is None:
            return RowSet.of_addresses(np.sort(self.ids[found]))
        addresses, alive = self.reuse.remap(self.ids[found])
        return RowSet.of_addresses(np.sort(addresses[alive]))

    def estimate(self, condition: Condition) -> Estimate:
        return Estimate(1, len(self.search(condition)))


@documented
@dataclass(frozen=True, kw_only=True)
class Toy(IndexOptions):
    """Options of a toy index."""

    index_type: ClassVar[str] = "TOY"

    note: str | None = option(None, "A remark to keep in the manifest.", unset="no remark")


@dataclass(frozen=True)
class ToyKind:
    queries: frozenset[Query] = frozenset({Query.FILTER})
    options: ClassVar[Mapping[str, type[IndexOptions]]] = by_type(Toy)
    names: tuple[str, ...] = tuple(options)
    type_url: str = "/pennon.test.ToyIndexDetails"
    type_names: frozenset[str] = frozenset({"pennon.test.toyindexdetails"})
    versions: frozenset[int] = frozenset({0})

    def claims(self, segment: IndexSegment) -> bool:
        return segment.type_name in self.type_names

    def supports(self, type_: pa.DataType) -> bool:
        return pa.types.is_int64(type_)

    def label(self, snapshot: Snapshot, segment: IndexSegment) -> str:
        return "TOY"

    def accepts(self, segment: IndexSegment, stable_row_ids: bool) -> bool:
        return True

    def trusted_coverage(self, segment: IndexSegment) -> FrozenBitMap:
        return segment.fragments

    def objection(self, segment: IndexSegment) -> str | None:
        return None

    def outlives_lost_rows(self, snapshot: Snapshot, segment: IndexSegment) -> bool:
        return True

    def stores_addresses(self, index_version: int, stable_row_ids: bool) -> bool:
        return True

    def answers(self, segment: IndexSegment, condition: Condition) -> Precision | None:
        return Precision.EXACT if isinstance(condition, ColumnRanges) else None

    def open(
        self,
        snapshot: Snapshot,
        segment: IndexSegment,
        column: Column,
        reuse: FragmentReuse | None,
        cache: ByteCache,
    ) -> ToySegment:
        return ToySegment(*read_rows(snapshot, segment), reuse)


def read_rows(
    snapshot: Snapshot, segment: IndexSegment
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], Addresses]:
    table = LanceFile(snapshot.store, f"{segment.directory}/{FILE}", segment.file_sizes.get(FILE)).read()
    values = table.column(0).combine_chunks()
    present = values.is_valid().to_numpy(zero_copy_only=False)
    return values.fill_null(0).to_numpy(), present, table.column(1).to_numpy()


TOY = ToyKind()


@dataclass(frozen=True)
class ToyWork:
    """Everything is done by one task."""

    name: str
    field_id: int
    rows: int
    note: str
    tasks = 1

    @property
    def task_memory_bytes(self) -> int:
        return 16 * self.rows

    @property
    def index_bytes(self) -> int:
        return 16 * self.rows

    def to_dict(self) -> dict[str, object]:
        return {"name": self.name, "rows": self.rows, "note": self.note}


@dataclass(frozen=True)
class ToyPlan(ToyWork):
    pin: Pin
    column: str
    fragments: tuple[int, ...]


@dataclass(frozen=True)
class ToyMerge(ToyWork):
    remap_plan: RemapPlan
    is_estimate: bool


class ToyAudit:
    scalar = True
    repeating = False

    def inspect(self, pin: Pin, subject: Subject) -> tuple[npt.NDArray[np.integer[Any]], View]:
        return np.array([len(read_rows(pin.open(), subject.segment)[2])]), View(subject.column, read_values)

    def stored_rows(self, pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
        values, present, ids = read_rows(pin.open(), piece.subject.segment)
        addresses, kept = answered_by(pin, piece.subject).locate(ids)
        yield addresses[kept], facts_of(addresses[kept], pa.array(values[kept], mask=~present[kept]))

    def check(self, pin: Pin, piece: Piece) -> tuple[Sums, CodeTally]:
        sums = Sums.over(piece.subject.fragments)
        for addresses, facts in self.stored_rows(pin, piece):
            sums.add(addresses, facts)
        return sums.filled(), CodeTally()

    def recall(self, engine: Engine, snapshot: Snapshot, index: str, view: View, queries: int) -> None:
        return None


def read_values(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Addresses, Facts]]:
    snapshot = pin.open()
    for values, addresses in snapshot.scan_column(snapshot.column(view.column), part):
        yield addresses, facts_of(addresses, values)


def recorded_options(segment: IndexSegment) -> Toy:
    return Toy(note=segment.details.decode() or None)


class ToyJobs(JobsDefaults):
    audit = ToyAudit()

    def plan(self, snapshot: Snapshot, column: str, options: Toy, request: BuildRequest) -> ToyPlan:
        fragments = tuple(request.fragment_ids or snapshot.manifest.fragments)
        name = request.name or f"{column}_idx"
        rows = snapshot.manifest.rows_in(BitMap(fragments))
        return ToyPlan(
            name, snapshot.column(column).field_id, rows, options.note or "", snapshot.pin(), column, fragments
        )

    def plan_like(
        self, context: PlanContext, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool = False
    ) -> ToyPlan:
        request = BuildRequest(like.name, fragments, context.parallelism, context.memory_bytes)
        return self.plan(context.snapshot, context.column_of(like).path, recorded_options(like), request)

    def plan_merge(self, context: PlanContext, request: MergeRequest) -> ToyMerge:
        like = request.sources[0].segment
        remap_plan = RemapPlan(context.snapshot.pin(), True, request.sources, request.address_map)
        stored = sum(len(read_rows(context.snapshot, source.segment)[2]) for source in request.sources)
        delta = request.delta.rows if request.delta else 0
        note = recorded_options(like).note or ""
        return ToyMerge(like.name, like.fields[0], stored + delta, note, remap_plan, request.delta is not None)

    def build(self, engine: Engine, snapshot: Snapshot, plan: ToyPlan) -> IndexSegment:
        [rows] = engine.map("build", _Scan(plan.pin, plan.column), [plan.fragments])
        return self._write(snapshot, plan, plan.fragments, *rows)

    def merge(self, engine: Engine, snapshot: Snapshot, plan: ToyMerge) -> IndexSegment:
        values: list[pa.Array] = []
        ids: list[Addresses] = []
        for source in plan.remap_plan.sources:
            own, present, stored = read_rows(snapshot, source.segment)
            new, kept = plan.remap_plan.remapper(source).remap(stored)
            values.append(pa.array(own[kept], mask=~present[kept]))
            ids.append(new[kept])
        joined = pa.concat_arrays(values), np.concatenate(ids)
        return self._write(snapshot, plan, list(plan.remap_plan.coverage), *joined)

    def _write(
        self,
        snapshot: Snapshot,
        plan: ToyWork,
        fragments: Sequence[int],
        values: pa.Array,
        ids: Addresses,
    ) -> IndexSegment:
        uuid = str(uuid4())
        batch = pa.record_batch({"values": values, "ids": pa.array(ids)})
        store, version = snapshot.store, snapshot.storage_version
        file = write_lance_file(store, f"_indices/{uuid}", FILE, batch.schema, [batch], version)
        contents = write_contents(store, uuid, fragments, snapshot.manifest.next_row_id)
        return IndexSegment(
            uuid=uuid,
            name=plan.name,
            fields=(plan.field_id,),
            dataset_version=snapshot.version,
            fragments=FrozenBitMap(BitMap(fragments)),
            type_url=TOY.type_url,
            details=plan.note.encode(),
            index_version=0,
            files=(file, contents),
            created_at=datetime.now(UTC),
        )


@dataclass(frozen=True)
class _Scan:
    pin: Pin
    column: str

    def __call__(self, fragments: tuple[int, ...]) -> tuple[pa.Array, Addresses]:
        snapshot = self.pin.open()
        column = snapshot.column(self.column)
        scanned = list(snapshot.scan_column(column, ScanSlice(fragments)))
        ids = [addresses for _, addresses in scanned] or [np.empty(0, dtype=np.uint64)]
        return pa.concat_arrays([pa.array([], column.type), *(v for v, _ in scanned)]), np.concatenate(ids)

"""A kind of index of a few lines, to show that nothing but the two registries knows the kinds: one file with the values
of an integer column and the addresses of their rows, in no order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.format.addresses import Addresses
from pennon.format.index_metadata import IndexSegment
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.schema import Column
from pennon.format.segment_contents import write_contents
from pennon.format.snapshot import Pin, ScanSlice, Snapshot
from pennon.index.cache import ByteCache
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.index.intervals import Interval
from pennon.index.kind import Estimate, Family
from pennon.jobs.audit.checksums import Facts, Sums, facts_of
from pennon.jobs.audit.targets import CodeTally, Piece, Subject, View, answered_by
from pennon.jobs.kinds import BuildRequest, Work
from pennon.jobs.shared.remap import Carrying, Source

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

    def search(self, intervals: Sequence[Interval], nulls: bool) -> Addresses:
        found = ~self.present if nulls else np.zeros(len(self.ids), dtype=np.bool_)
        for interval in intervals:
            inside = self.present.copy()
            if interval.low is not None:
                low = interval.low.as_py()
                inside &= self.values >= low if interval.low_inclusive else self.values > low
            if interval.high is not None:
                high = interval.high.as_py()
                inside &= self.values <= high if interval.high_inclusive else self.values < high
            found |= inside
        if self.reuse is None:
            return np.sort(self.ids[found])
        addresses, alive = self.reuse.remap(self.ids[found])
        return np.sort(addresses[alive])

    def estimate(self, intervals: Sequence[Interval], nulls: bool) -> Estimate:
        return Estimate(1, len(self.search(intervals, nulls)))


@dataclass(frozen=True)
class ToyKind:
    family: Family = Family.SCALAR
    names: tuple[str, ...] = ("TOY",)
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

    def objection(self, segment: IndexSegment) -> str | None:
        return None

    def outlives_lost_rows(self, snapshot: Snapshot, segment: IndexSegment) -> bool:
        return True

    def stores_addresses(self, index_version: int, stable_row_ids: bool) -> bool:
        return True

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
class ToyPlan:
    pin: Pin
    name: str
    column: str
    field_id: int
    fragments: tuple[int, ...]

    def to_dict(self) -> dict[str, object]:
        return {"name": self.name, "column": self.column}

    def __str__(self) -> str:
        return f"toy index {self.name} on {self.column}"


class ToyAudit:
    scalar = True

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


class ToyJobs:
    audit = ToyAudit()
    models_in_files = False

    def option_names(self, index_type: str) -> frozenset[str]:
        return frozenset()

    def plan(
        self, snapshot: Snapshot, column: str, index_type: str, options: Mapping[str, Any], request: BuildRequest
    ) -> ToyPlan:
        fragments = tuple(request.fragment_ids or snapshot.manifest.fragments)
        name = request.name or f"{column}_idx"
        return ToyPlan(snapshot.pin(), name, column, snapshot.column(column).field_id, fragments)

    def misfit(self, snapshot: Snapshot, plan: ToyPlan, other: IndexSegment) -> str | None:
        return None

    def build(self, engine: Engine, snapshot: Snapshot, plan: ToyPlan) -> IndexSegment:
        [rows] = engine.map("build", _Scan(plan.pin, plan.column), [plan.fragments])
        return self._write(snapshot, plan.name, plan.field_id, plan.fragments, *rows)

    def build_like(
        self, work: Work, like: IndexSegment, fragments: Sequence[int] | None, *, retrain: bool
    ) -> IndexSegment:
        request = BuildRequest(like.name, fragments, work.engine.parallelism, work.memory_bytes)
        plan = self.plan(work.snapshot, work.column_of(like).path, "TOY", {}, request)
        return self.build(work.engine, work.snapshot, plan)

    def merge(
        self, work: Work, sources: Sequence[Source], moves: str | None, *, unmoved: bool, rebalance: bool
    ) -> IndexSegment:
        carrying = Carrying(work.snapshot.pin(), True, tuple(sources), moves)
        values: list[pa.Array] = []
        ids: list[Addresses] = []
        for source in sources:
            own, present, stored = read_rows(work.snapshot, source.segment)
            new, kept = carrying.carrier(source).carry(stored)
            values.append(pa.array(own[kept], mask=~present[kept]))
            ids.append(new[kept])
        like = sources[0].segment
        joined = pa.concat_arrays(values), np.concatenate(ids)
        return self._write(work.snapshot, like.name, like.fields[0], carrying.coverage, *joined)

    def rebuild(
        self,
        work: Work,
        leaving: Sequence[IndexSegment],
        staying: Sequence[IndexSegment],
        fragments: Sequence[int],
        *,
        retrain: bool,
    ) -> IndexSegment:
        return self.build_like(work, leaving[0], fragments, retrain=retrain)

    def upkeep(self, snapshot: Snapshot, segments: Sequence[IndexSegment]) -> None:
        return None

    def _write(
        self, snapshot: Snapshot, name: str, field: int, fragments: Sequence[int], values: pa.Array, ids: Addresses
    ) -> IndexSegment:
        uuid = str(uuid4())
        batch = pa.record_batch({"values": values, "ids": pa.array(ids)})
        store, version = snapshot.store, snapshot.storage_version
        file = write_lance_file(store, f"_indices/{uuid}", FILE, batch.schema, [batch], version)
        contents = write_contents(store, uuid, fragments, snapshot.manifest.next_row_id)
        return IndexSegment(
            uuid=uuid,
            name=name,
            fields=(field,),
            dataset_version=snapshot.version,
            fragments=FrozenBitMap(BitMap(fragments)),
            type_url=TOY.type_url,
            details=b"",
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

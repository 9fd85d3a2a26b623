"""Compare the rows of both sides where their sums differ."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from pennon.engine import Engine
from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses, contains, fragment_of, offset_of, sorted_unique
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin, Snapshot
from pennon.jobs.audit.checksums import Facts
from pennon.jobs.audit.rows import stored_rows, table_rows
from pennon.jobs.audit.targets import Piece, Subject, View
from pennon.wording import plural

# The number of fragments of a segment in which differing rows are searched; others are only reported as different.
EXAMINED_FRAGMENTS = 64
EXAMPLES = 3
# Bytes of a row in the comparison: two words on each side, once as received and once sorted.
ROW_BYTES = 96

SCHEMA = pa.schema([("stored", pa.bool_()), ("address", pa.uint64()), ("fact", pa.uint64())])


@dataclass(frozen=True)
class Suspect:
    """A segment and the fragments in which its rows differ from those of the table."""

    subject: Subject
    pieces: tuple[Piece, ...]
    view: View
    fragments: tuple[int, ...]


@dataclass(frozen=True)
class Differences:
    """The number of addresses by kind of difference, and the first of them; and of those that both sides have."""

    missing: int = 0
    surplus: int = 0
    twice: int = 0
    changed: int = 0
    examples: tuple[int, ...] = ()
    held: int = 0

    def joined(self, other: Differences) -> Differences:
        return Differences(
            self.missing + other.missing,
            self.surplus + other.surplus,
            self.twice + other.twice,
            self.changed + other.changed,
            (*self.examples, *other.examples)[:EXAMPLES],
            self.held + other.held,
        )

    def __str__(self) -> str:
        described = [
            f"{plural(count, 'row')} {what}"
            for count, what in (
                (self.missing, "missing"),
                (self.surplus, "that the table does not have"),
                (self.twice, "more than once"),
                (self.changed, "with another value"),
            )
            if count
        ]
        places = ", ".join(f"{address >> 32}:{address & 0xFFFF_FFFF}" for address in self.examples)
        return f"{', '.join(described)}; for instance fragment:row {places}"


@dataclass(frozen=True)
class _Blocks:
    """The destinations of the rows of each (suspect, fragment): as many as are needed to hold them."""

    rows: int
    firsts: tuple[tuple[tuple[int, int], ...], ...]  # by suspect: fragment, its first destination
    owners: tuple[int, ...]  # by destination: the suspect

    @classmethod
    def cut(cls, snapshot: Snapshot, suspects: Sequence[Suspect], memory_bytes: int) -> _Blocks:
        rows = memory_bytes // ROW_BYTES
        firsts: list[tuple[tuple[int, int], ...]] = []
        owners: list[int] = []
        for number, suspect in enumerate(suspects):
            places: list[tuple[int, int]] = []
            for fragment in suspect.fragments:
                places.append((fragment, len(owners)))
                owners += [number] * (snapshot.manifest.fragments[fragment].physical_rows // rows + 1)
            firsts.append(tuple(places))
        return cls(rows, tuple(firsts), tuple(owners))

    def send(
        self, suspect: int, addresses: Addresses, facts: Facts, stored: bool
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        fragments, firsts = (np.array(column) for column in zip(*self.firsts[suspect], strict=True))
        at = np.searchsorted(fragments, fragment_of(addresses))
        kept = fragments[np.minimum(at, len(fragments) - 1)] == fragment_of(addresses)
        addresses, facts, at = addresses[kept], facts[kept], at[kept]
        ends = np.append(firsts[1:], firsts[0] + self.owners.count(suspect))[at] - 1
        blocks = np.minimum(firsts[at] + offset_of(addresses) // self.rows, ends)
        for block in np.unique(blocks):
            mine = blocks == block
            yield int(block), _batch(addresses[mine], facts[mine], stored)


def compare(engine: Engine, snapshot: Snapshot, suspects: Sequence[Suspect], memory_bytes: int) -> list[Differences]:
    """The differences in the fragments of each suspect."""
    if not suspects:
        return []
    blocks = _Blocks.cut(snapshot, suspects, memory_bytes)
    tasks: list[tuple[int, Piece | tuple[View, ScanSlice]]] = []
    for number, suspect in enumerate(suspects):
        tasks += [(number, piece) for piece in suspect.pieces]
        tasks += [(number, (suspect.view, ScanSlice((fragment,)))) for fragment in suspect.fragments]
    several = tuple(suspects[owner].view.several for owner in blocks.owners)
    exchanged = engine.exchange(
        "differences",
        partial(_rows, snapshot.pin(), blocks),
        tasks,
        partial(_differences, several),
        len(blocks.owners),
    ).reduced
    found = [Differences() for _ in suspects]
    for destination, differences in sorted(exchanged.items()):
        owner = blocks.owners[destination]
        found[owner] = found[owner].joined(differences)
    return found


def _rows(
    pin: Pin, blocks: _Blocks, task: tuple[int, Piece | tuple[View, ScanSlice]]
) -> Generator[tuple[int, pa.RecordBatch]]:
    """Map task: the rows of one side."""
    number, side = task
    if isinstance(side, Piece):
        try:
            for addresses, facts in stored_rows(pin, side):
                yield from blocks.send(number, addresses, facts, stored=True)
        except DamagedFile:
            return  # reported when the sums were computed; the rest of its rows are missing
    else:
        for addresses, facts in table_rows(pin, *side):
            yield from blocks.send(number, addresses, facts, stored=False)


def _differences(several: tuple[bool, ...], block: int, batches: Iterator[pa.RecordBatch]) -> Differences:
    """Reduce task: one block of one fragment."""
    sides: dict[bool, tuple[list[Addresses], list[Facts]]] = {True: ([], []), False: ([], [])}
    for batch in batches:
        addresses, facts = sides[batch.column(0)[0].as_py()]
        addresses.append(batch.column(1).to_numpy())
        facts.append(batch.column(2).to_numpy())
    joined = [_sorted(*sides[side]) for side in (True, False)]
    (stored, stored_facts), (table, table_facts) = map(_summed, joined) if several[block] else joined
    once = sorted_unique(stored)
    twice = sorted_unique(stored[1:][stored[1:] == stored[:-1]])
    missing, surplus = table[~contains(once, table)], once[~contains(table, once)]
    both = contains(table, stored)
    at = np.searchsorted(table, stored[both])
    changed = sorted_unique(stored[both][table_facts[at] != stored_facts[both]])
    examples = np.concatenate([addresses[:EXAMPLES] for addresses in (missing, surplus, twice, changed)])
    counts = len(missing), len(surplus), len(twice), len(changed)
    return Differences(*counts, tuple(examples[:EXAMPLES].tolist()), held=len(once) - len(surplus))


def _sorted(addresses: list[Addresses], facts: list[Facts]) -> tuple[Addresses, Facts]:
    if not addresses:
        empty = np.empty(0, dtype=np.uint64)
        return empty, empty
    joined, values = np.concatenate(addresses), np.concatenate(facts)
    order: npt.NDArray[np.intp] = np.lexsort((values, joined))
    return joined[order], values[order]


def _summed(rows: tuple[Addresses, Facts]) -> tuple[Addresses, Facts]:
    """The sum of the facts of each row."""
    addresses, facts = rows
    if not len(addresses):
        return rows
    first = np.flatnonzero(np.concatenate([[True], addresses[1:] != addresses[:-1]]))
    return addresses[first], np.add.reduceat(facts, first)


def _batch(addresses: Addresses, facts: Facts, stored: bool) -> pa.RecordBatch:
    sides = pa.array(np.full(len(addresses), stored))
    return pa.record_batch([sides, pa.array(addresses), pa.array(facts)], schema=SCHEMA)


def examined(fragments: BitMap) -> tuple[int, ...]:
    return tuple(list(fragments)[:EXAMINED_FRAGMENTS])

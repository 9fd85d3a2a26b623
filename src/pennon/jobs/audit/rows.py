"""The two sides of an audit: rows as a segment answers them, and rows as the table has them, as facts.

Both are read twice at most: once to be added up, and again, where sums differ, to be told one from another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.addresses import Addresses
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Pin
from pennon.jobs.audit.checksums import Facts, Sums
from pennon.jobs.audit.targets import CodeTally, Inspected, Piece, Subject, View, check_files, cut_pieces
from pennon.jobs.registry import jobs_of


@dataclass(frozen=True)
class Checked:
    sums: Sums
    codes: CodeTally
    damage: str | None = None


def inspect(pin: Pin, subject: Subject) -> Inspected:
    """Task: whether files are there and open, and how to cut the segment into pieces of about equal work."""
    try:
        check_files(pin, subject.segment)
        weights, view = jobs_of(subject.segment).audit.inspect(pin, subject)
    except DamagedFile as error:
        return Inspected(damage=error.problem)
    except UnsupportedTable as error:
        return Inspected(skipped=error.problem)
    return Inspected(cut_pieces(subject, weights), view)


def check_piece(pin: Pin, piece: Piece) -> Checked:
    """Task: damage is a finding and no failure."""
    try:
        return Checked(*jobs_of(piece.subject.segment).audit.check(pin, piece))
    except DamagedFile as error:
        return Checked(Sums.over(()), CodeTally(), error.problem)


def stored_rows(pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
    """What queries would find of a piece, under today's addresses. May raise DamagedFile."""
    return jobs_of(piece.subject.segment).audit.stored_rows(pin, piece)


def table_rows(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Addresses, Facts]]:
    """What indices over the column should hold of a slice."""
    return view.read(pin, view, part)


def sum_table(pin: Pin, task: tuple[View, ScanSlice]) -> Sums:
    """Task: one slice of the table."""
    view, part = task
    sums = Sums.over(part.fragments)
    for addresses, facts in table_rows(pin, view, part):
        sums.add(addresses, facts)
    return sums.filled()

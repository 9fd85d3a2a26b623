"""The two sides of an audit: the rows that a segment returns, and the rows of the table, as facts.

Both are read at most twice: once to compute sums and, if those differ, again to compare rows.
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
    """Task: check that files exist and open, and cut the segment into pieces of about equal work."""
    try:
        check_files(pin, subject.segment)
        weights, view = jobs_of(subject.segment).audit.inspect(pin, subject)
    except DamagedFile as error:
        return Inspected(damage=error.problem)
    except UnsupportedTable as error:
        return Inspected(skipped=error.problem)
    return Inspected(cut_pieces(subject, weights), view)


def check_piece(pin: Pin, piece: Piece) -> Checked:
    """Task: check a piece; damage is a finding, not a failure."""
    try:
        return Checked(*jobs_of(piece.subject.segment).audit.check(pin, piece))
    except DamagedFile as error:
        return Checked(Sums.over(()), CodeTally(), error.problem)


def stored_rows(pin: Pin, piece: Piece) -> Iterator[tuple[Addresses, Facts]]:
    """The rows of a piece that queries would find, by current addresses. May raise DamagedFile."""
    return jobs_of(piece.subject.segment).audit.stored_rows(pin, piece)


def table_rows(pin: Pin, view: View, part: ScanSlice) -> Iterator[tuple[Addresses, Facts]]:
    """The rows of a slice that indices on the column should contain."""
    return view.read(pin, view, part)


def sum_table(pin: Pin, task: tuple[View, ScanSlice]) -> Sums:
    """Task: the sums of one slice of the table."""
    view, part = task
    sums = Sums.over(part.fragments)
    for addresses, facts in table_rows(pin, view, part):
        sums.add(addresses, facts)
    return sums.filled()

"""Finds segments that still hold old values of fragments that another segment of the index covers.

Pennon's queries and pylance's vector searches skip such rows; pylance's scalar queries return them. Rows that two
segments hold with the current value do no harm until the column is updated in place, except in text searches of
pylance, which return a row from every segment that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyroaring import BitMap, FrozenBitMap

from pennon.engine import Engine
from pennon.format.index_metadata import LogicalIndex
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.reading import FragmentReuse
from pennon.jobs.audit.compare import EXAMINED_FRAGMENTS, Suspect, compare
from pennon.jobs.audit.metadata import note, some
from pennon.jobs.audit.report import Action, Finding, Severity
from pennon.jobs.audit.rows import inspect
from pennon.jobs.audit.targets import Subject
from pennon.jobs.kinds import KindAudit
from pennon.jobs.registry import jobs_of
from pennon.jobs.shared.stale_values import shared_fragments
from pennon.wording import plural

REWRITTEN = "`pennon optimize` or `pennon audit --repair` writes the segment without them"


@dataclass
class _Shared:
    """A segment and the fragments of others whose rows it holds: `old` of these rows have another value, `current` the
    one they have."""

    suspect: Suspect
    old: int = 0
    current: int = 0

    @property
    def audit(self) -> KindAudit:
        return jobs_of(self.suspect.subject.segment).audit

    @property
    def harmful(self) -> bool:
        return self.old > 0 or (self.audit.repeating and self.current > 0)

    @property
    def finding(self) -> Finding:
        segment, fragments = self.suspect.subject.segment, self.suspect.fragments
        where = f"{plural(len(fragments), 'fragment')} ({some(fragments)}) that another segment covers"
        if not self.harmful:
            return note(segment.name, (segment.uuid,), f"it also holds rows of {where}", "No query returns them twice")
        if self.old:
            problem = f"it holds old values of at least {plural(self.old, 'row')} of {where}: pylance returns them"
        else:
            problem = f"it also holds at least {plural(self.current, 'row')} of {where}: pylance returns them twice"
        return Finding(Severity.ERROR, segment.name, (segment.uuid,), problem, REWRITTEN, Action.REBUILD)


def check_owners(
    engine: Engine,
    snapshot: Snapshot,
    indices: Sequence[LogicalIndex],
    subjects: Sequence[Subject],
    reuse: FragmentReuse | None,
    memory_bytes: int,
) -> list[Finding]:
    """Check the audited segments."""
    held: dict[str, BitMap] = {}
    for index in indices:
        held |= shared_fragments(snapshot, index.segments, reuse) if len(index.segments) > 1 else {}
    wanted = [replace(s, fragments=FrozenBitMap(held[s.segment.uuid])) for s in subjects if s.segment.uuid in held]
    if not wanted:
        return []
    inspected = engine.map("inspect", partial(inspect, snapshot.pin()), wanted)
    found = [
        _Shared(Suspect(subject, each.pieces, each.view, tuple(subject.fragments)))
        for subject, each in zip(wanted, inspected, strict=True)
        if each.view is not None
    ]
    _count_rows(engine, snapshot, [shared for shared in found if shared.audit.scalar], memory_bytes)
    return [shared.finding for shared in found]


def _count_rows(engine: Engine, snapshot: Snapshot, found: Sequence[_Shared], memory_bytes: int) -> None:
    """Compare some fragments at a time, until a row that does harm is found in each segment or all are compared."""
    most = max((len(shared.suspect.fragments) for shared in found), default=0)
    for start in range(0, most, EXAMINED_FRAGMENTS):
        parts = [
            (shared, replace(shared.suspect, fragments=part))
            for shared in found
            if not shared.harmful and (part := shared.suspect.fragments[start : start + EXAMINED_FRAGMENTS])
        ]
        compared = compare(engine, snapshot, [part for _, part in parts], memory_bytes)
        for (shared, _), differences in zip(parts, compared, strict=True):
            shared.old += differences.changed + differences.surplus
            shared.current += differences.held - differences.changed

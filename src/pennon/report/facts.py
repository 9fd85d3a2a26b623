"""What the report shows, as plain values: read from manifests and the small parts of index files, without Spark.

Bounded for every table: fragments are drawn together; the numbers of segments opened and versions read are limited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyroaring import BitMap

from pennon.engine import SparkEngine
from pennon.errors import DamagedFile, PennonError
from pennon.format.index_metadata import IndexSegment, group_segments
from pennon.format.snapshot import Snapshot
from pennon.index.description import Description
from pennon.index.fragment_reuse.reading import FragmentReuse, read_fragment_reuse
from pennon.index.registry import label_of
from pennon.jobs.audit.tunings import check_tunings
from pennon.jobs.maintain import Decision, MaintenancePolicy, maintain
from pennon.jobs.shared.budget import task_memory
from pennon.query.inventory import Index, ReuseInfo, Segment, describe_reuse, list_indices
from pennon.report.grid import Column, Grid, Shares
from pennon.report.history import History, read_history
from pennon.report.inspection import Inspection, inspect
from pennon.secrets import redact

MAX_OPENED = 100
# Looking for orphans reads the manifests of all versions; with more fragments in them it takes minutes.
MAX_MANIFEST_FRAGMENTS = 2_000_000


@dataclass(frozen=True)
class SegmentFacts:
    """A segment, and how much of each column it covers, reaches through the Fragment Reuse Index only (`moved`), or
    still has old values of (`stale`). `problem` is why queries do not use it; `foreign` is what Pennon cannot read at
    all, and others perhaps can."""

    segment: Segment
    problem: str | None
    damaged: bool
    foreign: bool
    opened: bool
    covered: Shares
    moved: Shares
    stale: Shares
    stale_fragments: int
    description: Description

    @property
    def used(self) -> bool:
        return self.problem is None


@dataclass(frozen=True)
class IndexFacts:
    """An index as queries find it: damaged segments cover nothing."""

    name: str
    type: str
    columns: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    segments: tuple[SegmentFacts, ...]
    rows_covered: int
    rows_total: int
    uncovered: Shares
    uncovered_fragments: int
    overlap: Shares
    overlapping_fragments: int

    @property
    def coverage(self) -> float:
        return self.rows_covered / self.rows_total if self.rows_total else 1.0

    @property
    def size_bytes(self) -> int:
        return sum(facts.segment.size_bytes for facts in self.segments)

    @property
    def foreign(self) -> bool:
        """Of a kind or version that Pennon does not read: nothing is known about what such an index covers."""
        return all(facts.foreign for facts in self.segments)

    @property
    def compactions_behind(self) -> int:
        return max((facts.segment.compactions_behind for facts in self.segments if facts.used), default=0)


@dataclass(frozen=True)
class TableFacts:
    uri: str
    version: int
    read_at: datetime
    stable_row_ids: bool
    fragments: int
    columns: tuple[Column, ...]
    indices: tuple[IndexFacts, ...]
    reuse: ReuseInfo | None
    reuse_problem: str | None
    history: History
    decisions: tuple[Decision, ...]
    decisions_version: int
    decisions_problem: str | None
    doubtful: tuple[str, ...] = ()  # stored settings of searches

    @property
    def rows(self) -> int:
        return sum(column.live for column in self.columns)

    @property
    def deleted(self) -> int:
        return sum(column.deleted for column in self.columns)

    @property
    def deleted_share(self) -> float:
        return self.deleted / max(1, self.rows + self.deleted)


def collect(snapshot: Snapshot) -> TableFacts:
    """Everything the page shows of one version; what is due is decided on the newest."""
    reuse, problem = _reuse(snapshot)
    grid, history = Grid.of(snapshot.manifest), read_history(snapshot)
    version, decisions, undecided = _due(snapshot, history.versions_there)
    return TableFacts(
        uri=snapshot.uri,
        version=snapshot.version,
        read_at=datetime.now(UTC),
        stable_row_ids=snapshot.manifest.has_stable_row_ids,
        fragments=len(snapshot.manifest.fragments),
        columns=grid.columns,
        indices=tuple(_indices(snapshot, grid, history, reuse, problem)),
        reuse=describe_reuse(snapshot) if reuse else None,
        reuse_problem=problem,
        history=history,
        decisions=tuple(replace(each, reason=redact(each.reason)) for each in decisions),
        decisions_version=version,
        decisions_problem=undecided,
        doubtful=tuple(redact(finding.problem) for finding in check_tunings(snapshot)),
    )


def _reuse(snapshot: Snapshot) -> tuple[FragmentReuse | None, str | None]:
    try:
        return read_fragment_reuse(snapshot), None
    except DamagedFile as error:
        return None, error.problem


def _due(snapshot: Snapshot, versions: int) -> tuple[int, tuple[Decision, ...], str | None]:
    policy, large = MaintenancePolicy(), versions * len(snapshot.manifest.fragments) > MAX_MANIFEST_FRAGMENTS
    if large:
        policy = replace(policy, orphan_age_seconds=None)
    try:
        _, report = maintain(SparkEngine(), snapshot, policy, task_memory(None), dry_run=True)
    except PennonError as error:
        return snapshot.version, (), error.problem
    decisions = report.decisions
    if large:
        unread = f"not looked for: the large manifests of {versions:,} versions would have to be read"
        decisions = tuple(replace(d, reason=unread) if d.step == "orphans" else d for d in decisions)
    return report.version, decisions, None


def _indices(
    snapshot: Snapshot,
    grid: Grid,
    history: History,
    reuse: FragmentReuse | None,
    problem: str | None,
) -> Iterator[IndexFacts]:
    logical = group_segments(snapshot.manifest.segments)
    listed = _out_of_use(snapshot) if problem else list_indices(snapshot)
    left = MAX_OPENED
    for index, stored in zip(listed, logical, strict=True):
        looked = [inspect(snapshot, segment, open_=at < left) for at, segment in enumerate(stored.segments)]
        left = max(0, left - len(looked))
        work = _Work(snapshot, grid, history, reuse, problem)
        yield work.index(index, stored.segments, looked)


@dataclass(frozen=True)
class _Work:
    snapshot: Snapshot
    grid: Grid
    history: History
    reuse: FragmentReuse | None
    problem: str | None

    def index(self, index: Index, stored: Sequence[IndexSegment], looked: Sequence[Inspection]) -> IndexFacts:
        manifest = self.snapshot.manifest
        segments = tuple(map(self._segment, index.segments, stored, looked))
        covered, overlap = BitMap(), BitMap()
        for facts in segments:
            if facts.used:
                own = BitMap(facts.segment.fragments)
                overlap |= covered & own
                covered |= own
        uncovered = manifest.live - covered
        return IndexFacts(
            name=index.name,
            type=index.type,
            columns=index.columns,
            parameters=next((p for found in looked if (p := found.description.parameters)), ()),
            segments=segments,
            rows_covered=manifest.rows_in(covered),
            rows_total=index.rows_total,
            uncovered=self.grid.shares(uncovered),
            uncovered_fragments=len(uncovered),
            overlap=self.grid.shares(overlap),
            overlapping_fragments=len(overlap),
        )

    def _segment(self, segment: Segment, stored: IndexSegment, looked: Inspection) -> SegmentFacts:
        unsupported = segment.unusable or looked.unsupported
        problem = self.problem or unsupported or looked.damage
        live = self.snapshot.manifest.live
        coverage = BitMap(segment.fragments)
        behind = segment.compactions_behind and not problem
        moved = coverage & self.reuse.new_fragments if self.reuse and behind else BitMap()
        # Only a change in place takes a living fragment out of a segment's coverage; the old values stay in its files.
        first = BitMap(self.history.first_coverage[segment.uuid])
        stale = ((self.reuse.effective(first) if self.reuse else first) & live) - coverage
        return SegmentFacts(
            segment=segment,
            problem=redact(problem) if problem else None,
            damaged=looked.damage is not None,
            foreign=unsupported is not None,
            opened=looked.opened,
            covered=self.grid.shares(coverage),
            moved=self.grid.shares(moved),
            stale=self.grid.shares(stale),
            stale_fragments=len(stale),
            description=looked.description,
        )


def _out_of_use(snapshot: Snapshot) -> list[Index]:
    """The indices of a table whose Fragment Reuse Index cannot be read: no address in them is known."""
    manifest = snapshot.manifest
    rows = manifest.rows_in(manifest.live)
    found: list[Index] = []
    for index in group_segments(manifest.segments):
        segments = tuple(
            Segment(
                s.uuid, (), 0, s.size_bytes, len(s.files), s.index_version, s.dataset_version, s.created_at, 0, None
            )
            for s in index.segments
        )
        columns = [snapshot.columns.by_id(field) for field in index.fields]
        names = tuple(column.path if column else "(dropped)" for column in columns)
        label = label_of(snapshot, index.segments[0])
        found.append(Index(index.name, label, names, segments, 0, rows, tuple(manifest.live)))
    return found

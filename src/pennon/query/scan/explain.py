"""The explanation of a scan: its plan and, if it was run, its figures."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from pennon.display import Displayed, DisplayedFields
from pennon.index.cache import CacheUse, counting_cache
from pennon.index.kind import Precision
from pennon.query.catalog import Catalog, Skipped
from pennon.query.scan.execute import parse, scan
from pennon.query.scan.planner import Answer, Planner
from pennon.query.scan.request import ScanRequest
from pennon.wording import in_lines, plural


@dataclass(frozen=True)
class IndexUse(DisplayedFields):
    """The part of one index in answering a filter."""

    index: str
    condition: str
    segments: int
    pages: int
    estimated_rows: int
    exact: bool = True

    def __str__(self) -> str:
        read = f"{plural(self.segments, 'segment')}, {plural(self.pages, 'page')}"
        rows = f"about {self.estimated_rows:,} rows{'' if self.exact else ' to be checked'}"
        return f"{self.index}: {self.condition}; {read}, {rows}"


@dataclass(frozen=True)
class Explanation(Displayed):
    """The plan of a scan. The last five figures are set if it was run (`analyze=True`)."""

    table: str
    version: int
    filter: str | None
    understood_as: str
    indices: tuple[IndexUse, ...]
    exact: bool
    indexed_fragments: int
    scanned_fragments: tuple[int, ...]
    scanned_rows: int
    total_rows: int
    skipped: tuple[Skipped, ...]
    rows_from_index: int | None = None
    rows_returned: int | None = None
    reads: int | None = None
    seconds: float | None = None
    cache: CacheUse | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"scan of {self.table}, version {self.version}", f"  filter   {self.understood_as}"]
        lines += [f"  index    {use}" for use in self.indices]
        if self.indices:
            check = "no row needs checking" if self.exact else "the filter is checked on the rows found"
            lines.append(f"           answers for {plural(self.indexed_fragments, 'fragment')}; {check}")
        if self.scanned_fragments:
            share = f"{self.scanned_rows:,} of {self.total_rows:,} rows"
            scanned = plural(len(self.scanned_fragments), "fragment")
            lines.append(f"  scan     {scanned} ({share}): {some_ids(self.scanned_fragments)}")
        lines += [f"  skipped  {s.index}, segment {s.uuid}: {s.reason}" for s in self.skipped]
        if self.seconds is not None:
            found = f"{self.rows_from_index:,} rows from indices, " if self.indices else ""
            cost = f"{plural(self.reads or 0, 'index read')}, {self.seconds * 1000:.1f} ms"
            lines.append(f"  ran      {found}{self.rows_returned:,} rows returned, {cost}")
        if self.cache is not None:
            lines.append(f"  cache    {self.cache}")
        return in_lines(lines)


def explain(catalog: Catalog, request: ScanRequest, analyze: bool = False) -> Explanation:
    """Plan a scan from lookups alone; with `analyze`, also run it and report its reads."""
    snapshot = catalog.snapshot
    manifest = snapshot.manifest
    node = None if request.filter is None else parse(snapshot, request.filter)
    plan = Explanation(
        table=snapshot.uri,
        version=snapshot.version,
        filter=request.filter,
        understood_as="every row" if node is None else str(node),
        indices=(),
        exact=False,
        indexed_fragments=0,
        scanned_fragments=tuple(manifest.fragments),
        scanned_rows=manifest.rows_in(manifest.live),
        total_rows=manifest.rows_in(manifest.live),
        skipped=tuple(catalog.skipped),
    )
    changes: dict[str, Any] = {}
    if node is not None:
        with counting_cache() as cache:
            answer = Planner(catalog, node).answer(search=analyze)
        changes |= {
            "indices": index_uses(answer),
            "exact": answer.indexed.exact and bool(answer.indexed.fragments),
            "indexed_fragments": len(answer.indexed.fragments),
            "scanned_fragments": tuple(answer.scanned),
            "scanned_rows": manifest.rows_in(answer.scanned),
            "skipped": answer.skipped,
        }
        if analyze:
            changes |= {"rows_from_index": len(answer.indexed.rows), "reads": answer.reads.reads, "cache": cache}
    if analyze:
        start = time.perf_counter()
        changes |= {"rows_returned": scan(catalog, request).num_rows}
        changes |= {"seconds": time.perf_counter() - start, "reads": changes.get("reads", 0)}
    return Explanation(**{**{f: getattr(plan, f) for f in plan.__dataclass_fields__}, **changes})


def index_uses(answer: Answer) -> tuple[IndexUse, ...]:
    return tuple(
        IndexUse(
            used.name,
            str(used.condition),
            used.segments,
            used.estimate.pages,
            used.estimate.rows,
            used.precision is Precision.EXACT,
        )
        for used in answer.used
    )


def some_ids(fragments: tuple[int, ...]) -> str:
    shown = ", ".join(str(f) for f in fragments[:8])
    return f"{shown}, ..." if len(fragments) > 8 else shown

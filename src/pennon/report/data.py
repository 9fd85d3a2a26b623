"""The report's facts as plain values for programs: the same figures that the page shows, as fields."""

from __future__ import annotations

from typing import Any

from pennon.display import fields_table, section
from pennon.report.facts import IndexFacts, SegmentFacts, TableFacts
from pennon.report.summary import headline, level, notices


class ReportData(dict[str, Any]):
    """The figures of a report: a dict for JSON, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return section("Report", fields_table(self))


def to_data(facts: TableFacts) -> ReportData:
    """A dict for JSON. `status` is `good`, `warn` or `bad`, as the page's headline shows it; shares are 0 to 1."""
    return ReportData(
        {
            "status": level(facts).value,
            "headline": headline(facts),
            "notices": [{"level": notice.level.value, "text": notice.text} for notice in notices(facts)],
            "uri": facts.uri,
            "version": facts.version,
            "read_at": facts.read_at.isoformat(),
            "stable_row_ids": facts.stable_row_ids,
            "fragments": facts.fragments,
            "rows": facts.rows,
            "rows_deleted": facts.deleted,
            "deleted_share": facts.deleted_share,
            "indices": [_index(index) for index in facts.indices],
            "fragment_reuse": _reuse(facts),
            "doubtful_settings": list(facts.doubtful),
            "maintenance": {
                "version": facts.decisions_version,
                "problem": facts.decisions_problem,
                "steps": [{"step": each.step, "due": each.due, "reason": each.reason} for each in facts.decisions],
            },
            "history": {
                "oldest_version": facts.history.oldest,
                "versions_read": facts.history.versions_read,
                "versions_present": facts.history.versions_there,
                "events": [
                    {
                        "version": event.version,
                        "time": event.when.isoformat() if event.when else None,
                        "index": event.index,
                        "event": event.what,
                    }
                    for event in facts.history.events
                ],
            },
        }
    )


def _index(index: IndexFacts) -> dict[str, Any]:
    return {
        "name": index.name,
        "type": index.type,
        "columns": list(index.columns),
        "used": not index.foreign,
        "parameters": dict(index.parameters),
        "rows_covered": index.rows_covered,
        "rows_total": index.rows_total,
        "coverage": index.coverage,
        "uncovered_fragments": index.uncovered_fragments,
        "overlapping_fragments": index.overlapping_fragments,
        "compactions_behind": index.compactions_behind,
        "size_bytes": index.size_bytes,
        "segments": [_segment(segment) for segment in index.segments],
    }


def _segment(facts: SegmentFacts) -> dict[str, Any]:
    segment, chart = facts.segment, facts.description.chart
    largest = [{"name": bar.label, "value": bar.value} for bar in chart.bars] if chart and chart.ranked else []
    return {
        "uuid": segment.uuid,
        "used": facts.used,
        "problem": facts.problem,
        "damaged": facts.damaged,
        "opened": facts.opened,
        "fragments": len(segment.fragments),
        "rows": segment.rows,
        "size_bytes": segment.size_bytes,
        "files": segment.files,
        "index_version": segment.index_version,
        "dataset_version": segment.dataset_version,
        "created_at": segment.created_at.isoformat() if segment.created_at else None,
        "compactions_behind": segment.compactions_behind,
        "stale_fragments": facts.stale_fragments,
        "measures": dict(facts.description.measures),
        "largest": largest,
    }


def _reuse(facts: TableFacts) -> dict[str, Any]:
    reuse = facts.reuse
    return {
        "compactions": reuse.depth if reuse else 0,
        "size_bytes": reuse.size_bytes if reuse else 0,
        "problem": facts.reuse_problem,
    }

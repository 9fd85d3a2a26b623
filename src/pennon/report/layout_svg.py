"""The layout of a table: fragments as columns as wide as their rows, each index a lane, each segment a bar over the
fragments it covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from pennon.report.charts import rect, svg
from pennon.report.facts import IndexFacts, SegmentFacts, TableFacts
from pennon.report.grid import Column, Scale, Shares
from pennon.wording import percent, plural

ROWS_HEIGHT = 64
LABEL_HEIGHT = 16
TRACK, TRACK_GAP = 20, 5
MAX_TRACKS = 8
MAX_LANES = 60
# In percent of the width: columns at least so wide are labeled with their rows, ids of fragments are so far apart, and
# narrower pieces are drawn without edges, which would hide them.
LABELED_WIDTH, TICK_DISTANCE, EDGED_WIDTH = 12.0, 9.0, 1.0

# Color is never alone: what is wrong has a texture of its own. Used by every drawing of the page.
PATTERNS = """<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>
<pattern id="uncovered" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">\
<rect class="p-uncovered" width="7" height="7"/><rect class="p-uncovered-line" width="2" height="7"/></pattern>
<pattern id="deleted" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">\
<rect class="p-deleted" width="4" height="4"/><rect class="p-deleted-line" width="1.4" height="4"/></pattern>
<pattern id="moved" width="6" height="6" patternUnits="userSpaceOnUse">\
<circle class="p-moved" cx="3" cy="3" r="1.5"/></pattern>
<pattern id="stale" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">\
<rect class="p-stale" width="6" height="6"/><path class="p-stale-line" d="M0 3H6M3 0V6"/></pattern>
</defs></svg>"""

LEGEND = (
    ("live", "live rows, by width"),
    ("deleted", "deleted share of a fragment, by height"),
    ("segment a", "segment"),
    ("segment b", "the next segment"),
    ("uncovered", "uncovered: scanned"),
    ("moved", "reached through the Fragment Reuse Index"),
    ("stale", "old values left in files"),
    ("overlap", "covered twice"),
    ("damaged", "damaged"),
    ("unused", "not used by Pennon"),
)


def picture(facts: TableFacts) -> str:
    if not facts.columns:
        return '<p class="quiet">The table has no fragments to draw.</p>'
    label = f'<strong>Fragments</strong><span class="quiet">{facts.fragments:,}</span>'
    if facts.fragments > len(facts.columns):
        label += f'<span class="quiet">about {facts.columns[0].fragments:,} a column</span>'
    scale = Scale.of(facts.columns)
    lanes = [_lane(label, _fragments(facts.columns, scale) + _axis(facts.columns, scale))]
    for number, index in enumerate(facts.indices[:MAX_LANES], 1):
        lanes.append(_lane(_index_label(number, index), _index(index, facts.columns, scale)))
    if len(facts.indices) > MAX_LANES:
        lanes.append(f'<p class="quiet">and {len(facts.indices) - MAX_LANES:,} more indices</p>')
    return f'<div class="picture">{"".join(lanes)}</div>{_legend(facts)}'


def _lane(label: str, drawing: str) -> str:
    return f'<div class="lane"><div class="lane-label">{label}</div><div class="lane-body">{drawing}</div></div>'


def _index_label(number: int, index: IndexFacts) -> str:
    style, text = "good" if not index.uncovered_fragments else "warn", percent(index.coverage)
    if index.foreign:
        style, text = "", "not used"
    return (
        f'<a href="#index-{number}"><strong>{escape(index.name)}</strong></a>'
        f'<span class="quiet">{escape(index.type)}</span><span class="chip {style}">{text}</span>'
    )


def _legend(facts: TableFacts) -> str:
    """Only of what can be seen in this picture."""
    known = [index for index in facts.indices if not index.foreign]
    segments = [segment for index in facts.indices for segment in index.segments]
    drawn = {_style(segment, "a") for segment in segments if any(segment.covered)}
    seen = {
        "live": True,
        "deleted": facts.deleted > 0,
        "segment a": "segment a" in drawn,
        "segment b": any(len(index.segments) > 1 for index in known),
        "uncovered": any(any(index.uncovered) for index in known),
        "moved": any(any(segment.moved) for segment in segments),
        "stale": any(any(segment.stale) for segment in segments),
        "overlap": any(any(index.overlap) for index in known),
        "damaged": "damaged" in drawn,
        "unused": "unused" in drawn,
    }
    items = "".join(f"<li>{_swatch(style)}{escape(text)}</li>" for style, text in LEGEND if seen[style])
    return f'<ul class="legend">{items}</ul>'


def _swatch(style: str) -> str:
    under = '<rect class="segment a" width="16" height="12"/>' if style in ("moved", "overlap") else ""
    over = f'<rect class="{style}" width="16" height="12"/>'
    return f'<svg width="16" height="12" aria-hidden="true">{under}{over}</svg>'


def _fragments(columns: Sequence[Column], scale: Scale) -> str:
    area = ROWS_HEIGHT - LABEL_HEIGHT
    shapes: list[str] = []
    for at, column in enumerate(columns):
        x, width = scale.span(at, at)
        edged = " edged" if width >= EDGED_WIDTH else ""
        gone = min(area, max(2.0, area * _deleted_share(column))) if column.deleted else 0.0
        shapes.append(rect(x, width, LABEL_HEIGHT + gone, area - gone, f"live{edged}"))
        if gone:
            shapes.append(rect(x, width, LABEL_HEIGHT, gone, f"deleted{edged}"))
        if width >= LABELED_WIDTH:
            place = f'x="{scale.middle(at):.3f}%" y="{LABEL_HEIGHT - 5:.1f}"'
            shapes.append(f'<text class="figure" {place}>{short(column.live)}</text>')
        shapes.append(rect(x, width, 0, ROWS_HEIGHT, "hover", _column_title(column)))
    return svg(ROWS_HEIGHT, shapes, "Fragments by their share of the live rows, with the share of deleted rows in each")


def _deleted_share(column: Column) -> float:
    return column.deleted / max(column.rows, 1)  # a damaged manifest may record no rows


def _column_title(column: Column) -> str:
    share = _deleted_share(column)
    return f"{column.label}: {plural(column.live, 'row')}" + (
        f", {column.deleted:,} deleted ({percent(share)})" if column.deleted else ""
    )


def short(count: int) -> str:
    """A number of rows in four characters or so."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.3g}{unit}" if count < 100 * size else f"{count / size:,.0f}{unit}"
    return str(count)


def _axis(columns: Sequence[Column], scale: Scale) -> str:
    ticks: list[str] = []
    last = -TICK_DISTANCE
    for at, column in enumerate(columns):
        middle = scale.middle(at)
        if middle - last >= TICK_DISTANCE:
            ticks.append(f'<text class="tick" x="{middle:.3f}%" y="14">{column.first}</text>')
            last = middle
    return svg(18, ticks, "Fragment ids")


@dataclass(frozen=True)
class _Run:
    """Neighboring columns of which a segment has the same share."""

    first: int
    last: int
    share: float


def _index(index: IndexFacts, columns: Sequence[Column], scale: Scale) -> str:
    tracks = _tracks(index.segments)
    height = len(tracks) * (TRACK + TRACK_GAP) + TRACK_GAP
    shapes = [rect(0, 100, 0, height, "lane-ground")]
    for run in _runs(() if index.foreign else index.uncovered):
        part = max(4.0, height * run.share)
        title = f"{_named(columns, run)}: {percent(run.share)} of the rows not covered, queries scan them"
        shapes.append(rect(*scale.span(run.first, run.last), height - part, part, "uncovered", title))
    order = {facts.segment.uuid: at for at, facts in enumerate(index.segments)}
    for row, track in enumerate(tracks):
        for facts in track:
            shade = "ab"[order[facts.segment.uuid] % 2]
            shapes += _bar(facts, columns, scale, TRACK_GAP + row * (TRACK + TRACK_GAP), shade)
    for run in _runs(index.overlap):
        title = f"{_named(columns, run)}: covered by several segments"
        shapes.append(rect(*scale.span(run.first, run.last), 0, height, "overlap", title))
    return svg(height, shapes, f"Segments of {index.name} over the fragments they cover")


def _bar(facts: SegmentFacts, columns: Sequence[Column], scale: Scale, y: float, shade: str) -> Iterator[str]:
    style = _style(facts, shade)
    runs = list(_runs(facts.covered))
    if len(runs) > 1:
        left, right = scale.middle(runs[0].first), scale.middle(runs[-1].last)
        yield rect(left, right - left, y + TRACK / 2 - 1, 2, f"{style} thread")
    for run in runs:
        yield _piece(run, scale, y, style, _title(facts, columns, run, "covers"))
    for run in _runs(facts.moved):
        yield _piece(run, scale, y, "moved", _title(facts, columns, run, "reaches through the Fragment Reuse Index"))
    for run in _runs(facts.stale):
        yield _piece(run, scale, y, "stale", _title(facts, columns, run, "still has old values of"))
    if facts.damaged and runs:
        x, width = scale.span(runs[0].first, runs[0].last)
        yield f'<text class="mark" x="{x + width / 2:.3f}%" y="{y + TRACK - 5:.1f}">!</text>'


def _style(facts: SegmentFacts, shade: str) -> str:
    return f"segment {shade}" if facts.used else "damaged" if facts.damaged else "unused"


def _piece(run: _Run, scale: Scale, y: float, style: str, title: str) -> str:
    height = max(3.0, TRACK * run.share)
    x, width = scale.span(run.first, run.last)
    return rect(x, width, y + TRACK - height, height, style if width >= EDGED_WIDTH else f"{style} thin", title)


def _title(facts: SegmentFacts, columns: Sequence[Column], run: _Run, verb: str) -> str:
    part = "" if run.share == 1 else f"{percent(run.share)} of "
    problem = f". Not used: {facts.problem}" if facts.problem else ""
    return f"segment {facts.segment.uuid[:8]} {verb} {part}{_named(columns, run)}{problem}"


def _named(columns: Sequence[Column], run: _Run) -> str:
    first, last = columns[run.first], columns[run.last]
    if run.first == run.last:
        return first.label
    return f"{sum(c.fragments for c in columns[run.first : run.last + 1]):,} fragments, {first.first} to {last.last}"


def _runs(shares: Shares) -> Iterator[_Run]:
    at = 0
    for share, members in groupby(round(share, 3) or float(share > 0) * 0.001 for share in shares):
        count = len(list(members))
        if share:
            yield _Run(at, at + count - 1, share)
        at += count


def _tracks(segments: Sequence[SegmentFacts]) -> list[list[SegmentFacts]]:
    """Segments whose spans do not meet share a track; the last one takes what finds no other."""
    tracks: list[list[SegmentFacts]] = [[]]
    ends = [-1]
    drawn = [(span, facts) for facts in segments if (span := _span(facts))]
    for (first, last), facts in sorted(drawn, key=lambda pair: pair[0]):
        free = next((at for at, end in enumerate(ends) if end < first), None)
        if free is None and len(tracks) < MAX_TRACKS:
            tracks.append([])
            ends.append(-1)
        at = len(tracks) - 1 if free is None else free
        tracks[at].append(facts)
        ends[at] = max(ends[at], last)
    return tracks


def _span(facts: SegmentFacts) -> tuple[int, int] | None:
    seen = [at for at, (covered, stale) in enumerate(zip(facts.covered, facts.stale, strict=True)) if covered or stale]
    return (seen[0], seen[-1]) if seen else None

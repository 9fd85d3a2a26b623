"""The page: one HTML document that needs nothing else. Every value passes through `html.escape`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

from pennon.index.description import Chart
from pennon.report.charts import bars, meter, ranked
from pennon.report.facts import IndexFacts, SegmentFacts, TableFacts
from pennon.report.layout_svg import PATTERNS, picture
from pennon.report.style import STYLE
from pennon.report.summary import Level, headline, level, notices
from pennon.wording import human_bytes, percent, plural

# Rows of a table that are shown at once, and at all.
FOLDED_ROWS, MAX_ROWS = 12, 300
# Segments whose balance is drawn, the largest first.
MAX_CHARTS = 4

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Page(str):
    """The document as text, which a notebook shows in a frame."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # The sandbox keeps the document apart from the notebook, and runs no scripts.
        style = "width: 100%; height: 45em; border: 0"
        return f'<iframe sandbox="" style="{style}" srcdoc="{escape(self)}"></iframe>'

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"<report: HTML of {len(self):,} characters>")


def page(facts: TableFacts) -> Page:
    name = facts.uri.rstrip("/").rpartition("/")[2] or facts.uri
    sections = [
        _head(facts, name),
        _section("Layout", f'<div class="card">{picture(facts)}</div>'),
        _section("What maintain would do", _decisions(facts)),
        _section("Indices", "".join(_index(number, index) for number, index in enumerate(facts.indices, 1)))
        if facts.indices
        else "",
        _section("Fragment Reuse Index", _reuse(facts)),
        _section("History of the indices", _history(facts)),
    ]
    return Page(
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        f'<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(name)} · Pennon index report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{PATTERNS}\n"
        f"<main>\n{''.join(sections)}\n<footer>Read by Pennon at {_time(facts.read_at)}, without Spark. "
        f"Figures are of version {facts.version}.</footer>\n</main>\n</body>\n</html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>\n"


def _head(facts: TableFacts, name: str) -> str:
    ids = ", stable row ids" if facts.stable_row_ids else ""
    listed = "".join(f'<li class="{notice.level}">{escape(notice.text)}</li>' for notice in notices(facts))
    return (
        f'<header><p class="eyebrow">Pennon index report</p><h1>{escape(name)}</h1>'
        f'<p class="where"><code>{escape(facts.uri)}</code></p>'
        f'<p class="where">version {facts.version}{ids}, {_time(facts.read_at)}</p>'
        f'<p class="headline {level(facts)}">{escape(headline(facts))}</p>{_tiles(facts)}</header>\n'
        + (f'<ul class="notices">{listed}</ul>\n' if listed else "")
    )


def _tiles(facts: TableFacts) -> str:
    segments = sum(len(index.segments) for index in facts.indices)
    files = sum(segment.segment.files for index in facts.indices for segment in index.segments)
    compactions = plural(facts.reuse.depth, "compaction") if facts.reuse else "none"
    tiles = (
        ("Live rows", f"{facts.rows:,}", f"{facts.deleted:,} deleted, {percent(facts.deleted_share)}"),
        ("Fragments", f"{facts.fragments:,}", f"{facts.rows / max(1, facts.fragments):,.0f} rows on average"),
        ("Indices", f"{len(facts.indices):,}", plural(segments, "segment")),
        ("Index files", human_bytes(sum(index.size_bytes for index in facts.indices)), plural(files, "file")),
        ("Fragment reuse", compactions, human_bytes(facts.reuse.size_bytes) if facts.reuse else ""),
    )
    return f'<dl class="tiles">{"".join(_tile(*tile) for tile in tiles)}</dl>'


def _tile(name: str, value: str, note: str) -> str:
    small = f"<small>{escape(note)}</small>" if note else ""
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)}{small}</dd></div>"


def _decisions(facts: TableFacts) -> str:
    if facts.decisions_problem:
        return f'<div class="card"><p>Unknown: {escape(facts.decisions_problem)}</p></div>'
    columns = (_Column("step", "fixed"), _Column("", "fixed"), _Column("why", "wide"))
    rows = [
        (escape(each.step), _chip("due", Level.WARN) if each.due else _chip("not due"), escape(each.reason))
        for each in facts.decisions
    ]
    newer = facts.decisions_version != facts.version
    at = f'<p class="quiet">At the newest version, {facts.decisions_version}.</p>' if newer else ""
    return f'<div class="card">{at}{_table(columns, rows, "stack")}</div>'


def _index(number: int, index: IndexFacts) -> str:
    whole = index.foreign or not index.uncovered_fragments
    parameters = [
        ("columns", ", ".join(index.columns)),
        *index.parameters,
        ("size", human_bytes(index.size_bytes)),
    ]
    if not index.foreign:
        parameters.append(("rows", f"{index.rows_covered:,} of {index.rows_total:,}"))
    shown = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in parameters)
    gap = f"{plural(index.uncovered_fragments, 'fragment')} to scan" if not whole else ""
    covers = _chip(f"covers {percent(index.coverage)}", Level.GOOD if whole else Level.WARN)
    bar = f'<div class="meter">{meter(index.coverage, "good-fill" if whole else "warn-fill")}</div>'
    return (
        f'<article class="card" id="index-{number}"><div class="title"><h3>{escape(index.name)}</h3>'
        f'<span class="quiet">{escape(index.type)}</span>{_chip("not used") if index.foreign else covers}'
        f'<span class="quiet">{gap}</span></div>{"" if index.foreign else bar}'
        f'<dl class="facts">{shown}</dl>{_balance(index.segments)}{_segments(index.segments)}</article>'
    )


def _segments(segments: Sequence[SegmentFacts]) -> str:
    columns = (
        _Column("segment", "fixed"),
        _Column("state", "state"),
        _Column("fragments", "number"),
        _Column("rows", "number"),
        _Column("size", "number"),
        _Column("files", "number"),
        _Column("built at version", "number"),
        _Column("created", "fixed late"),
    )
    rows = [
        (
            f'<code title="{escape(facts.segment.uuid)}">{escape(facts.segment.uuid[:8])}</code>',
            _state(facts),
            f"{len(facts.segment.fragments):,}",
            f"{facts.segment.rows:,}",
            human_bytes(facts.segment.size_bytes),
            f"{facts.segment.files:,}",
            f"{facts.segment.dataset_version:,}",
            _time(facts.segment.created_at),
        )
        for facts in segments
    ]
    return f"<h4>{plural(len(segments), 'segment')}</h4>{_table(columns, rows)}"


def _state(facts: SegmentFacts) -> str:
    if facts.problem:
        chip = _chip("damaged", Level.BAD) if facts.damaged else _chip("not used", Level.WARN)
        return f"{chip} {escape(facts.problem)}"
    chips: list[str] = []
    if facts.segment.compactions_behind:
        chips.append(_chip(f"{plural(facts.segment.compactions_behind, 'compaction')} behind", Level.WARN))
    if facts.stale_fragments:
        chips.append(_chip(f"old values of {plural(facts.stale_fragments, 'fragment')}", Level.WARN))
    if not facts.segment.fragments:
        chips.append(_chip("covers nothing", Level.WARN))
    return " ".join(chips) or (_chip("in use", Level.GOOD) if facts.opened else _chip("not opened"))


def _balance(segments: Sequence[SegmentFacts]) -> str:
    measured = [(facts, facts.description.chart) for facts in segments if facts.description.chart]
    largest = sorted(measured, key=lambda each: -each[0].segment.size_bytes)[:MAX_CHARTS]
    charts = "".join(_chart(facts, chart, several=len(measured) > 1) for facts, chart in largest)
    left = len(measured) - len(largest)
    more = f'<p class="quiet">The {len(largest)} largest segments; {left:,} more are not drawn.</p>' if left else ""
    return f'<div class="charts">{charts}</div>{more}' if charts else ""


def _chart(facts: SegmentFacts, chart: Chart, *, several: bool) -> str:
    of = f" of {escape(facts.segment.uuid[:8])}" if several else ""
    draw = ranked if chart.ranked else bars
    drawn = draw(chart.bars, chart.label) if chart.bars else ""
    ends = "".join(f"<span>{escape(end)}</span>" for end in chart.ends or ())
    scale = f'<div class="scale">{ends}</div>' if ends else ""
    text = f"<p>{escape(chart.text)}</p>" if chart.text else ""
    return f"<div><h4>{escape(chart.title)}{of}</h4>{_measures(facts)}{drawn}{scale}{text}</div>"


def _measures(facts: SegmentFacts) -> str:
    shown = "".join(
        f"<div><dt>{escape(name.replace('_', ' '))}</dt><dd>{_figure(value)}</dd></div>"
        for name, value in facts.description.measures.items()
    )
    return f'<dl class="facts measures">{shown}</dl>' if shown else ""


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _reuse(facts: TableFacts) -> str:
    if facts.reuse_problem:
        return f'<div class="card"><p>It cannot be read: {escape(facts.reuse_problem)}</p></div>'
    if facts.reuse is None:
        return '<p class="quiet">None: no deferred compaction is outstanding.</p>'
    tagged = ", in the tagged form" if facts.reuse.tagged else ""
    size = f"{plural(facts.reuse.depth, 'compaction')} recorded, {human_bytes(facts.reuse.size_bytes)}{tagged}."
    columns = tuple(_Column(name, "number") for name in ("of version", "groups", "old fragments", "new fragments"))
    rows = [
        (str(v.dataset_version), f"{v.groups:,}", f"{v.old_fragments:,}", f"{v.new_fragments:,}")
        for v in reversed(facts.reuse.versions)
    ]
    return f'<div class="card"><p>{escape(size)}</p>{_table(columns, rows, "narrow")}</div>'


def _history(facts: TableFacts) -> str:
    history = facts.history
    read = f"From {plural(history.versions_read, 'manifest')}, versions {history.oldest} to {facts.version}"
    left = history.versions_there - history.versions_read
    read += f"; {left:,} older not read." if left else "."
    if not history.events:
        return f'<p class="quiet">{escape(read)} No index changed in them.</p>'
    columns = (_Column("version", "number"), _Column("index", "fixed"), _Column("what", "wide"), _Column("at", "fixed"))
    rows = [
        (f"{event.version:,}", escape(event.index), escape(event.what), _time(event.when)) for event in history.events
    ]
    return f'<div class="card"><p class="quiet">{escape(read)}</p>{_table(columns, rows, "stack")}</div>'


@dataclass(frozen=True)
class _Column:
    name: str
    style: str


def _table(columns: Sequence[_Column], rows: Sequence[Sequence[str]], style: str = "") -> str:
    """Cells are HTML already. The first rows are in sight, the others a click away."""
    shown, folded = rows[:FOLDED_ROWS], rows[FOLDED_ROWS:MAX_ROWS]
    built = _grid(columns, shown, style)
    if folded:
        built += f"<details><summary>{len(folded):,} more</summary>{_grid(columns, folded, style)}</details>"
    if len(rows) > MAX_ROWS:
        built += f'<p class="quiet">and {len(rows) - MAX_ROWS:,} not shown</p>'
    return built


def _grid(columns: Sequence[_Column], rows: Iterable[Sequence[str]], style: str) -> str:
    head = "".join(f'<th class="{column.style}">{escape(column.name)}</th>' for column in columns)
    lines = (
        "".join(f'<td class="{column.style}">{cell}</td>' for column, cell in zip(columns, row, strict=True))
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    table = f'<table class="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _chip(text: str, style: Level | None = None) -> str:
    return f'<span class="chip {style or ""}">{escape(text)}</span>'


def _time(when: datetime | None) -> str:
    return when.strftime("%Y-%m-%d %H:%M UTC") if when else ""

"""How results look: tables for people, JSON for programs."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, cast

import click
import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pennon.jobs.results import Plan, Result
from pennon.query.inventory import Index, ReuseInfo
from pennon.query.scan.explain import Explanation
from pennon.query.search.explain import SearchExplanation
from pennon.secrets import redact
from pennon.wording import escape_controls, human_bytes, in_json, in_line, percent, plural

if TYPE_CHECKING:
    from pennon.query.text.explain import TextExplanation


class Screen(Console):
    """Lines for people, without secrets and without what steers a terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(escape_controls(redact(o)) if isinstance(o, str) else o for o in objects), **options)


# Items of a list that are all shown in a cell.
MOST_ITEMS = 8

# Values are the table's, so nothing in them is markup.
console = Screen(markup=False, highlight=False, emoji=False, soft_wrap=True)


def print_json(value: Any, file: IO[str] | None = None) -> None:
    click.echo(_json(value, indent=2), file)


def print_json_line(value: Any) -> None:
    """For results without an end: one line each."""
    click.echo(_json(value))


def print_rows(rows: pa.Table) -> None:
    cells = [[in_line(_cell(value)) for value in row.values()] for row in rows.to_pylist()]
    _print_table([in_line(name) for name in rows.column_names], cells, folded=rows.column_names)


def print_indices(indices: Iterable[Index]) -> None:
    rows: list[list[str]] = []
    for index in indices:
        created = max((s.created_at for s in index.segments if s.created_at), default=None)
        rows.append(
            [
                in_line(index.name),
                in_line(index.type),
                in_line(", ".join(index.columns)),
                str(len(index.segments)),
                percent(index.coverage),
                f"{index.rows_covered:,}",
                human_bytes(index.size_bytes),
                created.strftime("%Y-%m-%d") if created else "",
            ]
        )
        unusable = [segment for segment in index.segments if segment.unusable]
        rows += [[in_line(redact(f"  segment {segment.uuid}: {segment.unusable}"))] for segment in unusable]
    headers = ("name", "type", "columns", "segments", "coverage", "rows", "size", "created")
    _print_table(headers, rows, numbers=("segments", "coverage", "rows", "size"), folded=("name", "columns"))


def print_reuse(reuse: ReuseInfo) -> None:
    console.print(reuse_line(reuse))
    headers = ("version", "groups", "old fragments", "new fragments")
    figures = [(v.dataset_version, v.groups, v.old_fragments, v.new_fragments) for v in reuse.versions]
    rows = [[str(version), *(f"{number:,}" for number in numbers)] for version, *numbers in figures]
    _print_table(headers, rows, numbers=headers)


def reuse_line(reuse: ReuseInfo) -> str:
    form = ", in the tagged form" if reuse.tagged else ""
    return f"Fragment Reuse Index: {plural(reuse.depth, 'compaction')} recorded, {human_bytes(reuse.size_bytes)}{form}"


def _print_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = (), folded: Sequence[str] = ()
) -> None:
    """Aligned columns. A terminal folds wide cells; a file or a pipe gets one line for each row."""
    if not console.is_terminal:
        _print_lines(headers, rows, numbers)
        return
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name in headers:
        justify = "right" if name in numbers else "left"
        grid.add_column(Text(name), justify=justify, no_wrap=name not in folded, overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, row))
    console.print(grid)


def _print_lines(headers: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> None:
    # A row of one cell is a remark, which takes as much room as it needs.
    lines = [headers, *rows]
    widths = [max(cell_len(line[at]) for line in lines if len(line) > min(1, at)) for at in range(len(headers))]
    for line in lines:
        padded = zip(headers, line, widths, strict=False)
        blanks = [(cell, " " * (width - cell_len(cell)), name in numbers) for name, cell, width in padded]
        cells = [blank + cell if right else cell + blank for cell, blank, right in blanks]
        console.print("  ".join(cells).rstrip())


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return _list_cell(cast(list[Any], value))
    return "" if value is None else str(_plain(value)) if isinstance(value, bytes) else str(value)


def _list_cell(items: list[Any]) -> str:
    """Vectors have hundreds of items; JSON has them all."""
    if len(items) <= MOST_ITEMS:
        return str(items)
    shown = (f"{item:.6g}" if isinstance(item, float) else _cell(item) for item in items[:3])
    return f"[{', '.join(shown)}, ... {len(items):,} items]"


def _json(value: Any, indent: int | None = None) -> str:
    try:
        text = json.dumps(value, default=_plain, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), default=_plain, ensure_ascii=False, indent=indent)
    return in_json(text)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinities; they become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_found(rows: pa.Table, **more: int) -> None:
    """Rows of the table, as JSON."""
    print_json({"status": "done", "count": rows.num_rows, **more, "rows": rows.to_pylist()})


def print_explanation(explanation: Explanation | SearchExplanation | TextExplanation, output: str) -> None:
    """How a query would run, or ran."""
    if output == "json":
        status = "planned" if explanation.seconds is None else "done"
        print_json({"status": status, **explanation.to_dict()})
    else:
        console.print(str(explanation))


def print_plan(plan: Plan, output: str) -> None:
    """What a verb would do."""
    if output == "json":
        print_json({"status": "planned", **plan.to_dict()})
    else:
        console.print(str(plan))


def print_result(result: Result[Any], output: str, *, with_plan: bool = False) -> None:
    """What a verb did: the plan it followed where that has more, else one line."""
    if output == "json":
        print_json(result.to_dict())
    elif with_plan:
        console.print(f"{result.plan}\nversion {result.version_after}")
    else:
        console.print(f"{result.summary}; version {result.version_after}")

"""How results look: tables for people, JSON for programs."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any

import click
import pyarrow as pa
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


# Values are the table's, so nothing in them is markup.
console = Screen(markup=False, highlight=False, emoji=False, soft_wrap=True)


def print_json(value: Any, file: IO[str] | None = None) -> None:
    click.echo(_json(value, indent=2), file)


def print_json_line(value: Any) -> None:
    """For results without an end: one line each."""
    click.echo(_json(value))


def print_rows(rows: pa.Table) -> None:
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name in rows.column_names:
        grid.add_column(Text(in_line(name)), overflow="fold")
    for row in rows.to_pylist():
        grid.add_row(*(Text(in_line(_cell(value))) for value in row.values()))
    console.print(grid)


def print_indices(indices: Iterable[Index]) -> None:
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name in ("name", "type", "columns", "segments", "coverage", "rows", "size", "created"):
        number = name in ("segments", "coverage", "rows", "size")
        folds = name in ("name", "columns")
        grid.add_column(name, justify="right" if number else "left", no_wrap=not folds, overflow="fold")
    for index in indices:
        created = max((s.created_at for s in index.segments if s.created_at), default=None)
        grid.add_row(
            Text(in_line(index.name)),
            Text(in_line(index.type)),
            Text(in_line(", ".join(index.columns))),
            str(len(index.segments)),
            percent(index.coverage),
            f"{index.rows_covered:,}",
            human_bytes(index.size_bytes),
            created.strftime("%Y-%m-%d") if created else "",
        )
        for segment in index.segments:
            if segment.unusable:
                grid.add_row(Text(in_line(redact(f"  segment {segment.uuid}: {segment.unusable}"))))
    console.print(grid)


def print_reuse(reuse: ReuseInfo) -> None:
    console.print(reuse_line(reuse))
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name in ("version", "groups", "old fragments", "new fragments"):
        grid.add_column(name, justify="right")
    for version in reuse.versions:
        grid.add_row(
            str(version.dataset_version),
            f"{version.groups:,}",
            f"{version.old_fragments:,}",
            f"{version.new_fragments:,}",
        )
    console.print(grid)


def reuse_line(reuse: ReuseInfo) -> str:
    form = ", in the tagged form" if reuse.tagged else ""
    return f"Fragment Reuse Index: {plural(reuse.depth, 'compaction')} recorded, {human_bytes(reuse.size_bytes)}{form}"


def _cell(value: Any) -> str:
    return "" if value is None else str(_plain(value)) if isinstance(value, bytes) else str(value)


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

"""How values are shown to people: HTML in notebooks, aligned columns in a terminal.

Names and values of tables may hold anything. Every text passes through `_text`: no secret, no control character, and no
markup but that of this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from html import escape
from typing import Any, cast

from pennon.secrets import redact
from pennon.wording import human_bytes, in_line

# Items of a list that are shown; a table may have thousands of fragments.
MOST_ITEMS = 20
TABLE = '<table style="text-align: left; word-break: break-word">'
# Cells that a column of text has at least between itself and the next.
GAP = "  "


class Printed:
    """IPython shows it as `print` does, not as its long `repr`."""

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self) if cycle else str(self))


class Displayed(Printed):
    """Shown in a notebook as a table of what its `to_dict` returns."""

    __slots__ = ()

    def to_dict(self) -> Mapping[str, Any]:
        """The fields, as JSON has them."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return section(type(self).__name__, fields_table(self.to_dict()))


class DisplayedFields(Printed):
    """A dataclass that is shown in a notebook as a table of its fields."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}
        return section(type(self).__name__, fields_table(shown))


def section(title: str, *parts: str) -> str:
    """Some HTML under a title."""
    return f"<div><strong>{_text(title)}</strong>{''.join(parts)}</div>"


def fields_table(fields: Mapping[str, Any]) -> str:
    """A row for each field: its name, and its value."""
    rows = (
        f"<tr><th style='word-break: normal'>{_text(_words(name))}</th><td>{_cell(name, value)}</td></tr>"
        for name, value in fields.items()
    )
    return f"{TABLE}{''.join(rows)}</table>"


def rows_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows of texts under headers."""
    head = "".join(f"<th>{_text(header)}</th>" for header in headers)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"{TABLE}<tr>{head}</tr>{body}</table>"


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same in aligned columns. Numbers are aligned to the right."""
    lines = [headers, *([in_line(redact(cell)) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(headers))]
    right = [bool(rows) and all(line[at][:1].isdigit() for line in lines[1:]) for at in range(len(headers))]
    return "\n".join(
        GAP.join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _cell(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return fields_table(cast(Mapping[str, Any], value)) if value else ""
    if isinstance(value, list | tuple):
        return _items(name, cast(Sequence[Any], value))
    return _text(_plain(name, value))


def _items(name: str, items: Sequence[Any]) -> str:
    shown, more = items[:MOST_ITEMS], len(items) - MOST_ITEMS
    rest = f", ... {len(items):,} in all" if more > 0 else ""
    if not all(isinstance(item, Mapping) for item in shown):
        return _text(", ".join(_plain(name, item) for item in shown) + rest)
    if not shown:
        return ""
    names = list(dict.fromkeys(key for item in shown for key in item))
    head = "".join(f"<th style='word-break: normal'>{_text(_words(key))}</th>" for key in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(key, item.get(key))}</td>' for key in names)}</tr>" for item in shown)
    return f"{TABLE}<tr>{head}</tr>{body}</table>{_text(rest.removeprefix(', '))}"


def _plain(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        # Versions and ids are names, not amounts.
        named = name.startswith("version") or name.endswith(("_version", "_ids", "fragments"))
        return human_bytes(value) if "bytes" in name.split("_") else str(value) if named else f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3f}" if name.endswith("seconds") else f"{value:.4g}"
    return value.isoformat(timespec="seconds") if isinstance(value, datetime) else str(value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(text: str) -> str:
    return escape(in_line(redact(text)), quote=True)

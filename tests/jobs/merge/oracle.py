"""A merge of lists of rows by the rules of SQL's MERGE, in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
Condition = Callable[[Row, Row], bool]
# What a clause does with a pair, and when; None in place of a row that is missing.
Clause = tuple[str, Condition, Callable[[Row, Row], Row]]


def merged(
    target: Sequence[Row],
    source: Sequence[Row],
    on: Sequence[str],
    matched: Sequence[Clause] = (),
    inserts: Condition | None = None,
    deletes: Condition | None = None,
) -> tuple[list[Row], dict[str, int]]:
    """The rows of the table after a merge, and how many were updated, inserted and deleted."""
    keys = {key: row for row in source if None not in (key := tuple(row[name] for name in on))}
    found: set[tuple[Any, ...]] = set()
    rows: list[Row] = []
    counts = {"updated": 0, "inserted": 0, "deleted": 0}
    for row in target:
        key = tuple(row[name] for name in on)
        if key not in keys:
            gone = deletes is not None and deletes(row, {})
            counts["deleted"] += gone
            rows += [] if gone else [row]
            continue
        found.add(key)
        action, new = next(((a, f) for a, holds, f in matched if holds(keys[key], row)), ("keep", None))
        if action == "update":
            assert new is not None
            counts["updated"] += 1
            rows.append(new(keys[key], row))
        elif action == "delete":
            counts["deleted"] += 1
        else:
            rows.append(row)
    if inserts is not None:
        columns = list(target[0]) if target else []
        new_rows = [row for row in source if tuple(row[name] for name in on) not in found and inserts(row, {})]
        counts["inserted"] = len(new_rows)
        rows += [{name: row.get(name) for name in columns or row} for row in new_rows]
    return rows, counts

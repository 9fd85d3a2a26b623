"""Few rows here and there of which an n-gram index finds too many: read without a filter, and checked here.

To plan a scan with a filter takes pylance as long as to read the rows. Only a text that must occur is checked here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.format.row_set import RowSet
from pennon.format.snapshot import Snapshot
from pennon.index.conditions import ContainsText
from pennon.query.filter.predicate import Node
from pennon.query.scan.planner import Answer
from pennon.query.scan.request import ScanRequest, is_plain

# More are read by a scan: of all columns at once, or as far as they are taken by address.
MOST_ROWS, MOST_TAKEN = 1 << 10, 1 << 8


def checked_rows(snapshot: Snapshot, node: Node, answer: Answer, request: ScanRequest) -> pa.Table | None:
    """The answer, or None where only a scan with the filter can find it."""
    rows, columns = answer.indexed.rows, request.columns
    if answer.scanned or columns is None or not request.is_plain or not 0 < len(rows) <= MOST_ROWS:
        return None
    if not isinstance(node, ContainsText) or not _is_checkable(node):
        return None
    found = _taken(snapshot, rows, node, columns)
    if found is None:
        read = list(dict.fromkeys([*columns, node.column]))
        with snapshot.reading_rows():
            table = snapshot.scanner(rows.by_fragment, columns=read).to_table()
        found = table.filter(_containing(table, node)).select(list(columns))
    return found.slice(0, request.limit) if request.limit is not None else found


def _taken(snapshot: Snapshot, rows: RowSet, node: ContainsText, columns: Sequence[str]) -> pa.Table | None:
    """The texts of few rows by address, then the numbers of those that contain the text; None if other columns than
    these are wanted."""
    if len(rows) > MOST_TAKEN or not snapshot.has_numbers(columns):
        return None
    addresses = rows.addresses()
    texts = snapshot.take(addresses, [node.column])
    kept = np.flatnonzero(pc.fill_null(_containing(texts, node), False).to_numpy())
    # Of no row, the schema is read from the first.
    found = snapshot.take_numbers(RowSet.of_addresses(addresses[kept] if len(kept) else addresses[:1]), list(columns))
    return None if found is None else found.slice(0, len(kept))


def _containing(table: pa.Table, node: ContainsText) -> pa.ChunkedArray:
    """NULL for NULL, which a filter drops."""
    return pc.match_substring(table[node.column], node.pieces[0])


def _is_checkable(node: ContainsText) -> bool:
    """Whether a row has nothing to do but to contain one text, to the byte."""
    plain = pa.types.is_string(node.type) or pa.types.is_large_string(node.type)
    return plain and node.exact and len(node.pieces) == 1 and not node.any_case and is_plain((node.column,))

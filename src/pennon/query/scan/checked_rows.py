"""Few rows here and there of which an n-gram index finds too many: read without a filter, and checked here.

To plan a scan with a filter takes pylance as long as to read the rows. Only a text that must occur is checked here.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pennon.format.snapshot import Snapshot
from pennon.index.conditions import ContainsText
from pennon.query.filter.predicate import Node
from pennon.query.scan.planner import Answer
from pennon.query.scan.request import ScanRequest, is_plain

MOST_ROWS = 1 << 10


def checked_rows(snapshot: Snapshot, node: Node, answer: Answer, request: ScanRequest) -> pa.Table | None:
    """The answer, or None where only a scan with the filter can find it."""
    rows, columns = answer.indexed.rows, request.columns
    if answer.scanned or columns is None or not request.is_plain or not 0 < len(rows) <= MOST_ROWS:
        return None
    if not isinstance(node, ContainsText) or not _is_checkable(node):
        return None
    read = list(dict.fromkeys([*columns, node.column]))
    with snapshot.reading_rows():
        table = snapshot.scanner(rows.by_fragment, columns=read).to_table()
    # NULL for NULL, which a filter drops.
    found = table.filter(pc.match_substring(table[node.column], node.pieces[0])).select(list(columns))
    return found.slice(0, request.limit) if request.limit is not None else found


def _is_checkable(node: ContainsText) -> bool:
    """Whether a row has nothing to do but to contain one text, to the byte."""
    plain = pa.types.is_string(node.type) or pa.types.is_large_string(node.type)
    return plain and node.exact and len(node.pieces) == 1 and not node.any_case and is_plain((node.column,))

"""The rows of an answer: columns fetched by address and put in the order of the neighbors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.format.addresses import Addresses
from pennon.format.row_ids import ids_of
from pennon.format.row_set import RowSet
from pennon.format.rows import ADDRESS, ROW_ID
from pennon.format.snapshot import Snapshot
from pennon.query.scan.execute import TAKE_LIMIT
from pennon.query.scan.request import METADATA_COLUMNS, ScanRequest, check_request, is_plain
from pennon.query.search.neighbors import Neighbors
from pennon.query.search.request import SearchRequest

DISTANCE = "_distance"
QUERY_INDEX = "query_index"


def check_columns(snapshot: Snapshot, request: SearchRequest) -> None:
    columns = tuple(column for column in request.columns or () if column != DISTANCE)
    check_request(snapshot, ScanRequest(columns=columns))


def to_table(snapshot: Snapshot, request: SearchRequest, found: Neighbors, *, many: bool) -> pa.Table:
    """The rows of all queries one after another, each query's by rank."""
    present = found.found
    computed = {DISTANCE: pa.array(found.distances[present])}
    counts = present.sum(axis=1) if many else None
    return rows_table(snapshot, request, found.addresses[present], computed, counts)


class Returned(Protocol):
    """What a request returns."""

    @property
    def columns(self) -> Sequence[str] | None: ...

    @property
    def with_row_id(self) -> bool: ...

    @property
    def with_row_address(self) -> bool: ...


def rows_table(
    snapshot: Snapshot,
    request: Returned,
    addresses: Addresses,
    computed: Mapping[str, pa.Array],
    counts: npt.NDArray[Any] | None = None,
) -> pa.Table:
    """Stored columns of rows, then what a search computed of them, unless the request names it at another place. With
    `counts`, the rows that each query of many has found, the first column is the number of the query."""
    columns = snapshot.schema.names if request.columns is None else list(request.columns)
    added = [*((name, True) for name in computed), (ROW_ID, request.with_row_id), (ADDRESS, request.with_row_address)]
    columns += [name for name, wanted in added if wanted and name not in columns]
    stored = [name for name in columns if name not in computed and name not in METADATA_COLUMNS]
    values: dict[str, Any] = dict(computed)
    if stored:
        values |= dict(zip(stored, fetch_columns(snapshot, addresses, stored).columns, strict=True))
    if ADDRESS in columns:
        values[ADDRESS] = pa.array(addresses)
    if ROW_ID in columns:
        values[ROW_ID] = pa.array(_row_ids(snapshot, addresses))
    arrays = [values[name] for name in columns]
    if counts is not None:
        numbers = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        arrays, columns = [pa.array(numbers), *arrays], [QUERY_INDEX, *columns]
    return pa.table(arrays, columns)


def fetch_columns(snapshot: Snapshot, addresses: Addresses, columns: list[str]) -> pa.Table:
    """Stored columns of rows in any order, some of them perhaps several times."""
    if 0 < len(addresses) <= TAKE_LIMIT and is_plain(tuple(columns)):
        return snapshot.take_in_order(addresses, columns)
    ascending, places = np.unique(addresses, return_inverse=True)
    rows = RowSet.of_addresses(ascending).by_fragment
    with snapshot.reading_rows():
        table = snapshot.scanner(rows, columns=columns, with_row_address=True).to_table()
    # A scan need not come in the order of addresses.
    order = np.argsort(table[ADDRESS].to_numpy(), kind="stable")
    return table.drop_columns([ADDRESS]).take(pa.array(order[places]))


def _row_ids(snapshot: Snapshot, addresses: Addresses) -> npt.NDArray[np.uint64]:
    if not snapshot.manifest.has_stable_row_ids:
        return addresses
    ascending, places = np.unique(addresses, return_inverse=True)
    return ids_of(ascending, snapshot.row_ids)[places]

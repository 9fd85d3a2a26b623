"""The rows of a column in the form of a bitmap index: values and ids, lists as their elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pennon.format.addresses import Addresses
from pennon.format.row_ids import ids_of
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Snapshot
from pennon.index.bitmap.keyed import Keyed
from pennon.index.value_order import exchange_type
from pennon.jobs.bitmap.plan import BitmapPlan


@dataclass(frozen=True, eq=False)
class Elements:
    """Values of the exchange type with the id of the row of each, and the ids of rows whose list is NULL."""

    values: pa.Array
    ids: Addresses
    list_nulls: Addresses


def read_groups(plan: BitmapPlan, part: ScanSlice) -> Iterator[tuple[Keyed, Addresses]]:
    """The rows of a slice grouped by value, and the ids of NULL lists; a number of rows at once that fits into the
    memory of a task."""
    held: list[Elements] = []
    rows = 0
    for elements in read_elements(plan, part):
        held.append(elements)
        rows += len(elements.values) + len(elements.list_nulls)
        if rows >= plan.run_rows:
            yield _grouped(held)
            held, rows = [], 0
    if held:
        yield _grouped(held)


def read_elements(plan: BitmapPlan, part: ScanSlice) -> Iterator[Elements]:
    snapshot = plan.pin.open()
    for values, addresses in snapshot.scan_column(snapshot.column(plan.column), part):
        yield elements_of(plan.kind.elements(values), values, _ids(snapshot, addresses))


def elements_of(elements: pa.Array, values: pa.Array, ids: Addresses) -> Elements:
    """`elements` are the values themselves, or the elements of all lists one after another."""
    expanded = elements.cast(exchange_type(elements.type))
    if elements is values:
        return Elements(expanded, ids, ids[:0])
    lengths = values.value_lengths().fill_null(0).to_numpy()
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    return Elements(expanded, np.repeat(ids, lengths), ids[is_null])


def _ids(snapshot: Snapshot, addresses: Addresses) -> Addresses:
    return ids_of(addresses, snapshot.row_ids) if snapshot.manifest.has_stable_row_ids else addresses


def _grouped(held: list[Elements]) -> tuple[Keyed, Addresses]:
    values = pa.concat_arrays([each.values for each in held])
    ids = np.concatenate([each.ids for each in held])
    nulls = np.concatenate([each.list_nulls for each in held])
    held.clear()
    return Keyed.of_rows(values, ids), nulls

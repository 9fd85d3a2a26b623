"""The rows of a column as a bitmap index holds them: values and ids, lists as their elements."""

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
    """Values of the exchange type and the id of the row of each; and the ids of rows without any because their list is
    NULL."""

    values: pa.Array
    ids: Addresses
    list_nulls: Addresses


def read_groups(plan: BitmapPlan, part: ScanSlice) -> Iterator[tuple[Keyed, Addresses]]:
    """The rows of a slice grouped by value, and the ids of NULL lists; as many rows at once as a task may hold."""
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
    """`elements` are the values themselves, or those of all lists one after another."""
    spelled = elements.cast(exchange_type(elements.type))
    if elements is values:
        return Elements(spelled, ids, ids[:0])
    lengths = values.value_lengths().fill_null(0).to_numpy()
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    return Elements(spelled, np.repeat(ids, lengths), ids[is_null])


def _ids(snapshot: Snapshot, addresses: Addresses) -> Addresses:
    return ids_of(addresses, snapshot.row_ids) if snapshot.manifest.has_stable_row_ids else addresses


def _grouped(held: list[Elements]) -> tuple[Keyed, Addresses]:
    values = pa.concat_arrays([each.values for each in held])
    ids = np.concatenate([each.ids for each in held])
    nulls = np.concatenate([each.list_nulls for each in held])
    held.clear()
    return Keyed.of_rows(values, ids), nulls

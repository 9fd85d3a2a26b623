"""A run on its way through the exchange, in two thirds of the bytes or less.

Rows that keep the order of the scan have ids that ascend slowly. The low 16 bits of an id are a column `low`; the rest,
which seldom changes from one row to the next, is a column `high`, encoded by a dictionary. Strings have 32-bit offsets.
A batch of other ids, or of longer strings, is sent as it is. Batches may be cut anywhere.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pennon.format.addresses import Addresses
from pennon.index.arrays import numbers_of
from pennon.index.btree.pages import Run
from pennon.index.value_order import byte_layout, exchange_type, is_offset_type

LOW_BITS = 16
# The dictionary is repeated in each block that a batch is cut into.
ROWS_PER_HIGH = 256
SHORT = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def pack_run(run: Run) -> pa.RecordBatch:
    """The rows of a run as they are sent."""
    batch = run.to_batch()
    values, ids = _short(batch.column(0)), _split(numbers_of(batch.column(1)))
    if ids is None:
        return pa.record_batch([values, batch.column(1)], names=["values", "ids"])
    return pa.record_batch([values, *ids], names=["values", "low", "high"])


def unpack_run(batch: pa.RecordBatch) -> Run:
    """The run of a received batch."""
    values = batch.column(0)
    values = values.cast(exchange_type(values.type))
    if batch.num_columns == 2:
        ids = batch.column(1)
    else:
        high = batch.column(2)
        joined = np.take(numbers_of(high.dictionary), numbers_of(high.indices))
        joined |= numbers_of(batch.column(1))
        ids = pa.array(joined)
    return Run.from_batch(pa.record_batch([values, ids], names=["values", "ids"]))


def unpacked_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of a received batch once it is unpacked."""
    values, rest = batch.column(0), batch.columns[1:]
    narrow = 0 if is_offset_type(values.type) or exchange_type(values.type) == values.type else 4
    kept = sum(column.nbytes for column in rest)
    return batch.nbytes - kept + (8 + narrow) * batch.num_rows


def _short(values: pa.Array) -> pa.Array:
    short = SHORT.get(values.type)
    if short is None or not len(values) or int(byte_layout(values)[1][-1]) >= 1 << 31:
        return values
    return values.cast(short)


def _split(ids: Addresses) -> list[pa.Array] | None:
    """The low and the high bits; None if the high ones change often."""
    rows = len(ids)
    high = ids >> np.uint64(LOW_BITS)
    edges = np.flatnonzero(high[1:] != high[:-1]) + 1
    if (len(edges) + 1) * ROWS_PER_HIGH > rows:
        return None
    starts = np.concatenate([[0], edges])
    numbers = np.arange(len(starts), dtype=np.int8 if len(starts) <= 1 << 7 else np.int32)
    places = np.repeat(numbers, np.diff(starts, append=rows))
    dictionary = pa.array(high[starts] << np.uint64(LOW_BITS))
    return [pa.array(ids.astype(np.uint16)), pa.DictionaryArray.from_arrays(pa.array(places), dictionary)]

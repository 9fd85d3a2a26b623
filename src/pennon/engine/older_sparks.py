"""What Spark before 4.1 lacks, from what it has: an exchange by destination, rows collected as an Arrow table.

Spark 4.1 sends a row to the partition that a column names (`DataFrame.repartitionById`). Older versions send a row to
the partition `pmod(hash(key), n)`, where the hash is Murmur3 with seed 42. For every partition there are integers that
hash to it, so a row is sent to its destination by the smallest of those as its key. `repartition(n, key)` with a number
is never coalesced by adaptive execution, and the receivers check the destination of every block.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Spark's oldest version that has each of these.
REPARTITION_BY_ID = (4, 1)
BYTES_PER_BATCH = (4, 1)
THREADS_OF_SESSIONS = (4, 0)

# A batch is closed by the number of its rows only, so this many blocks of 2 MiB are in memory at once.
BLOCKS_PER_BATCH = "4"
RECORDS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"

# Murmur3 over one 32-bit number, as Spark's HashPartitioning computes it.
SEED = 42
BYTES_HASHED = 4


def version_of(text: str) -> tuple[int, int]:
    """Major and minor: of "4.0.1", of "3.5.2-amzn-1"."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def session_for_blocks(spark: SparkSession) -> SparkSession:
    """A session next to a classic one of Spark 3.5, with the same context and separate settings.

    There, a batch that goes to Python is not limited in bytes, and holds 10,000 rows unless set otherwise: 20 GB of
    blocks. The user's session keeps its setting.
    """
    own = spark.newSession()
    own.conf.set(RECORDS_SETTING, BLOCKS_PER_BATCH)
    return own


def repartition_by_key(blocks: DataFrame, destinations: int) -> DataFrame:
    """Every row in the partition with the number of its destination."""
    from pyspark.sql.functions import expr  # noqa: PLC0415  slow to import

    keys = ", ".join(map(str, keys_of_partitions(destinations).tolist()))
    return blocks.repartition(destinations, expr(f"get(array({keys}), destination)"))


def collect_table(frame: DataFrame) -> pa.Table:
    """All rows of a frame of numbers, booleans and binaries."""
    rows = frame.collect()
    columns = {name: [row[name] for row in rows] for name in frame.columns}
    # PySpark gives binaries as bytearrays.
    return pa.table({name: [_plain(value) for value in values] for name, values in columns.items()})


@cache
def keys_of_partitions(count: int) -> NDArray[np.int32]:
    """For every one of `count` partitions the smallest number from 0 that Spark's hash sends there."""
    keys = np.full(count, -1, np.int32)
    missing, start = count, 0
    while missing:
        # With k times as many candidates as partitions, a share of about exp(-k) stays without a key.
        candidates = np.arange(start, start + 4 * count + 1024, dtype=np.int32)
        partitions, first = np.unique(murmur3(candidates).astype(np.int64) % count, return_index=True)
        new = keys[partitions] < 0
        keys[partitions[new]] = candidates[first[new]]
        missing -= int(np.count_nonzero(new))
        start += len(candidates)
    keys.flags.writeable = False
    return keys


def murmur3(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Spark's `hash` of each number."""
    mixed = numbers.astype(np.uint32) * np.uint32(0xCC9E2D51)
    mixed = _rotated(mixed, 15) * np.uint32(0x1B873593)
    hashed = _rotated(mixed ^ np.uint32(SEED), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashed ^= np.uint32(BYTES_HASHED)
    hashed = (hashed ^ (hashed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (hashed ^ (hashed >> np.uint32(16))).view(np.int32)


def _rotated(numbers: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, bytearray) else value

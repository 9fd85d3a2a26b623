"""Tables to measure on, made once and kept in a temporary folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import DATA, fresh

CHUNK = 1_000_000
FRAGMENTS = 12


def int64_table(rows: int) -> str:
    """Random 64-bit integers in 12 fragments."""
    return write_once(f"int64-{rows}", pa.schema([("id", pa.int64()), ("v", pa.int32())]), _integers, rows)


def string_table(rows: int) -> str:
    """Random strings of 16 hexadecimal digits in 12 fragments."""
    return write_once(f"strings-{rows}", pa.schema([("s", pa.string())]), _strings, rows)


def lineitem_table() -> str:
    """TPC-H lineitem at scale factor 1: 6,001,215 rows."""
    uri = DATA / "lineitem.lance"
    if not uri.exists():
        generated = DATA / "tpch"
        tool = Path(sys.executable).with_name("tpchgen-cli")
        command = [str(tool), "parquet", "-s", "1", "--tables=lineitem", f"--output-dir={generated}"]
        subprocess.run(command, check=True, capture_output=True)
        source = pq.ParquetFile(generated / "lineitem.parquet")
        reader = pa.RecordBatchReader.from_batches(source.schema_arrow, source.iter_batches(131_072))
        lance.write_dataset(reader, str(uri), max_rows_per_file=500_000)
    return str(uri)


def write_once(
    name: str,
    schema: pa.Schema,
    make: Callable[[int], Iterator[pa.RecordBatch]],
    rows: int,
    fragments: int = FRAGMENTS,
) -> str:
    uri = DATA / f"{name}.lance"
    if not uri.exists():
        # Under its name only when it is whole.
        part = fresh(f"{name}.part")
        reader = pa.RecordBatchReader.from_batches(schema, make(rows))
        lance.write_dataset(reader, str(part), max_rows_per_file=-(-rows // fragments))
        part.rename(uri)
    return str(uri)


def _integers(rows: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(1)
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        yield pa.record_batch(
            {
                "id": pa.array(rng.integers(-(2**63), 2**63 - 1, count)),
                "v": pa.array(rng.integers(0, 1000, count).astype(np.int32)),
            }
        )


def _strings(rows: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(2)
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)[rng.integers(0, 16, (count, 16))]
        offsets = pa.py_buffer(np.arange(0, 16 * (count + 1), 16, dtype=np.int32))
        yield pa.record_batch({"s": pa.StringArray.from_buffers(count, offsets, pa.py_buffer(digits.tobytes()))})

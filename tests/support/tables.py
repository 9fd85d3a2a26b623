"""Tables the tests are about: every type a B-tree takes, with NULLs, runs of duplicates and hostile values."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from pennon.testing.oracles import full_scan, full_scans
from pennon.testing.oracles import pylance_answer as stock_answer

__all__ = [
    "FILTERS",
    "MIDNIGHT",
    "MIXED_FILTERS",
    "NEGATIVE_NAN",
    "UNSERVED",
    "every_type",
    "full_scan",
    "full_scans",
    "stock_answer",
    "write_every_type",
]

NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0000))[0]

MIDNIGHT = dt.datetime(2026, 1, 1)  # noqa: DTZ001 - Lance timestamps without a zone are naive too
_FLOATS = [float("nan"), NEGATIVE_NAN, float("inf"), float("-inf"), -0.0, 0.0, 1.5, -1.5, 3.0, -3.0]


def every_type(rows: int, seed: int = 0, start: int = 0) -> pa.Table:
    """One column per type, about one value in twelve NULL, few distinct values so that they straddle pages."""
    rng = np.random.default_rng(seed)
    draw = rng.integers(0, 120, rows)
    gone = rng.random(rows) < 0.08

    def column(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
        return pa.array([None if g else v for v, g in zip(values, gone, strict=True)], type_)

    n = [int(v) for v in draw]
    floats = [_FLOATS[v] if v < len(_FLOATS) else float(v) - 60 for v in n]
    instants = [MIDNIGHT + dt.timedelta(hours=v) for v in n]
    days = [dt.date(2026, 1, 1) + dt.timedelta(days=v) for v in n]
    texts = [f"k{v:03d}" if v % 3 else f"é{v}%_'" for v in n]
    raw = [bytes([v % 7, v, 255 - v]) for v in n]
    inner = pa.array([{"leaf": v} if v % 11 else None for v in n], pa.struct([("leaf", pa.int64())]))
    return pa.table(
        {
            "id": pa.array(np.arange(start, start + rows)),
            "i8": column([v - 60 for v in n], pa.int8()),
            "i16": column([v * 200 for v in n], pa.int16()),
            "i32": column([v * 10_000_000 for v in n], pa.int32()),
            "i64": column([(v - 60) * 10**17 for v in n], pa.int64()),
            "u8": column(n, pa.uint8()),
            "u16": column([v * 500 for v in n], pa.uint16()),
            "u32": column([v * 30_000_000 for v in n], pa.uint32()),
            "u64": column([v * 10**17 for v in n], pa.uint64()),
            "f16": column([np.float16(f) for f in floats], pa.float16()),
            "f32": column(floats, pa.float32()),
            "f64": column(floats, pa.float64()),
            "flag": column([bool(v % 2) for v in n], pa.bool_()),
            "day": column(days, pa.date32()),
            "day64": column(days, pa.date64()),
            "ts_s": column(instants, pa.timestamp("s")),
            "ts_us": column(instants, pa.timestamp("us")),
            "ts_tz": column(instants, pa.timestamp("us", "UTC")),
            "ts_ns": column(instants, pa.timestamp("ns")),
            "time": column([dt.time(v % 24, v % 60) for v in n], pa.time64("us")),
            "span": column([dt.timedelta(seconds=v) for v in n], pa.duration("us")),
            "money": column([Decimal(v) / 10 for v in n], pa.decimal128(10, 1)),
            "wide": column([Decimal(v - 60) * 10**25 for v in n], pa.decimal128(38, 2)),
            "text": column(texts, pa.string()),
            "large_text": column(texts, pa.large_string()),
            "raw": column(raw, pa.binary()),
            "large_raw": column(raw, pa.large_binary()),
            "key": column(raw, pa.binary(3)),
            "nothing": pa.nulls(rows, pa.int32()),
            "inner": inner,
        }
    )


# Filters per column that an index must answer like a scan, incl. absent values, reversed bounds and negations.
FILTERS: dict[str, list[str]] = {
    "i8": ["i8 = 0", "i8 < -50", "i8 >= 127", "i8 in (-60, 0, 59)"],
    "i16": ["i16 = 200", "i16 > 20000", "i16 between 400 and 1000"],
    "i32": ["i32 = 10000000", "i32 <= 500000000", "not (i32 < 900000000)"],
    "i64": [
        "i64 = 0",
        "i64 = 7",
        "i64 < 0",
        "i64 <= 0",
        "i64 > 0",
        "i64 >= 5900000000000000000",
        "i64 between -100000000000000000 and 100000000000000000",
        "i64 between 5 and -5",
        "i64 in (0, 100000000000000000, 9, 5900000000000000000)",
        "i64 not in (0, 100000000000000000)",
        "i64 in (0, null)",
        "i64 not in (0, null)",
        "i64 != 0",
        "not (i64 = 0)",
        "not (i64 > 0 and i64 < 900000000000000000)",
        "i64 is null",
        "i64 is not null",
        "i64 is null or i64 = 0",
        "i64 > 0 or i64 < -5000000000000000000",
        "not (i64 is null)",
    ],
    "u8": ["u8 = 5", "u8 > 100", "u8 is null"],
    "u16": ["u16 = 500", "u16 < 5000"],
    "u32": ["u32 = 3000000000", "u32 >= 3000000000"],
    "u64": ["u64 = 11000000000000000000", "u64 > 9223372036854775807", "u64 is not null"],
    "f16": ["f16 is null", "f16 is not null", "f16 = 1.5", "f16 < 0"],
    "f32": ["f32 = 1.5", "f32 < 0", "f32 >= 0", "f32 is null", "f32 != 1.5"],
    "f64": [
        "f64 = 0.0",
        "f64 = -0.0",
        "f64 < 0.0",
        "f64 <= -0.0",
        "f64 > 0.0",
        "f64 >= 0.0",
        "f64 < -50",
        "f64 > 40",
        "f64 in (0.0, 1.5, 3.0)",
        "f64 not in (0.0)",
        "f64 = cast('nan' as double)",
        "f64 > cast('inf' as double)",
        "f64 < cast('-inf' as double)",
        "not (f64 > 0)",
        "f64 is null",
        "f64 is not null",
    ],
    "flag": ["flag", "not flag", "flag = true", "flag != true", "flag is null", "flag is not true", "flag is false"],
    "day": ["day = date '2026-01-05'", "day < date '2026-02-01'", "day >= date '2026-04-01'", "day is null"],
    "day64": ["day64 is null", "day64 is not null"],
    "ts_s": ["ts_s = timestamp '2026-01-02 00:00:00'", "ts_s is null"],
    "ts_us": [
        "ts_us = timestamp '2026-01-02 00:00:00'",
        "ts_us < timestamp '2026-01-02 03:00:00'",
        "ts_us between timestamp '2026-01-02 00:00:00' and timestamp '2026-01-03 00:00:00'",
        "ts_us is not null",
    ],
    "ts_tz": ["ts_tz is null", "ts_tz >= timestamp '2026-01-02 00:00:00'"],
    "ts_ns": ["ts_ns = timestamp '2026-01-02 00:00:00'", "ts_ns > timestamp '2026-01-04 00:00:00'"],
    "time": ["time is null", "time is not null"],
    "span": ["span is null", "span is not null"],
    "money": [
        "money = cast(1.0 as decimal(10,1))",
        "money < cast(3.3 as decimal(10,1))",
        "money >= cast(10.5 as decimal(10,1))",
        "money is null",
    ],
    "wide": ["wide is null", "wide is not null"],
    "text": [
        "text = 'k001'",
        "text = 'é9%_'''",
        "text < 'k05'",
        "text >= 'é'",
        "text like 'k1%'",
        "text like 'k01_'",
        "text like '%1'",
        "starts_with(text, 'é9')",
        "text in ('k001', 'k002', 'zz')",
        "text not in ('k001')",
        "text != 'k001'",
        "text between 'k01' and 'k05'",
        "not (text like 'k%')",
        "text is null",
        "text like 'k1%' or text is null",
    ],
    "large_text": ["large_text = 'k001'", "large_text like 'k1%'", "large_text is null"],
    "raw": ["raw = X'0101FE'", "raw < X'03'", "raw >= X'06'", "raw is null"],
    "large_raw": ["large_raw = X'0101FE'", "large_raw is not null"],
    "key": ["key is null", "key is not null"],
    "nothing": ["nothing is null", "nothing is not null", "nothing = 5"],
    "inner.leaf": ["inner.leaf = 5", "inner.leaf is null", "inner.leaf < 20", "inner.leaf != 5"],
}

# What stock answers by a scan even on its own index.
UNSERVED = {"i64 in (0, null)", "flag is not true", "text like '%1'", "not (text like 'k%')"}

# Conditions over several columns, and ones no index answers.
MIXED_FILTERS = [
    "i64 > 0 and text like 'k1%'",
    "i64 > 0 or text = 'k001'",
    "not (i64 > 0 or text is null)",
    "i64 > 0 and f64 < 10 and flag",
    "(i64 = 0 or f64 = 1.5) and text is not null",
    "i64 % 2 = 0 and text > 'k05'",
    "i64 % 2 = 0 or text > 'k05'",
    "id < 40 and i64 is not null",
    "i64 = 0 and i64 = 100000000000000000",
    "text like '%1%' and i64 between -500000000000000000 and 500000000000000000",
]


def write_every_type(path: Path, rows: int = 3000, rows_per_file: int = 600, seed: int = 0, **options: Any) -> str:
    """A table of several fragments with deletions in some and one deleted whole."""
    uri = str(path)
    dataset = lance.write_dataset(every_type(rows, seed), uri, max_rows_per_file=rows_per_file, **options)
    dataset.delete("id % 13 = 5")
    dataset.delete(f"id >= {rows_per_file} and id < {2 * rows_per_file}")
    return uri

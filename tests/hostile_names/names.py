"""Names, values and places that mean something to SQL, HTML, shells, terminals, formats or file systems."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

NAMES = {
    "quote": "it's",
    "double quote": 'say "hi"',
    "backslash": "back\\slash\\",
    "brackets": "x[0]",
    "percent": "%s%n 100%",
    "newline": "new\nline\tof 3 rows",
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "sql": "'; DROP TABLE t; --",
    "shell": "$(rm -rf x) `id`".replace("`", ""),
    "format": "{x} {0} %(x)s",
    "markup": "[red]mark[/red] :smile:",
    "escape": "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "latin control": "\x9b31mred",
    "carriage": "over\rwritten",
    "right to left": "\u202egnirts\u202c",
    "zero width": "zero\u200bwidth",
    "composed": "caf\u00e9",
    "decomposed": "cafe\u0301",
    "emoji": "\U0001f600",
    "long": "n" * 3000,
    "keyword": "select",
    "null": "null",
    "dash": "--filter",
    "slash": "a/b",
    "comma": "a,b",
    "spaces": " both ",
    "alias": "before",
    "hash": "#?&=",
}
# Those that a build and a manifest might stumble over; the others are of one kind with them.
INDEXED = (
    "quote",
    "backslash",
    "newline",
    "html",
    "sql",
    "escape",
    "right to left",
    "decomposed",
    "emoji",
    "long",
    "dash",
    "alias",
)
# What raw output must not hold: controls but newlines, and what turns the direction of text.
STEERING = [chr(c) for c in (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x202E, 0x202C, 0x200B)]
VALUES = [
    "plain", "it's", 'say "hi"', "''", "back\\slash", "'; DROP TABLE t; --", "' OR '1'='1", "100%", "a_b", "new\nline",
    "\x1b[31mred", "<b>&amp;", "caf\u00e9", "cafe\u0301", "\U0001f600", "\u202eabc", "`tick`", "$(x)", "nul\0l", "",
]  # fmt: skip
PLACES = [
    "with space",
    "it's",
    'say "hi"',
    "caf\u00e9 \u65e5",
    "per%20cent",
    "ha#sh",
    "que?stion=1",
    "<b>&",
    "$(x)",
    "[red]",
]
ROWS = 200


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def vectors(rows: int = ROWS, seed: int = 0) -> pa.FixedSizeListArray:
    values = np.random.default_rng(seed).random(8 * rows, dtype=np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(values), 8)


def write(path: Path, columns: dict[str, object], rows_per_file: int = 60) -> str:
    lance.write_dataset(pa.table({"id": range(ROWS), **columns}), str(path), max_rows_per_file=rows_per_file)
    return str(path)


def oracle(uri: str, filter: str) -> list[int]:
    """A full scan, by stock pylance."""
    scanner = lance.dataset(uri).scanner(filter=filter, columns=["id"], use_scalar_index=False)
    return sorted(scanner.to_table()["id"].to_pylist())

"""The query vector of `pennon search`: written out, in a file, or the vector of a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pennon.errors import InvalidArgument
from pennon.table import Table

REMEDY = "Give --vector '[0.1, 0.2, ...]', --vector @FILE with JSON or .npy, or --like FILTER"


def query_vector(table: Table, column: str, vector: str | None, like: str | None) -> Any:
    if (vector is None) == (like is None):
        raise InvalidArgument("a search needs one query", REMEDY)
    if vector is not None:
        return _read(vector)
    rows = table.scan(like, [column], limit=1)
    if not rows.num_rows or rows.column(0)[0].as_py() is None:
        raise InvalidArgument(f"--like {like!r} selects no row with a vector in {column!r}", REMEDY)
    return rows.column(0)[0]


def _read(text: str) -> Any:
    try:
        if not text.startswith("@"):
            return json.loads(text)
        path = Path(text[1:])
        return np.load(path, allow_pickle=False) if path.suffix == ".npy" else json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"the query vector cannot be read: {error}", REMEDY) from error

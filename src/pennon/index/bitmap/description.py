"""A segment of a bitmap index for the report."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pennon.index.bitmap.files import BitmapFile
from pennon.index.bitmap.row_map import Entries, listed
from pennon.index.description import MAX_RANKED, Chart, Description, ranking
from pennon.wording import percent

# The maps of a larger file are not read for a report.
MEASURED_BYTES = 8 << 20
LONGEST_NAME = 40


def describe_bitmaps(file: BitmapFile) -> Description:
    """How many values there are, and those with most rows."""
    pages = len(file.pages.stops)
    measures: dict[str, int | float] = {"values": file.rows, "pages": pages}
    if file.pages.ids is not None:
        measures["rows"] = int(file.pages.ids.sum())
    if not file.rows:
        return Description((), measures, Chart("Values", "Values", "There are none: no row had to be indexed."))
    if file.nbytes > MEASURED_BYTES:
        return Description((), measures, Chart("Values", "Values", "Rows by value are not shown: the file is large."))
    counts = _counts(file)
    if counts is None:
        return Description((), measures, Chart("Values", "Values", ""))
    keys = file.read_keys()
    measures["rows"] = total = int(counts.sum())
    largest = np.argsort(counts, kind="stable")[::-1][:MAX_RANKED].tolist()
    named = [(_name(keys[at]), int(counts[at])) for at in largest]
    text = f"The most frequent has {percent(int(counts.max()) / max(total, 1))} of them."
    chart = Chart("Values with most rows", "Values by rows", text, ranking(named, "row"), ranked=True)
    return Description((), measures, chart)


def _counts(file: BitmapFile) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """Rows by key; None where a map names whole fragments, whose rows it does not list."""
    found: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    for page in range(len(file.pages.stops)):
        maps = file.read_page(page)
        if Entries.of(maps, file.where).has_whole_fragments:
            return None
        found.append(listed(maps, file.where).counts()[:, 0])
    return np.concatenate(found)


def _name(key: pa.Scalar) -> str:
    text = str(key.as_py()) if key.is_valid else "NULL"
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"

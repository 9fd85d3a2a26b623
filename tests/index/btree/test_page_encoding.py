"""Page files of values that repeat stay small; those of other values are the same size as without advice."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from pennon.format.store import Location, open_store
from pennon.index.btree import pages
from pennon.index.btree.pages import Run, write_pages

ROWS = 100_000
VALUES = {
    "distinct": pa.array(np.arange(ROWS) << 33),
    "repeated": pa.array(np.arange(ROWS) // 5000 << 33),
    "text": pa.array(np.arange(ROWS) + ROWS).cast(pa.large_string()),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("guarded", [False, True])
def test_advice_to_the_encoder_changes_no_size(name: str, guarded: bool, tmp_path: Path) -> None:
    values, ids = VALUES[name], np.random.default_rng(1).permutation(ROWS).astype(np.uint64)
    run = Run(ids[:0], values, ids)
    cuts = [0, 1, ROWS // 2, ROWS] if guarded else [0, ROWS]
    store, sizes = open_store(Location.of(str(tmp_path))), list[int]()
    for advice in (pages.NOT_REPEATED, None):
        with patch.object(pages, "NOT_REPEATED", advice):
            runs = (run.slice(a, b) for a, b in pairwise(cuts))
            stats = write_pages(store, "d", "pages.lance", 0, runs, values.type, 4096, "2.1")
        sizes.append(stats.file.size_bytes)
        found = LanceFileReader(str(tmp_path / "d" / "pages.lance")).read_all().to_table()
        assert found["values"].combine_chunks().equals(values)
        assert np.array_equal(found["ids"].to_numpy(), ids)
    assert sizes[0] == pytest.approx(sizes[1], rel=0.01)

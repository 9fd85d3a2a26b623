"""NULLs that pylance's optimize keeps in an R-tree from before a change in place, next to the new boxes."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.testing.cases import points
from pennon.testing.in_place import change_in_place
from tests.support.old_values import HEALERS, check_answers, check_healing
from tests.support.tables import full_scan, stock_answer

pytestmark = pytest.mark.usefixtures("process_engine")

SQUARE = "st_geomfromtext('POLYGON((0 0, 6 0, 6 6, 0 6, 0 0))')"
ASKED = ["p is null", "p is not null", f"st_intersects(p, {SQUARE})", f"st_intersects(p, {SQUARE}) or p is null"]


def old_and_new_nulls(path: Path, *, compacted: bool, merged: int | None) -> str:
    """NULLs become points and the reverse, and pylance covers them."""
    uri, column = str(path), points("p")
    values = column.values(np.random.default_rng(3), 100)
    lance.write_dataset(pa.table({"id": np.arange(100), "p": values}), uri, max_rows_per_file=25)
    pennon.open(uri).create_index("p", "RTREE")
    known = values.filter(values.is_valid())
    for fragment in lance.dataset(uri).get_fragments()[2:]:
        old = fragment.scanner(columns=["p"], with_row_id=True).to_table()
        is_null = old["p"].combine_chunks().is_null().to_numpy(zero_copy_only=False)
        chosen = np.sort(np.concatenate([np.flatnonzero(is_null), np.flatnonzero(~is_null)[:3]]))
        assert is_null.any()
        new = pa.concat_arrays([known[:1] if is_null[at] else pa.nulls(1, known.type) for at in chosen])
        rows = old["_rowid"].combine_chunks().take(pa.array(chosen))
        change_in_place(uri, fragment, pa.table({"_rowid": rows, "p": new}), "update")
    if compacted:
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=60, defer_index_remap=True)
    options = {} if merged is None else {"num_indices_to_merge": merged}
    lance.dataset(uri).optimize.optimize_indices(**options)
    return uri


@pytest.mark.parametrize("healer", HEALERS)
@pytest.mark.parametrize("merged", [None, 0], ids=["merged", "delta"])
@pytest.mark.parametrize("compacted", [False, True], ids=["in place", "moved"])
def test_old_nulls_are_not_believed_and_are_removed(
    tmp_path: Path, compacted: bool, merged: int | None, healer: str
) -> None:
    uri = old_and_new_nulls(tmp_path / "t.lance", compacted=compacted, merged=merged)
    check_healing(uri, ASKED, healer)
    assert "NULLs from before" not in str(pennon.open(uri).plan_optimize())


def test_a_remapped_segment_of_pylance_is_still_not_believed(tmp_path: Path) -> None:
    """A compaction by Pennon keeps the old NULLs, which the next optimize removes."""
    uri = old_and_new_nulls(tmp_path / "t.lance", compacted=False, merged=None)
    pennon.open(uri).compact(target_rows_per_fragment=60)
    check_answers(uri, ASKED)
    assert "NULLs from before a change in place" in str(pennon.open(uri).plan_optimize())
    pennon.open(uri).optimize_indices()
    for filter in ASKED:
        assert stock_answer(uri, filter)[0] == full_scan(uri, filter), filter

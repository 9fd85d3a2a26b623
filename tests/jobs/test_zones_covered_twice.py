"""Zones that pylance's optimize keeps from before a change in place, next to those of the new values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.testing.in_place import change_in_place
from tests.support.cases import covering
from tests.support.old_values import HEALERS, check_healing

pytestmark = pytest.mark.usefixtures("process_engine")

ASKED = ["k = 7", "k is null", "k is not null", "k = 7 or k is null", "k < 5"]
OPTIONS: dict[str, dict[str, Any]] = {
    "ZONEMAP": {"rows_per_zone": 1},
    "BLOOMFILTER": {"number_of_items": 1, "probability": 0.01},
}


def old_and_new_zones(path: Path, kind: str, *, compacted: bool = True, merged: int | None = None) -> str:
    """NULLs become values and the reverse, the rows move by a deferred compaction or stay, and pylance covers them."""
    uri, ids = str(path), np.arange(100)
    table = pa.table({"id": ids, "k": pa.array(ids % 10, mask=ids % 4 == 0)})
    lance.write_dataset(table, uri, max_rows_per_file=25)
    pennon.open(uri).create_index("k", kind, **OPTIONS[kind])
    for fragment in lance.dataset(uri).get_fragments()[2:]:
        changed = fragment.scanner(columns=["k"], with_row_id=True).to_table().slice(0, 6)
        values = pa.array([7 if value is None else None for value in changed["k"].to_pylist()], pa.int64())
        change_in_place(uri, fragment, pa.table({"_rowid": changed["_rowid"], "k": values}), "update")
    if compacted:
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=60, defer_index_remap=True)
    options = {} if merged is None else {"num_indices_to_merge": merged}
    lance.dataset(uri).optimize.optimize_indices(**options)
    return uri


@pytest.mark.parametrize(("kind", "healer"), covering(OPTIONS, HEALERS, strength=1))
def test_old_zones_are_not_believed_and_are_removed(tmp_path: Path, kind: str, healer: str) -> None:
    uri = old_and_new_zones(tmp_path / "t.lance", kind)
    assert "zones from before a compaction" in str(pennon.open(uri).plan_optimize())
    [finding] = pennon.open(uri).audit().errors
    assert "with another value" in finding.problem
    check_healing(uri, ["k is null", *ASKED], healer)
    assert "nothing to do" in str(pennon.open(uri).plan_optimize())


@pytest.mark.parametrize(("kind", "merged", "healer"), covering(OPTIONS, [None, 0, 9], HEALERS, strength=2))
def test_old_nulls_of_rows_that_stay_where_they_are(tmp_path: Path, kind: str, merged: int | None, healer: str) -> None:
    """pylance joins old and new NULLs of a fragment, or has both in two segments, and answers by both."""
    uri = old_and_new_zones(tmp_path / "t.lance", kind, compacted=False, merged=merged)
    check_healing(uri, ["k is null", *ASKED], healer)

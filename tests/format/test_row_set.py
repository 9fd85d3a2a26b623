"""Sets of rows by fragment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from pennon.format.row_set import RowSet

SETS = st.dictionaries(st.integers(0, 9), st.sets(st.integers(0, 200_000), min_size=1), max_size=4)


@given(SETS, st.integers(0, 30))
def test_the_first_rows(rows: dict[int, set[int]], count: int) -> None:
    found = RowSet({fragment: BitMap(offsets) for fragment, offsets in rows.items()})
    assert found.first(count).addresses().tolist() == found.addresses()[:count].tolist()


def test_the_first_of_a_billion_rows_take_no_memory_for_the_rest() -> None:
    found = RowSet({fragment: BitMap(range(1 << 28)) for fragment in range(4)})
    assert found.first(3).addresses().tolist() == [0, 1, 2]
    assert len(found.first((1 << 28) + 1)) == (1 << 28) + 1
    assert found.first((1 << 28) + 1).nbytes < 1 << 20

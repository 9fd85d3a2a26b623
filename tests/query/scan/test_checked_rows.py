"""Few rows that an n-gram index leaves are checked here. The oracle is a scan without an index."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.query.scan import checked_rows, execute

FRAGMENTS, ROWS = 10, 60
TEXTS = ["abcdef", "ABCDEF", "fedabc", "ab", None, "a%bcd", "x\nabc\ny", "äbcö abc", "bcd", ""]
# Whether rows are checked here.
FILTERS = {
    "t LIKE '%abc%'": True,
    "t LIKE '%%bcd%%'": True,
    "contains(t, 'abc')": True,
    "contains(t, 'bcö')": True,
    "t LIKE '%a\\%b%'": False,
    "t LIKE '%a_c%d%'": False,
    "t ILIKE '%abc%'": False,
    "t LIKE '%abc%' AND id % 2 = 0": False,
    "t NOT LIKE '%abc%'": False,
}


@pytest.fixture(params=[False, True], ids=["plain", "stable"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    numbers = np.arange(FRAGMENTS * ROWS)
    rows = {"id": pa.array(numbers), "t": pa.array([TEXTS[n % 7 * n % len(TEXTS)] for n in numbers.tolist()])}
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table(rows), path, max_rows_per_file=ROWS, enable_stable_row_ids=request.param)
    table = pennon.open(path, engine="local")
    table.create_index("t", "NGRAM")
    table.create_index("id")
    lance.dataset(path).delete("id % 13 = 4")
    return path


def expected(uri: str, filter: str, columns: list[str]) -> pa.Table:
    return lance.dataset(uri).scanner(filter=filter, columns=columns, use_scalar_index=False).to_table()


@pytest.mark.parametrize("filter", FILTERS)
def test_answers_are_those_of_a_scan(filter: str, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[bool] = []
    plain = checked_rows.checked_rows

    def counted(*given: object) -> pa.Table | None:
        found = plain(*given)  # pyright: ignore[reportArgumentType]
        checked.append(found is not None)
        return found

    monkeypatch.setattr(execute, "checked_rows", counted)
    table = pennon.open(uri)
    for columns in (["id"], ["t"], ["t", "id"]):
        wanted = expected(uri, filter, columns)
        assert wanted.num_rows
        assert table.scan(filter, columns) == wanted
        assert table.scan(filter, columns, limit=3) == wanted.slice(0, 3)
    assert any(checked) == FILTERS[filter]


@pytest.mark.parametrize("fragments", [1, execute.TAKE_FRAGMENTS, FRAGMENTS])
def test_few_rows_of_few_and_of_many_fragments(fragments: int, uri: str) -> None:
    values = ", ".join(str(number * ROWS + 5) for number in range(fragments))
    for columns in (["t"], ["t", "id"]):
        filter = f"id IN ({values})"
        assert pennon.open(uri).scan(filter, columns) == expected(uri, filter, columns)


def test_rows_that_contain_all_parts_but_not_the_text(uri: str) -> None:
    lance.write_dataset(pa.table({"id": [1000], "t": ["uvwx vwxy"]}), uri, mode="append")
    table = pennon.open(uri, engine="local")
    table.optimize_indices()
    for columns in (["id"], ["t"]):
        assert table.explain("contains(t, 'uvwxy')", analyze=True).rows_from_index == 1
        assert table.scan("contains(t, 'uvwxy')", columns) == expected(uri, "contains(t, 'uvwxy')", columns)
        assert table.scan("contains(t, 'uvwx')", columns) == expected(uri, "contains(t, 'uvwx')", columns)

"""Values and places are data: what stands in them changes no answer."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import pennon
from tests.hostile_names.names import PLACES, ROWS, VALUES, literal, oracle, write


@pytest.mark.usefixtures("engine")
def test_an_index_of_strings_answers_as_a_scan(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", {"s": [VALUES[i % len(VALUES)] for i in range(ROWS)]})
    table = pennon.open(uri)
    table.create_index("s", batch_size=16)
    filters = [f"s = {literal(value)}" for value in VALUES]
    filters += [f"s != {literal(value)}" for value in VALUES[:4]]
    filters += [f"s in ({', '.join(map(literal, VALUES[:9]))})", f"s > {literal(VALUES[10])}", "s like '''%'"]
    for filter in filters:
        expected = oracle(uri, filter)
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        assert table.count(filter) == len(expected), filter
        lines = str(table.explain(filter)).splitlines()
        assert all(line.startswith(("scan of", "  ")) for line in lines), lines
        assert "\x1b" not in str(table.explain(filter))


@pytest.mark.parametrize("place", PLACES)
def test_a_table_is_where_its_path_says(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir()
    uri = write(tmp_path / place / f"{place}.lance", {"k": range(ROWS)})
    if not Path(uri).is_dir():
        pytest.skip("pylance itself writes it elsewhere")
    lance.dataset(uri).create_scalar_index("k", "BTREE")
    table = pennon.open(uri)
    assert table.uri == uri
    assert table.count("k < 7") == 7
    assert table.explain("k < 7").indices
    assert place in table.report() or "&" in table.report()
    assert {path.name for path in tmp_path.iterdir()} == {place}


@pytest.mark.usefixtures("engine")
def test_a_job_finds_a_table_in_such_a_place(tmp_path: Path) -> None:
    place = tmp_path / "it's %20 caf\u00e9 [x] <b>"
    place.mkdir()
    uri = write(place / "t.lance", {"k": range(ROWS)})
    table = pennon.open(uri)
    table.create_index("k", ranges=2)
    assert table.update_column("k", "k + 1000", where="id < 10").rows == 10
    table.maintain()
    assert sorted(table.scan("k >= 1000", ["id"])["id"].to_pylist()) == list(range(10))
    assert table.audit().ok

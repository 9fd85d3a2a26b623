"""Segments that pylance built answer as a scan does."""

from __future__ import annotations

import random
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import DamagedIndexWarning
from pennon.testing.oracles import full_scan, pylance_answer
from tests.support.texts import random_texts, sentences

FILTERS = (
    "contains(s, 'rang')",
    "contains(s, 'Index LANCE')",
    "contains(s, 'index')",
    "contains(s, 'ab x9y')",
    "contains(s, 'straße')",
    "contains(s, 'ångström')",
    "contains(s, 'not there')",
    "contains(s, '100%')",
    "s LIKE '%partition%'",
    "s LIKE '%ran_e%LANCE'",
    "s ILIKE '%INDEX%'",
    "s ILIKE '%ÅNGSTRÖM%'",
    "s ILIKE '%\u017ftra%'",
    "s ILIKE '%FILE%'",
    "regexp_like(s, 'part[aeiou]tion')",
    "regexp_like(s, 'Index.*LANCE')",
    "contains(s, 'range') AND contains(s, 'Index')",
    "contains(s, 'range') OR s LIKE '%Index%'",
    "contains(s, 'range') AND id < 100",
)
NOT_SERVED = ("contains(s, 'ab')", "contains(s, '日本語')", "NOT contains(s, 'range')", "s IS NULL", "s LIKE 'ran%'")


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "stable"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Indexed in part, with deleted, updated, compacted and new rows."""
    uri = str(tmp_path_factory.mktemp("texts") / "t.lance")

    def rows(start: int, count: int) -> pa.Table:
        return pa.table({"id": range(start, start + count), "s": sentences(count, start)})

    dataset = lance.write_dataset(rows(0, 400), uri, max_rows_per_file=90, enable_stable_row_ids=request.param)
    dataset.create_scalar_index("s", "NGRAM")
    dataset.delete("id % 7 = 2")
    dataset.update({"s": "'moved range'"}, "id % 19 = 4")
    dataset = lance.write_dataset(rows(400, 60), uri, mode="append")
    if not request.param:
        dataset.optimize.compact_files(target_rows_per_fragment=200, defer_index_remap=True)
    return uri


@pytest.mark.parametrize("filter", [*FILTERS, *NOT_SERVED])
def test_answers_are_those_of_a_scan(table: str, filter: str) -> None:
    opened = pennon.open(table)
    expected = full_scan(table, filter)
    assert sorted(opened.scan(filter, ["id"])["id"].to_pylist()) == expected
    assert opened.count(filter) == len(expected)
    assert bool(opened.explain(filter).indices) == (filter in FILTERS)
    assert pylance_answer(table, filter)[0] == expected


def test_any_part_of_any_text_is_found(tmp_path: Path) -> None:
    texts, choose, uri = random_texts(600, seed=9), random.Random(3), str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(600), "s": texts}), uri).create_scalar_index("s", "NGRAM")
    opened, served = pennon.open(uri), 0
    for text in (text for text in texts[:150] if text and len(text) > 4):
        start = choose.randint(0, len(text) - 4)
        part = text[start : start + choose.randint(3, 6)]
        escaped = part.replace("'", "''")
        filter = f"contains(s, '{escaped}')"
        served += len(opened.explain(filter).indices)
        expected = [number for number, other in enumerate(texts) if other is not None and part in other]
        assert opened.scan(filter, ["id"])["id"].to_pylist() == expected
    assert served > 50


def test_a_very_long_text_is_looked_up_by_some_of_its_tokens(tmp_path: Path) -> None:
    long, uri = "".join(random.Random(1).choices("abcdefgh", k=5000)), str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [0, 1], "s": [long, long[::-1]]}), uri).create_scalar_index("s", "NGRAM")
    opened = pennon.open(uri)
    filter = f"contains(s, '{long[10:-10]}')"
    assert opened.scan(filter, ["id"])["id"].to_pylist() == [0]
    assert opened.explain(filter).indices[0].pages == 64


def test_lists_that_cannot_be_read_are_scanned_around(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(200), "s": sentences(200, 1)}), uri).create_scalar_index("s", "NGRAM")
    [file] = Path(uri).glob("_indices/*/*.lance")
    content = bytearray(file.read_bytes())
    content[: len(content) // 2] = bytes(len(content) // 2)
    file.write_bytes(content)
    filter = "contains(s, 'range')"
    with pytest.warns(DamagedIndexWarning):
        found = pennon.open(uri).scan(filter, ["id"])["id"].to_pylist()
    assert sorted(found) == full_scan(uri, filter)

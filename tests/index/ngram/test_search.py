"""Segments that pylance built answer as a scan does."""

from __future__ import annotations

import random
import re
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

import pennon
from pennon.errors import DamagedIndexWarning
from pennon.testing.oracles import full_scan, full_scans, pylance_answer
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
    "s LIKE 'ran%'",
    "s LIKE 'Ångström%'",
    "s LIKE 'ab_x9y%'",
    "s LIKE 'x9y ran__%'",
    "s ILIKE 'RANGE%'",
    "starts_with(s, 'Index ')",
    "starts_with(s, 'naïve')",
    "s = 'range'",
    "s IN ('range', 'partition LANCE', 'nowhere')",
    "s BETWEEN 'range' AND 'range x'",
    "regexp_like(s, '^(range|Index) part', 'i')",
    "regexp_match(s, 'x9y.*Index') IS NOT NULL",
)
NOT_SERVED = (
    "contains(s, 'ab')",
    "contains(s, '日本語')",
    "NOT contains(s, 'range')",
    "s IS NULL",
    "s LIKE 'ra%'",
    "s NOT LIKE 'range%'",
    "NOT starts_with(s, 'range')",
    "s > 'range'",
    "s != 'range'",
    "s = 'range' OR s IS NULL",
    "s IN ('range', 'ab')",
    "regexp_like(s, 'range|Index')",
    "regexp_like(s, '(range)?')",
    "regexp_like(s, '(?i)range')",
    "regexp_like(s, 'range', 's')",
    "regexp_match(s, 'range') IS NULL",
)


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


@st.composite
def text_filters(draw: st.DrawFn, texts: list[str]) -> str:
    """A filter made of a part of some text, with some of its characters replaced by wildcards."""
    text = draw(st.sampled_from(texts))
    part = text[draw(st.integers(0, 2)) : draw(st.integers(4, 12))] if draw(st.booleans()) else text
    form = draw(st.sampled_from(["like", "ilike", "starts_with", "=", "between", "regexp_like", "regexp_match"]))
    if form == "between":
        return f"s BETWEEN {quoted(part)} AND {quoted(part + draw(st.sampled_from(['', 'a', 'z'])))}"
    if form == "=":
        return f"s = {quoted(part)}"
    if form == "starts_with":
        return f"starts_with(s, {quoted(part)})"
    if form in ("like", "ilike"):
        escaped = [f"\\{character}" if character in "%_" else character for character in part]
        wild = "".join(draw(st.sampled_from([character] * 8 + ["_", "%"])) for character in escaped)
        return f"s {form} {quoted(draw(st.sampled_from(['', '%'])) + wild + draw(st.sampled_from(['', '%'])))}"
    signs = ["."] * 2 + [".*", "x?", "[^a]", "(?:..)?", "\\S"]
    pattern = "".join(
        draw(st.sampled_from([re.escape(character)] * 10 + signs))
        + draw(st.sampled_from([""] * 12 + ["+", "*", "?", "{1}", "{0,2}"]))
        for character in part
    )
    pattern = draw(st.sampled_from(["", "^", "(a|b)?"])) + pattern + draw(st.sampled_from(["", "$", "|abc"]))
    if form == "regexp_match":
        return f"regexp_match(s, {quoted(pattern)}) IS NOT NULL"
    return f"regexp_like(s, {quoted(pattern)}{draw(st.sampled_from(['', ', ' + quoted('i')]))})"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.fixture(scope="module")
def odd_texts(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("odd") / "t.lance")
    texts = random_texts(500, seed=21) + sentences(100, seed=2)
    lance.write_dataset(pa.table({"id": range(600), "s": texts}), uri).create_scalar_index("s", "NGRAM")
    return uri


@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_pattern_finds_what_a_scan_finds(odd_texts: str, data: st.DataObject) -> None:
    dataset = lance.dataset(odd_texts)
    texts = [text for text in dataset.to_table(columns=["s"])["s"].to_pylist() if text and len(text) > 3]
    filters = data.draw(st.lists(text_filters(texts), min_size=20, max_size=20, unique=True))
    table, served = pennon.open(odd_texts), 0
    for filter, expected in full_scans(dataset, filters).items():
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        served += len(table.explain(filter).indices)
    target(served)
    assert served, "no filter was answered by the index"


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

"""The report of every kind of index: its figures as a full count of the column gives them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import pennon
from pennon.cli import main
from pennon.index.zones.description import mean_overlaps
from pennon.testing.cases import Points
from tests.report.tables import append, write
from tests.support.html import Reader

ROWS = 3_000
COUNTRIES = ["de", "fr", None, "us"]


def place(number: int) -> dict[str, float] | None:
    return {"x": number % 50 / 2, "y": number // 50 / 2} if number % 10 else None


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    address = str(tmp_path_factory.mktemp("kinds") / "t.lance")
    ids = np.arange(ROWS)
    table = pa.table(
        {
            "id": ids,
            "country": pa.array([COUNTRIES[int(n) % 7 % 4] for n in ids]),
            "tags": pa.array([[f"t{n % 5}", "all"][: int(n) % 3] for n in ids]),
            "body": pa.array([f"word{n % 11} common {'rare' if n % 100 == 0 else ''}" for n in ids]),
        }
    )
    points = pa.ExtensionArray.from_storage(Points(), pa.array([place(int(n)) for n in ids], Points().storage_type))
    lance.write_dataset(table.append_column("place", points), address, max_rows_per_file=1_000)
    opened = pennon.open(address, engine="local")
    opened.create_index("country", "BITMAP")
    opened.create_index("tags", "LABEL_LIST")
    opened.create_index("id", "ZONEMAP", rows_per_zone=500)
    opened.create_index("id", "BLOOMFILTER", name="bloom")
    opened.create_index("body", "NGRAM", name="grams")
    opened.create_index("place", "RTREE", name="places", page_size=100)
    opened.create_index("body", "INVERTED", name="text", stem=False, remove_stop_words=False)
    return address


@pytest.fixture(scope="module")
def data(uri: str) -> dict[str, Mapping[str, Any]]:
    found = pennon.open(uri).report_data()
    return {index["name"]: index["segments"][0] for index in found["indices"]}


def largest(segment: Mapping[str, Any]) -> dict[str, int]:
    return {each["name"]: each["value"] for each in segment["largest"]}


def test_bitmaps(uri: str, data: Mapping[str, Any]) -> None:
    column = lance.dataset(uri).to_table(["country"])["country"].to_pylist()
    counted = Counter("NULL" if value is None else value for value in column)
    assert largest(data["country_idx"]) == counted
    assert data["country_idx"]["measures"] == {"values": 4, "pages": 1, "rows": ROWS}


def test_label_lists(uri: str, data: Mapping[str, Any]) -> None:
    lists = lance.dataset(uri).to_table(["tags"])["tags"].to_pylist()
    assert largest(data["tags_idx"]) == Counter(label for labels in lists for label in labels)


def test_zones(data: Mapping[str, Any]) -> None:
    measures = data["id_idx"]["measures"]
    assert (measures["zones"], measures["zone_rows"], measures["overlapping_zones"]) == (6, ROWS, 0.0)
    assert data["bloom"]["measures"]["zones"] == 3


def test_overlaps_of_zones_are_those_of_all_pairs() -> None:
    rng = np.random.default_rng(3)
    low = rng.integers(0, 30, 40)
    high = low + rng.integers(0, 6, 40)
    pairs = (low[:, None] <= high[None, :]) & (low[None, :] <= high[:, None])
    mins, maxs = pa.array([*low, None]), pa.array([*high, None])
    assert mean_overlaps(mins, maxs) == pytest.approx((pairs.sum() - 40) / 40)
    assert mean_overlaps(pa.nulls(2, pa.int64()), pa.nulls(2, pa.int64())) == 0.0


def test_tokens(uri: str, data: Mapping[str, Any]) -> None:
    texts = lance.dataset(uri).to_table(["body"])["body"].to_pylist()
    shown = largest(data["grams"])
    assert shown == {token: sum(token in text for text in texts) for token in shown}
    assert shown["com"] == ROWS


def test_boxes(data: Mapping[str, Any]) -> None:
    measures = dict(data["places"]["measures"])
    assert 0 < measures.pop("overlapping_pages") < 8
    assert measures == {"geometries": 2_700, "nulls": 300, "pages": 28, "levels": 2}


def test_terms(uri: str, data: Mapping[str, Any]) -> None:
    texts = lance.dataset(uri).to_table(["body"])["body"].to_pylist()
    counted = Counter(term for text in texts for term in set(text.split()))
    shown = largest(data["text"])
    assert shown == {term: counted[term] for term in shown}
    assert sorted(shown.values()) == sorted(count for _, count in counted.most_common(8))  # which of equals, is open
    measures = data["text"]["measures"]
    assert (measures["terms"], measures["postings"]) == (len(counted), sum(counted.values()))
    assert (measures["documents"], measures["partitions"]) == (ROWS, 1)


def test_the_page_shows_the_same_figures(uri: str, data: Mapping[str, Any]) -> None:
    text = Reader(pennon.open(uri).report()).text
    for name in ("common", "NULL", "t0", "Longest posting lists", "overlapping zones", "postings"):
        assert name in text


def test_the_command_prints_the_same_figures(uri: str, tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["report", uri, "--output", "json"])
    found, expected = json.loads(printed.output), pennon.open(uri).report_data()
    assert {**found, "read_at": ""} == {**expected, "read_at": ""}
    assert (found["status"], found["rows"], found["indices"][0]["coverage"]) == ("good", ROWS, 1.0)
    out = tmp_path / "report.json"
    CliRunner().invoke(main, ["report", uri, "--output", "json", "-o", str(out)])
    assert json.loads(out.read_text("utf-8"))["rows"] == ROWS


def test_a_page_cannot_be_served_as_json(uri: str) -> None:
    result = CliRunner().invoke(main, ["report", uri, "--output", "json", "--serve"])
    assert (result.exit_code, "cannot be combined with --output json" in result.output) == (2, True)


def test_widths_are_shares_of_rows(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", 940)
    append(uri, 940, 60)
    read = Reader(pennon.open(uri).report())
    [uncovered] = [a for _, a in read.tags if a.get("class") == "uncovered" and "%" in (a.get("width") or "")]
    assert (uncovered["x"], uncovered["width"]) == ("94.000%", "6.000%")


def test_a_fragment_with_next_to_no_rows_can_be_seen(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", 100)
    append(uri, 100, 1)
    lance.dataset(uri).delete("id = 100 or id < 0")
    append(uri, 101, 50_000)
    append(uri, 60_000, 1)
    read = Reader(pennon.open(uri).report())
    widths = [float((a["width"] or "").rstrip("%")) for _, a in read.tags if (a.get("class") or "").startswith("live")]
    assert min(widths[:-1]) >= 0.25


def test_no_sentence_is_there_twice(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance")
    for name in ("a", "b", "c"):
        lance.dataset(uri).create_scalar_index("id", "BTREE", name=name)
    append(uri, 400)
    read = Reader(pennon.open(uri).report())
    assert read.text.count("of the rows uncovered") == 1
    assert read.text.count("add a delta") == 1
    assert "k_idx, a, b and c:" in read.text

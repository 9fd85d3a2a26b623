"""Texts of many megabytes: indexed as others are, or refused with what they would take; bytes that are no text."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import BuildFailed, DamagedTable
from pennon.text import Match, Phrase

pytestmark = pytest.mark.usefixtures("process_engine")

LEAST_MEMORY = 64 << 20


def words(count: int, seed: int = 0) -> str:
    numbers = np.random.default_rng(seed).zipf(1.3, count) % 5000
    return " ".join(f"w{number}" for number in numbers.tolist())


def write(path: Path, texts: list[str | None], type_: pa.DataType | None = None) -> str:
    uri = str(path / "t.lance")
    column = pa.array(texts, type_ or pa.string())
    lance.write_dataset(pa.table({"id": range(len(texts)), "text": column}), uri, max_rows_per_file=3)
    return uri


def check_long(uri: str) -> None:
    """Scores and rows as pylance has them with an index of its own, which it builds beside."""
    table, dataset = pennon.open(uri), lance.dataset(uri)
    queries = [Match("needle", "text"), Match("w1 w4999", "text"), Phrase("needle haystack", "text")]
    ours = [table.scan(full_text=query, columns=["id"]) for query in queries]
    dataset.create_scalar_index("text", "INVERTED", name="other", with_position=True)
    table = pennon.open(uri)
    for query, found in zip(queries, ours, strict=True):
        other = table.scan(full_text=query, columns=["id"], index="other")
        assert found["id"].to_pylist() == other["id"].to_pylist() != []
        assert found["_score"].to_pylist() == pytest.approx(other["_score"].to_pylist(), rel=1e-5)


def test_a_long_text_among_short_ones(tmp_path: Path) -> None:
    long = f"{words(300_000)} needle haystack {words(200_000, 1)}"
    uri = write(tmp_path, ["w1 short", None, long, "needle", "w4999 and w1", long[:1000], ""])
    pennon.open(uri).create_index("text", "INVERTED", "own", with_position=True, task_memory_bytes=LEAST_MEMORY)
    check_long(uri)


@pytest.mark.parametrize("type_", [pa.string(), pa.list_(pa.string())], ids=str)
def test_a_text_that_takes_more_than_a_task_has(tmp_path: Path, type_: pa.DataType) -> None:
    long = "word " * (5 << 20)
    uri = write(tmp_path, ["short", [long[: 20 << 20], long] if type_ != pa.string() else long, None], type_)  # type: ignore[list-item]
    table = pennon.open(uri)
    with pytest.raises(BuildFailed, match=r"text of row 1 in column 'text' has .* and a task may take 64") as failed:
        table.create_index("text", "INVERTED", task_memory_bytes=LEAST_MEMORY)
    assert "task_memory_bytes" in str(failed.value)
    assert not table.refresh().indices()
    table.create_index("text", "INVERTED", task_memory_bytes=1 << 30)
    assert table.count(full_text="word") == 1


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    contents = [b"good words", b"bad \xff\xfe words", b"cut \xe2\x82", b"word\xc3", b"good"]
    ends = np.concatenate([[0], np.cumsum([len(content) for content in contents])]).astype(np.int32)
    column = pa.StringArray.from_buffers(len(contents), pa.py_buffer(ends), pa.py_buffer(b"".join(contents)))
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(5), "text": column}), uri)
    # pylance writes such bytes, and refuses to read them.
    table = pennon.open(uri)
    with pytest.raises(DamagedTable, match="invalid utf-8"):
        table.create_index("text", "INVERTED")
    with pytest.raises(DamagedTable, match="invalid utf-8"):
        table.search_text("text", "words")
    assert not table.refresh().indices()


@pytest.mark.heavy
def test_ten_million_tokens_and_hundreds_of_megabytes(tmp_path: Path) -> None:
    ten_million = f"{words(5_000_000)} needle haystack {words(5_000_000, 1)}"
    huge = " ".join([ten_million] * 8)
    assert len(huge) > 250 << 20
    uri = write(tmp_path, ["w1 short", ten_million, "needle", None, huge])
    table = pennon.open(uri)
    table.create_index("text", "INVERTED", "own", with_position=True, task_memory_bytes=1 << 30)
    check_long(uri)

"""Posting lists are those of pylance, byte by byte, whatever the parts they are made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.file import LanceFileReader
from pyroaring import BitMap, BitMap64

from pennon.index.ngram import postings
from pennon.index.ngram.files import SCHEMA
from pennon.index.ngram.postings import DamagedPostings, Postings, join_postings
from pennon.index.ngram.tokens import collect_postings, token_sets, tokens_of
from tests.support.texts import random_texts

TEXTS = random_texts(2000, seed=5)  # pylance takes a millisecond for each


@pytest.fixture(scope="module")
def by_pylance(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, pa.Table]:
    """Texts with their addresses, and the index that pylance builds over them."""
    path = tmp_path_factory.mktemp("texts")
    dataset = lance.write_dataset(pa.table({"s": TEXTS}), path, max_rows_per_file=850)
    dataset.create_scalar_index("s", "NGRAM")
    [file] = Path(path).glob("_indices/*/*.lance")
    return dataset.scanner(with_row_address=True).to_table(), LanceFileReader(str(file)).read_all().to_table()


def joined(parts: list[Postings]) -> pa.Table:
    rows = [pa.record_batch([pa.array(tokens), lists], schema=SCHEMA) for tokens, lists in join_postings(parts)]
    return pa.Table.from_batches(rows, SCHEMA)


def batches(table: pa.Table, type_: pa.DataType, rows: int) -> Iterator[tuple[pa.Array, np.ndarray]]:
    for batch in table.to_batches(max_chunksize=rows):
        yield batch.column(0).cast(type_), batch.column(1).to_numpy()


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("memory", [1 << 16, 1 << 30])
def test_lists_are_those_of_pylance(by_pylance: tuple[pa.Table, pa.Table], type_: pa.DataType, memory: int) -> None:
    table, expected = by_pylance
    assert joined(list(collect_postings(batches(table, type_, 700), memory))).equals(expected)


def test_lists_cut_in_windows_are_the_same(
    by_pylance: tuple[pa.Table, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, expected = by_pylance
    monkeypatch.setattr(postings, "WINDOW_BYTES", 1 << 12)
    assert joined(list(collect_postings(batches(table, pa.string(), 700), 1 << 30))).equals(expected)


def test_little_memory_and_any_order_of_ids_make_the_same_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, texts = np.arange(len(TEXTS), dtype=np.uint64), pa.array(TEXTS)
    order = np.random.default_rng(1).permutation(len(ids))
    expected = joined(list(collect_postings([(texts, ids)], 1 << 30)))
    monkeypatch.setattr("pennon.index.ngram.tokens.LEAST_TOKENS", 100)
    parts = list(collect_postings([(texts.take(pa.array(order)), ids[order])], 0))
    assert len(parts) > 20
    assert joined(parts).equals(expected)


def test_lists_that_were_taken_apart_are_put_together_again(by_pylance: tuple[pa.Table, pa.Table]) -> None:
    _, lists = by_pylance
    whole = Postings.of_lists(lists["tokens"].to_numpy(), lists["posting_list"].combine_chunks())
    tokens, ids = whole.ids()
    shuffled = np.random.default_rng(2).permutation(len(ids))
    assert joined([Postings.of_ids(tokens[shuffled], ids[shuffled])]).equals(lists)
    halves = [Postings.of_batch(whole.slice(a, b).to_batch()) for a, b in ((0, 2000), (1200, len(whole)))]
    assert joined(halves[::-1]).equals(lists)


def test_tokens_of_queries_are_those_of_rows() -> None:
    present = [text for text in TEXTS if text is not None]
    tokens, ends = token_sets(pa.array(present))
    for text, start, stop in zip(present, [0, *ends[:-1]], ends, strict=True):
        assert set(tokens[start:stop].tolist()) == tokens_of([text])


NUMBERS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 5 << 16), st.integers(1, 6000)),  # runs
        st.tuples(st.integers(0, 2**40), st.just(1)),
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None)
@given(NUMBERS, st.booleans())
def test_any_bitmap_of_roaring_is_read(spans: list[tuple[int, int]], runs: bool) -> None:
    numbers = BitMap64((number for start, length in spans for number in range(start, start + length)), optimize=False)
    if runs:
        numbers.run_optimize()
    lists = Postings.of_lists(np.array([7], dtype=np.uint32), pa.array([numbers.serialize()]))
    tokens, ids = lists.ids()
    assert ids.tolist() == list(numbers)
    assert set(tokens.tolist()) == {7}
    plain = joined([Postings.of_ids(tokens, ids)])["posting_list"][0].as_py()
    assert plain == BitMap64(ids, optimize=False).serialize()


@settings(deadline=None)
@given(NUMBERS, st.data())
def test_damage_is_found_or_harmless(spans: list[tuple[int, int]], data: st.DataObject) -> None:
    numbers = BitMap64((number for start, length in spans for number in range(start, start + length)), optimize=False)
    numbers.run_optimize()
    content = bytearray(numbers.serialize())
    place = data.draw(st.integers(0, min(len(content) - 1, 200)))
    content[place] ^= data.draw(st.integers(1, 255))
    stop = data.draw(st.sampled_from([len(content), len(content) // 2, len(content) - 1]))
    try:
        _, ids = Postings.of_lists(np.array([7], dtype=np.uint32), pa.array([bytes(content[:stop])])).ids()
    except DamagedPostings:
        return
    assert (ids[1:] > ids[:-1]).all()


def test_bitmaps_of_a_full_container_are_read() -> None:
    content = (1).to_bytes(8, "little") + bytes(4) + BitMap(range(1 << 16)).serialize()
    _, ids = Postings.of_lists(np.array([7], dtype=np.uint32), pa.array([content])).ids()
    assert ids.tolist() == list(range(1 << 16))

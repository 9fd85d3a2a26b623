"""Files: equal to pylance's on the same documents, and read whoever wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.format.store import Location, open_store
from pennon.index.inverted.analysis.params import TYPE_URL, TextParams
from pennon.index.inverted.build import PartitionBuilder
from pennon.index.inverted.dictionary.dictionary import encode_dictionary
from pennon.index.inverted.files import PartitionFiles, read_metadata
from tests.index.inverted.contents import partition_files, terms_and_lists, tokens_by_row
from tests.index.inverted.corpus import (
    documents,
    open_index,
    pennon_index,
    pylance_index,
    pylance_options,
    segments,
    write_table,
)

LISTS = {
    "list": pa.list_(pa.string()),
    "large list": pa.large_list(pa.large_string()),
}


def both(path: Path, column: Any, params: TextParams) -> tuple[PartitionFiles, PartitionFiles]:
    """The only partition of an index by Pennon, and of one by pylance."""
    ours, theirs = write_table(path / "ours", column), write_table(path / "theirs", column)
    by_pennon = partition_files(ours, pennon_index(ours, params))
    by_pylance = partition_files(theirs, pylance_index(theirs, **pylance_options(params)))
    assert len(by_pennon) == len(by_pylance) == 1
    return by_pennon[0], by_pylance[0]


@pytest.mark.parametrize("with_position", [False, True])
def test_files_equal_those_of_pylance(tmp_path: Path, with_position: bool) -> None:
    texts, params = documents(4000), TextParams(with_position=with_position)
    ours, theirs = both(tmp_path, texts, params)
    assert ours.read_docs().to_batch().equals(theirs.read_docs().to_batch())
    our_terms, our_lists = terms_and_lists(ours, with_position)
    their_terms, their_lists = terms_and_lists(theirs, with_position)
    assert our_terms == their_terms
    assert our_lists.schema == their_lists.schema
    for name in our_lists.column_names:
        assert our_lists[name].combine_chunks().equals(their_lists[name].combine_chunks()), name
    assert max(our_lists["_length"].to_pylist()) > 128


@pytest.mark.parametrize("rows", [50, 6000])
def test_a_dictionary_has_the_bytes_that_pylance_writes_for_its_numbers(tmp_path: Path, rows: int) -> None:
    # More nodes than a table of recent ones holds, in the second case.
    texts = [" ".join(f"{(row * 7919 + n) % 100_003:x}q{n}" for n in range(8)) for row in range(rows)]
    uri = write_table(tmp_path / "t", texts)
    files = partition_files(uri, pylance_index(uri, stem=False))[0]
    dictionary, total = files.read_dictionary()
    terms, numbers = dictionary.list_all(total)
    content, _ = files.read_dictionary_bytes()
    assert encode_dictionary(terms, numbers).tobytes() == content


@pytest.mark.parametrize(
    "params",
    [
        TextParams(),
        TextParams(with_position=True, language="French", max_token_length=None),
        TextParams(base_tokenizer="ngram", min_ngram_length=2, max_ngram_length=4, prefix_only=True, stem=False),
        TextParams(base_tokenizer="raw", lower_case=False, stem=False, remove_stop_words=False, ascii_folding=False),
        TextParams(custom_stop_words=("alpha", "gämma")),
    ],
)
def test_parameters_are_recorded_as_pylance_does(tmp_path: Path, params: TextParams) -> None:
    uri = write_table(tmp_path / "t", ["alpha beta", "gamma"])
    segment = pylance_index(uri, **pylance_options(params))
    metadata = read_metadata(open_store(Location.of(uri)), segment.directory, {})
    assert metadata.params == params
    assert segment.type_url == TYPE_URL
    assert segment.details == params.to_details()
    expected = TextParams(**{**params.__dict__, "custom_stop_words": None})
    assert TextParams.from_details(segment.details) == expected


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()])
def test_nulls_and_texts_without_terms_are_no_documents(tmp_path: Path, type_: pa.DataType) -> None:
    column = pa.array(["alpha beta", None, "", "the", "beta beta", None], type_)
    ours, theirs = both(tmp_path, column, TextParams(with_position=True))
    assert len(ours.read_docs()) == 2
    assert tokens_by_row(ours) == tokens_by_row(theirs)
    assert list(tokens_by_row(ours).values()) == [{b"alpha": [0], b"beta": [1]}, {b"beta": [0, 1]}]


@pytest.mark.parametrize("type_", LISTS.values(), ids=LISTS.keys())
def test_a_list_of_texts_is_one_document(tmp_path: Path, type_: pa.DataType) -> None:
    rows: list[Any] = [["alpha beta", "gamma"], None, [], ["beta", None, "alpha"], [None], [""], ["the", "delta"]]
    ours, theirs = both(tmp_path, pa.array(rows, type_), TextParams(with_position=True))
    assert tokens_by_row(ours) == tokens_by_row(theirs)
    assert tokens_by_row(ours)[0] == {b"alpha": [0], b"beta": [1], b"gamma": [2]}


def test_slices_of_columns_are_read_where_they_begin() -> None:
    column = pa.array([None, "one two", "three", None, "four five"]).slice(1, 3)
    lists = pa.array([["zero"], ["one", None, "two"], None, ["three"], ["four"]]).slice(1, 3)
    for array in (column, lists):
        builder = PartitionBuilder(TextParams(stem=False))
        builder.add(array, np.arange(3, dtype=np.uint64))
        terms, _ = builder._terms()  # pyright: ignore[reportPrivateUsage]
        assert terms.strings().to_pylist() == [b"one", b"three", b"two"]


def test_without_any_term_there_is_no_partition(tmp_path: Path) -> None:
    uri = write_table(tmp_path / "t", [None, "", "the"])
    segment = pennon_index(uri, TextParams())
    assert [file.path for file in segment.files] == ["metadata.lance"]
    assert open_index(uri).partitions == []
    assert lance.dataset(uri).scanner(full_text_query="the").to_table().num_rows == 0
    assert len(segments(uri)) == 1


@pytest.mark.parametrize("type_", [pa.int64(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
def test_other_columns_are_refused(type_: pa.DataType) -> None:
    with pytest.raises(UnsupportedColumn, match="does not hold text"):
        PartitionBuilder(TextParams()).add(pa.array([], type_), np.empty(0, dtype=np.uint64))


@pytest.mark.parametrize("options", [{"base_tokenizer": "icu"}, {"language": "Klingon"}, {"max_token_length": 0}])
def test_analysis_that_cannot_be_reproduced_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        TextParams(**options)


def test_a_document_of_many_megabytes_is_indexed(tmp_path: Path) -> None:
    texts = ["needle", "hay " * 3_000_000 + "needle", "x" * 5_000_000]
    uri = write_table(tmp_path / "t", texts, fragments=1)
    files = partition_files(uri, pennon_index(uri, TextParams()))[0]
    assert files.read_docs().lengths.tolist() == [1, 3_000_001]


def test_bytes_that_are_no_text_do_not_stop_a_build(tmp_path: Path) -> None:
    raw = pa.array([b"good bad\xff\xfe", b"\xe6", b"caf\xc3 good", b"\xf0\x9f\x98"]).cast(pa.large_binary())
    column = pa.LargeStringArray.from_buffers(len(raw), raw.buffers()[1], raw.buffers()[2])
    uri = write_table(tmp_path / "t", ["x"], fragments=1)
    builder = PartitionBuilder(TextParams(stem=False))
    builder.add(column, np.arange(4, dtype=np.uint64))
    assert len(builder.write(open_store(Location.of(uri)), "_indices/new", 0)) == 4

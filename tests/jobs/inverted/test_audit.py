"""An audit finds whatever is wrong with an inverted index, though its files are whole and have valid checksums."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.format.store import Location, open_store
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.build import PartitionBuilder
from pennon.index.inverted.files import SegmentMetadata, write_metadata, write_partition
from pennon.index.inverted.postings.lists import IMPACTS
from tests.index.inverted.contents import partition_files
from tests.index.inverted.corpus import COLUMN, commit, documents, pylance_index, segments, write_table

pytestmark = pytest.mark.usefixtures("process_engine")

TEXTS = documents(400, seed=11, words=200)
ROW = next(n for n, text in enumerate(TEXTS) if text is not None and len(set(text.split())) > 8 and n > 150)
EMPTY = next(n for n, text in enumerate(TEXTS) if text is None and n > 100)
PARAMS = TextParams(with_position=True)

Documents = tuple[list[str | None], list[int]]


def changed(row: int, change: Callable[[str], str]) -> Callable[[Documents], Documents]:
    def of(given: Documents) -> Documents:
        texts, row_ids = given
        return [change(text or "") if number == row else text for number, text in enumerate(texts)], row_ids

    return of


def without(row: int) -> Callable[[Documents], Documents]:
    return lambda given: tuple([item for number, item in enumerate(part) if number != row] for part in given)  # pyright: ignore[reportReturnType]


def moved(given: Documents) -> Documents:
    """A document under the row id of one that has no words, and so twice or not at all."""
    texts, row_ids = given
    return texts, [row_ids[EMPTY] if number == ROW else id for number, id in enumerate(row_ids)]


WRONG: dict[str, Callable[[Documents], Documents]] = {
    "another word": changed(ROW, lambda text: f"zebra {text.partition(' ')[2]}"),
    "a word more": changed(ROW, lambda text: f"{text} zebra"),
    "a word less": changed(ROW, lambda text: text.partition(" ")[2]),
    "words exchanged": changed(ROW, lambda text: " ".join(reversed(text.split()))),
    "a row without words": changed(EMPTY, lambda _: "zebra"),
    "a row is missing": without(ROW),
    "another row": moved,
}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return write_table(tmp_path / "t", TEXTS)


def commit_wrong(uri: str, change: Callable[[Documents], Documents]) -> None:
    """Commits an index of other documents than those of the table."""
    rows = lance.dataset(uri).to_table(columns=[COLUMN], with_row_id=True)
    texts, row_ids = change((rows[COLUMN].to_pylist(), rows["_rowid"].to_pylist()))
    builder, store, name = PartitionBuilder(PARAMS), open_store(Location.of(uri)), str(uuid4())
    builder.add(pa.array(texts, pa.string()), np.array(row_ids, dtype=np.uint64))
    files = builder.write(store, f"_indices/{name}", 0)
    files.append(write_metadata(store, f"_indices/{name}", SegmentMetadata(PARAMS, (0,))))
    commit(uri, name, PARAMS, files, [f.fragment_id for f in lance.dataset(uri).get_fragments()])


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_documents_are_found(uri: str, wrong: str) -> None:
    commit_wrong(uri, WRONG[wrong])
    report = pennon.open(uri).audit()
    assert not report.ok
    assert "fragment:row" in str(report)


def test_right_ones_are_not(uri: str) -> None:
    commit_wrong(uri, lambda given: given)
    assert pennon.open(uri).audit().ok
    lance.dataset(uri).delete(f"id = {ROW}")
    assert pennon.open(uri).audit().ok


@pytest.mark.parametrize("address", [5, 1 << 20, 7 << 32, (1 << 64) - 1], ids=hex)
def test_row_ids_out_of_range_are_never_answers(uri: str, address: int) -> None:
    """Where they take the place of a row, that row is missing."""

    def forged(given: Documents) -> Documents:
        texts, row_ids = given
        return texts, [address if number == ROW else id for number, id in enumerate(row_ids)]

    commit_wrong(uri, forged)
    assert not pennon.open(uri).audit().ok


def test_impacts_below_the_scores_they_bound_are_found(uri: str) -> None:
    """Queries would skip blocks that have some of the best documents."""
    pennon.open(uri).create_index(COLUMN, "INVERTED", with_position=True)
    [segment] = segments(uri)
    [files] = partition_files(uri, segment)
    table, _ = files.read_table(with_positions=True)
    lowered = [[item[:-1] + b"\x7f" for item in row] if len(row) > 1 else row for row in table[IMPACTS].to_pylist()]
    place = table.schema.get_field_index(IMPACTS)
    table = table.set_column(place, table.schema.field(place), pa.array(lowered, table.schema.types[place]))
    dictionary, total = files.read_dictionary()
    docs, store, name = files.read_docs(), open_store(Location.of(uri)), str(uuid4())
    terms: Any = dictionary.list_all(total)[0]
    batches = table.combine_chunks().to_batches()
    written = write_partition(store, f"_indices/{name}", 0, batches, lambda: terms, docs, with_positions=True)
    written.append(write_metadata(store, f"_indices/{name}", SegmentMetadata(PARAMS, (0,))))
    pennon.open(uri).drop_index("text_idx")
    commit(uri, name, PARAMS, written, [f.fragment_id for f in lance.dataset(uri).get_fragments()])
    report = pennon.open(uri).audit()
    assert not report.ok
    assert "impacts" in str(report) or "damaged" in str(report)


@pytest.mark.parametrize("options", [{}, {"base_tokenizer": "ngram"}, {"stem": False, "with_position": True}], ids=str)
def test_indices_of_pylance_are_audited_alike(uri: str, options: dict[str, Any]) -> None:
    pylance_index(uri, **options)
    assert pennon.open(uri).audit().ok
    lance.dataset(uri).delete("id % 4 = 1")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=300)
    assert pennon.open(uri).audit().ok

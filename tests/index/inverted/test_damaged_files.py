"""Damaged files: a named error or a right answer, in bounded time and memory, whatever bytes are changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import FrozenBitMap

from pennon.errors import DamagedFile
from pennon.format.index_metadata import IndexFile, IndexSegment
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.store import Location, open_store
from pennon.index.cache import ByteCache
from pennon.index.checksums import sealed, unsealed
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.dictionary.dictionary import Dictionary, Terms, encode_dictionary
from pennon.index.inverted.dictionary.write_kernels import checksum
from pennon.index.inverted.files import PartitionFiles, checksums_name, read_metadata
from pennon.index.inverted.postings.lists import EncodedLists, PostingLists, encode
from pennon.index.inverted.query import Match, Operator, Phrase
from pennon.index.inverted.scoring import Statistics
from pennon.index.inverted.search.compound import TextSearch
from pennon.index.inverted.search.leaves import TextIndex
from tests.index.inverted.corpus import COLUMN, documents, open_segment, pennon_index, vocabulary, write_table

WORDS = [word for word in vocabulary() if word.isascii()]
QUERIES = [
    Match(f"{WORDS[0]} {WORDS[9]}"),
    Match(f"{WORDS[1]} {WORDS[2]}", operator=Operator.AND),
    Phrase(f"{WORDS[0]} {WORDS[1]}"),
    Match(WORDS[3], fuzziness=2),
]


def words() -> Terms:
    names = sorted({f"{n * 7919 % 1000:x}{'é' * (n % 3)}" for n in range(400)}, key=str.encode)
    return Terms.of(pa.array(names, pa.large_string()))


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_a_damaged_dictionary_never_leads_outside(data: st.DataObject) -> None:
    terms = words()
    content = encode_dictionary(terms, np.arange(len(terms))).copy()
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.sampled_from([len(content), len(content) - 1, 40, 20, 3]))]
    if len(content) > 4:  # or the checksum would refuse all of them
        content[-4:] = np.frombuffer(int(checksum(content, len(content) - 4)).to_bytes(4, "little"), dtype=np.uint8)
    try:
        dictionary = Dictionary(content, "here")
        number = dictionary.find("1e9")
        # None in a range is compared with each of its numbers, and a damaged file may have any count.
        assert number is None or number in range(dictionary.count)
        near = dictionary.find_near("1e", 2, 0, 50)
        assert len(near) <= 50
        found, numbers = dictionary.list_all(int(terms.ends[-1]))
        assert len(found) == len(numbers) == dictionary.count
    except DamagedFile:
        pass


def some_lists() -> tuple[PostingLists, np.ndarray, Statistics]:
    rng = np.random.default_rng(1)
    sizes = np.array([1, 127, 128, 129, 400])
    docs = np.concatenate([np.sort(rng.choice(500, size, replace=False)) for size in sizes]).astype(np.uint32)
    freqs = rng.integers(1, 6, len(docs)).astype(np.uint32)
    positions = np.concatenate([np.sort(rng.choice(3000, freq, replace=False)) for freq in freqs]).astype(np.uint32)
    lengths = rng.integers(1, 900, 500).astype(np.uint32)
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return PostingLists(ends, docs, freqs, positions), lengths, Statistics(500, int(lengths.sum()))


def test_lists_are_decoded_as_they_were_encoded() -> None:
    lists, lengths, statistics = some_lists()
    found = EncodedLists.of(encode(lists, lengths, statistics), "here").decode(500)
    for name in ("ends", "docs", "freqs", "positions"):
        assert np.array_equal(getattr(found, name), getattr(lists, name)), name


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_damaged_lists_are_refused_or_decoded_within_bounds(data: st.DataObject) -> None:
    batch = encode(*some_lists())
    encoded = EncodedLists.of(batch, "here")
    assert encoded.stream_data is not None
    assert encoded.stream_blocks is not None
    block_data, stream_data = encoded.block_data.copy(), encoded.stream_data.copy()
    for part in (block_data, stream_data):
        for _ in range(data.draw(st.integers(0, 3))):
            part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    blocks = encoded.stream_blocks.copy()
    blocks[data.draw(st.integers(0, len(blocks) - 1))] = data.draw(st.sampled_from([0, 5, 10**6, 2**32 - 1]))
    kept = (encoded.sizes, encoded.term_blocks, block_data, encoded.block_ends)
    impacts = (encoded.impact_terms, encoded.impact_data, encoded.impact_ends, "here")
    try:
        found = EncodedLists(*kept, *impacts, stream_data, encoded.stream_ends, blocks).decode(500)
        assert found.docs.max() < 500
        assert found.freqs.min() > 0
    except DamagedFile:
        pass


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, IndexSegment]:
    uri = write_table(tmp_path_factory.mktemp("damage") / "t", documents(1200))
    return uri, pennon_index(uri, TextParams(with_position=True))


def rewritten(uri: str, segment: IndexSegment, name: str, change: Callable[[pa.Table], pa.Table]) -> Iterator[str]:
    """The directory of a copy of the segment, with a file whose rows are changed."""
    store = open_store(Location.of(uri))
    target = f"_indices/damaged{random.randrange(1 << 60):x}"
    for file in segment.files:
        if file.path != name:
            store.copy(f"{segment.directory}/{file.path}", f"{target}/{file.path}")
            if file.path == checksums_name(0):
                seal_for(uri, target, segment.directory)
            continue
        opened = LanceFile(store, f"{segment.directory}/{name}")
        table = change(opened.read())
        metadata = {k: v for k, v in opened.metadata.items() if k != "total_tokens"}
        write_lance_file(store, target, name, table.schema, table.to_batches(), "2.2", metadata)
    yield target


def seal_for(uri: str, target: str, origin: str) -> None:
    """Checksums that were written for another directory are as if they had been written for this one."""
    path = Path(uri, target, checksums_name(0))
    checksums = unsealed(origin, path.read_bytes())
    assert checksums is not None
    path.write_bytes(sealed(target, checksums))


def search_in(uri: str, target: str, files: tuple[IndexFile, ...] = ()) -> None:
    """`files` are what the manifest records; without checksums among them, lists are not compared with any."""
    uuid = target.rpartition("/")[2]
    segment = IndexSegment(uuid, "x", (1,), 1, FrozenBitMap(), "", b"", 2, files=files)
    index = TextIndex([open_segment(uri, segment, ByteCache())])
    for query in QUERIES:
        TextSearch({COLUMN: index}, COLUMN).best(query, 10)


def with_column(name: str, make: Callable[[pa.ChunkedArray], Any]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        return table.set_column(
            place, table.schema.field(place), pa.array(make(table[name]), table.schema.types[place])
        )

    return change


def cut(items: pa.ChunkedArray) -> list[Any]:
    """Half of each item."""
    return [item[: len(item) // 2] for item in items.to_pylist()]


def cut_each(rows: pa.ChunkedArray) -> list[Any]:
    """Half of each item of each list."""
    return [[item[: len(item) // 2] for item in row] for row in rows.to_pylist()]


def all_as(item: Any) -> Callable[[pa.ChunkedArray], list[Any]]:
    """Lists of the same length, of one item."""
    return lambda rows: [[item] * len(row) for row in rows.to_pylist()]


CHANGES: dict[str, tuple[str, Callable[[pa.Table], pa.Table]]] = {
    "fst cut": ("tokens", with_column("_token_fst_bytes", cut)),
    "fst of zeros": ("tokens", with_column("_token_fst_bytes", lambda c: [bytes(len(c[0].as_py()))])),
    "count of terms": ("tokens", with_column("_token_next_id", lambda c: [7])),
    "fewer documents": ("docs", lambda t: t.slice(0, 40)),
    "fewer lists": ("invert", lambda t: t.slice(0, 40)),
    "sizes": ("invert", with_column("_length", lambda c: [2**32 - 1] * len(c))),
    "sizes of one more": ("invert", with_column("_length", lambda c: [v + 128 for v in c.to_pylist()])),
    "postings cut": ("invert", with_column("_posting", cut_each)),
    "postings gone": ("invert", with_column("_posting", lambda c: [[] for _ in c])),
    "impacts cut": ("invert", with_column("_impacts", cut_each)),
    "impacts of ones": ("invert", with_column("_impacts", all_as(b"\xff" * 9))),
    "positions cut": ("invert", with_column("_compressed_position", cut)),
    "starts of positions": ("invert", with_column("_position_block_offset", all_as(2**32 - 1))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_rows_are_a_named_error(indexed: tuple[str, IndexSegment], name: str) -> None:
    uri, segment = indexed
    file, change = CHANGES[name]
    for target in rewritten(uri, segment, f"part_0_{file}.lance", change):
        with pytest.raises(DamagedFile):
            search_in(uri, target)


def test_flipped_postings_are_found_or_refused(indexed: tuple[str, IndexSegment]) -> None:
    """Random bytes in postings, impacts and positions: never a crash, and no row outside the table."""
    uri, segment = indexed
    draw, refused = random.Random(4), 0

    def flip(row: list[bytes]) -> list[bytes]:
        return [bytes(b ^ (1 << draw.randrange(8)) if draw.random() < 0.01 else b for b in item) for item in row]

    for column in ("_posting", "_impacts"):
        for _ in range(4):
            change = with_column(column, lambda c: [flip(row) for row in c.to_pylist()])
            for target in rewritten(uri, segment, "part_0_invert.lance", change):
                try:
                    search_in(uri, target)
                except DamagedFile:
                    refused += 1
    assert refused


def test_missing_and_truncated_files_are_a_named_error(indexed: tuple[str, IndexSegment], tmp_path: Path) -> None:
    uri, segment = indexed
    checksums = tuple(file for file in segment.files if file.path == checksums_name(0))
    for file in segment.files:
        for keep in (0, 100, file.size_bytes // 2, file.size_bytes - 9):
            for target in rewritten(uri, segment, "none", lambda table: table):
                path = Path(uri, target, file.path)
                path.write_bytes(path.read_bytes()[:keep])
                with pytest.raises(DamagedFile):
                    search_in(uri, target, checksums)
                path.unlink()
                with pytest.raises(DamagedFile):
                    search_in(uri, target, checksums)


def flipped(column: pa.ChunkedArray, draw: random.Random) -> pa.Array:
    """A bit of one row is another."""
    rows, place = column.to_pylist(), draw.randrange(len(column))

    def flip(item: Any) -> Any:
        if isinstance(item, int):
            return item ^ 1
        if isinstance(item, bytes):
            at = draw.randrange(len(item))
            return item[:at] + bytes([item[at] ^ (1 << draw.randrange(8))]) + item[at + 1 :]
        return [flip(part) if number == 0 else part for number, part in enumerate(item)]

    rows[place] = flip(rows[place])
    return pa.array(rows, column.type)


@pytest.mark.parametrize(
    ("file", "column"),
    [
        *(("docs", name) for name in ("_rowid", "_num_tokens")),
        *(("invert", name) for name in ("_posting", "_impacts", "_compressed_position", "_position_block_offset")),
        *(("tokens", name) for name in ("_token_fst_bytes", "_token_next_id", "_token_total_length")),
    ],
)
def test_any_flipped_bit_in_files_of_pennon_is_found(indexed: tuple[str, IndexSegment], file: str, column: str) -> None:
    """By checksums, where the content does not give it away."""
    uri, segment = indexed
    store, draw, name = open_store(Location.of(uri)), random.Random(column), f"part_0_{file}.lance"
    for _ in range(6):
        change = with_column(column, lambda items: flipped(items, draw))
        for target in rewritten(uri, segment, name, change):
            sizes = {path: size for path, size in segment.file_sizes.items() if path != name}
            files = PartitionFiles(store, target, 0, {**sizes, checksums_name(0): 1})
            with pytest.raises(DamagedFile):
                read_all(files)


def test_flipped_bits_in_metadata_and_checksums_are_found(indexed: tuple[str, IndexSegment]) -> None:
    uri, segment = indexed
    store = open_store(Location.of(uri))
    for target in rewritten(uri, segment, "none", lambda table: table):
        files = PartitionFiles(store, target, 0, segment.file_sizes)
        read_all(files)
        path = Path(uri, target, checksums_name(0))
        content = path.read_bytes()
        for damaged in (content[:-4], content[:8] + b"\x01" + content[9:], b""):
            path.write_bytes(damaged)
            with pytest.raises(DamagedFile):
                read_all(PartitionFiles(store, target, 0, segment.file_sizes))
        metadata = Path(uri, target, "metadata.lance")
        whole = metadata.read_bytes()
        for old, new in ((b'length":40', b'length":41'), (b'"stem":true', b'"stem":null'), (b"[0]", b"[1]")):
            assert old in whole
            metadata.write_bytes(whole.replace(old, new))
            with pytest.raises(DamagedFile):
                read_metadata(store, target, segment.file_sizes)


def read_all(files: PartitionFiles) -> None:
    docs = files.read_docs()
    dictionary, total = files.read_dictionary()
    dictionary.list_all(total)
    files.read_lists(0, files.num_terms, with_positions=True).decode(len(docs))

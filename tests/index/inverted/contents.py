"""What the files of a partition hold, in an order that does not depend on who numbered the terms."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pennon.format.index_metadata import IndexSegment
from pennon.format.store import Location, open_store
from pennon.index.inverted.files import PartitionFiles, read_metadata


def partition_files(uri: str, segment: IndexSegment) -> list[PartitionFiles]:
    store = open_store(Location.of(uri))
    numbers = read_metadata(store, segment.directory, segment.file_sizes).partitions
    return [PartitionFiles(store, segment.directory, number, segment.file_sizes) for number in numbers]


def terms_and_lists(files: PartitionFiles, with_positions: bool) -> tuple[list[bytes], pa.Table]:
    """Terms in byte order, and the rows of their posting lists as they are in the file."""
    dictionary, total = files.read_dictionary()
    terms, numbers = dictionary.list_all(total)
    table, _ = files.read_table(with_positions)
    return terms.strings().to_pylist(), table.take(pa.array(numbers))


def tokens_by_row(files: PartitionFiles) -> dict[int, dict[bytes, list[int]]]:
    """Positions of the terms of each row."""
    docs = files.read_docs()
    names, table = terms_and_lists(files, with_positions=True)
    lists = files.read_lists(0, files.num_terms, with_positions=True).decode(len(docs))
    numbers = files.read_dictionary()[0].list_all(sum(map(len, names)))[1]
    assert lists.positions is not None
    ends = np.concatenate([[0], np.cumsum(lists.freqs, dtype=np.int64)])
    found: dict[int, dict[bytes, list[int]]] = {}
    assert len(table) == len(names)
    for name, number in zip(names, numbers.tolist(), strict=True):
        for at in range(lists.ends[number], lists.ends[number + 1]):
            row = int(docs.row_ids[lists.docs[at]])
            found.setdefault(row, {})[name] = lists.positions[ends[at] : ends[at + 1]].tolist()
    return found

"""Merging: several partitions become what a build from their documents would be."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pytest

from pennon.format.store import Location, open_store
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.build import PartitionBuilder
from pennon.index.inverted.files import PartitionFiles
from pennon.index.inverted.merge import Source, merge_partitions
from tests.index.inverted.contents import partition_files, terms_and_lists
from tests.index.inverted.corpus import COLUMN, documents, pennon_index, pylance_index, write_table


def rows_of(files: PartitionFiles, with_positions: bool) -> tuple[object, ...]:
    docs = files.read_docs()
    terms, lists = terms_and_lists(files, with_positions)
    return terms, lists.to_pylist(), docs.row_ids.tolist(), docs.lengths.tolist()


def merged(uri: str, sources: list[Source], with_positions: bool, name: str = "merged") -> PartitionFiles:
    store = open_store(Location.of(uri))
    merge_partitions(sources, store, f"_indices/{name}", 0, with_positions)
    return PartitionFiles(store, f"_indices/{name}", 0, {})


@pytest.mark.parametrize("with_positions", [False, True])
@pytest.mark.parametrize("batch", [1 << 20, 300])
def test_merged_partitions_equal_a_direct_build(
    tmp_path: Path, with_positions: bool, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pennon.index.inverted.build.BATCH_POSTINGS", batch)
    texts, params = documents(1500), TextParams(with_position=with_positions)
    several, one = write_table(tmp_path / "several", texts), write_table(tmp_path / "one", texts)
    parts = partition_files(several, pennon_index(several, params, 4))
    (direct,) = partition_files(one, pennon_index(one, params))
    found = merged(several, [Source(part, part.read_docs()) for part in parts], with_positions)
    assert rows_of(found, with_positions) == rows_of(direct, with_positions)
    (segment,) = Path(one, "_indices").iterdir()
    for name in found.names:
        ours, built = Path(several, "_indices/merged", name).read_bytes(), (segment / name).read_bytes()
        # Lance writes the keys of a schema in no order.
        assert ours == built if "tokens" in name else len(ours) == len(built), name


def test_dead_documents_are_dropped_as_if_they_had_never_been(tmp_path: Path) -> None:
    texts, params = documents(1500), TextParams(with_position=True)
    uri = write_table(tmp_path / "t", texts)
    parts = partition_files(uri, pennon_index(uri, params, 3))
    rng, sources, kept = np.random.default_rng(0), list[Source](), set[int]()
    for number, part in enumerate(parts):
        docs = part.read_docs()
        alive = rng.random(len(docs)) < (0.5 if number else 0.0)
        sources.append(Source(part, docs, alive))
        kept |= set(docs.row_ids[alive].tolist())
    found = merged(uri, sources, True)

    table = lance.dataset(uri).to_table(columns=[COLUMN], with_row_id=True)
    rows = table.filter(np.isin(table["_rowid"].to_numpy(), list(kept))).combine_chunks()
    builder, store = PartitionBuilder(params), open_store(Location.of(uri))
    for batch in rows.to_batches():
        builder.add(batch.column(COLUMN), batch.column("_rowid").to_numpy())
    builder.write(store, "_indices/direct", 0)
    assert rows_of(found, True) == rows_of(PartitionFiles(store, "_indices/direct", 0, {}), True)


def test_partitions_of_pylance_are_merged_with_those_of_pennon(tmp_path: Path) -> None:
    texts, params = documents(1200), TextParams(with_position=True)
    theirs, ours = write_table(tmp_path / "theirs", texts), write_table(tmp_path / "ours", texts)
    by_pylance = partition_files(theirs, pylance_index(theirs, with_position=True))
    (direct,) = partition_files(ours, pennon_index(ours, params))
    # The first half as pylance has it, the second as Pennon.
    docs, others = by_pylance[0].read_docs(), direct.read_docs()
    half = docs.row_ids[len(docs) // 2]
    sources = [Source(by_pylance[0], docs, docs.row_ids < half), Source(direct, others, others.row_ids >= half)]
    assert rows_of(merged(ours, sources, True), True) == rows_of(direct, True)


def test_nothing_is_written_where_no_document_is_left(tmp_path: Path) -> None:
    uri = write_table(tmp_path / "t", documents(200))
    (part,) = partition_files(uri, pennon_index(uri, TextParams()))
    docs = part.read_docs()
    store = open_store(Location.of(uri))
    assert merge_partitions([Source(part, docs, np.zeros(len(docs), bool))], store, "_indices/none", 0, False) == []

"""Remapping: after a compaction a segment finds the rows of today, without touching its postings where it may."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import lance
import numpy as np
import pytest
from lance.optimize import Compaction, RewriteResult
from pyroaring import BitMap, FrozenBitMap

from pennon.format.index_metadata import NOTHING, IndexFile
from pennon.format.store import Location, open_store
from pennon.index.arrays import Flags
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.files import SegmentMetadata, copy_partition, read_metadata, write_metadata
from pennon.index.inverted.merge import merge_partitions
from pennon.index.inverted.query import Match
from pennon.index.inverted.remap import RemappedPartition, must_rewrite
from pennon.index.inverted.search.compound import TextSearch
from tests.index.inverted.contents import partition_files
from tests.index.inverted.corpus import (
    COLUMN,
    commit,
    documents,
    open_index,
    pennon_index,
    pylance_search,
    segments,
    vocabulary,
    write_table,
)
from tests.index.inverted.queries import to_pylance

QUERIES = [Match(word) for word in vocabulary()[:40] if word.isascii()]


def compact_without_indices(uri: str) -> None:
    """Rewrite all fragments as one; indices lose their coverage."""
    dataset = lance.dataset(uri)
    plan = Compaction.plan(dataset, {"target_rows_per_fragment": 100_000})
    results = [json.loads(task.execute(dataset).json()) for task in plan.tasks]
    rewritten = [RewriteResult.from_json(json.dumps({**result, "row_addrs": None})) for result in results]
    Compaction.commit(dataset, rewritten, {})


@pytest.mark.parametrize("form", ["docs", "rewrite"])
def test_a_remapped_segment_finds_the_rows_of_today(tmp_path: Path, form: str) -> None:
    uri, params = write_table(tmp_path / "t", documents(1500)), TextParams(with_position=True)
    old_segment = pennon_index(uri, params, 2)
    lance.dataset(uri).delete("id % 7 = 3")
    by_id = lance.dataset(uri).to_table(columns=["id"], with_row_id=True)
    before = dict(zip(by_id["_rowid"].to_pylist(), by_id["id"].to_pylist(), strict=True))
    scores = {query: {before[r]: s for r, s in pylance_search(uri, to_pylance(query)).items()} for query in QUERIES}
    compact_without_indices(uri)
    by_id = lance.dataset(uri).to_table(columns=["id"], with_row_id=True)
    today = dict(zip(by_id["id"].to_pylist(), by_id["_rowid"].to_pylist(), strict=True))
    ids = {row: number for number, row in today.items()}

    def remap(rows: np.ndarray) -> tuple[np.ndarray, Flags]:
        moved = [today.get(before[row]) if row in before else None for row in rows.tolist()]
        return np.array([m or 0 for m in moved], dtype=np.uint64), np.array([m is not None for m in moved])

    store, name = open_store(Location.of(uri)), str(uuid.uuid4())
    metadata = read_metadata(store, old_segment.directory, {})
    parts = [
        RemappedPartition.of(part, metadata.deleted_fragments, remap) for part in partition_files(uri, old_segment)
    ]
    live = BitMap(fragment.fragment_id for fragment in lance.dataset(uri).get_fragments())
    assert not must_rewrite(parts, live, stable_row_ids=False)
    assert must_rewrite(parts, live, stable_row_ids=True)
    assert must_rewrite(parts, BitMap([0]), stable_row_ids=False)
    target = f"_indices/{name}"
    if form == "docs":
        files, numbers = list[IndexFile](), [part.files.partition for part in parts]
        for part in parts:
            files += copy_partition(part.files, part.docs, store, target, part.files.partition)
        deleted = FrozenBitMap(metadata.deleted_fragments.union(*(part.dead_fragments for part in parts)))
    else:
        files, numbers, deleted = merge_partitions([p.source() for p in parts], store, target, 0, True), [0], NOTHING
    files.append(write_metadata(store, target, SegmentMetadata(metadata.params, tuple(numbers), deleted)))
    for existing in lance.dataset(uri).describe_indices():
        lance.dataset(uri).drop_index(existing.name)
    commit(uri, name, params, files, sorted(live))
    (segment,) = segments(uri)
    written = read_metadata(store, segment.directory, segment.file_sizes)
    assert written.deleted_fragments == (FrozenBitMap([0, 1, 2]) if form == "docs" else FrozenBitMap())
    search = TextSearch({COLUMN: open_index(uri)}, COLUMN)
    for query in QUERIES:
        found, by_pylance = search.best(query, None), pylance_search(uri, to_pylance(query))
        assert set(found.row_ids.tolist()) == set(by_pylance), query
        assert {ids[row] for row in by_pylance} == set(scores[query]), query
        expected = scores[query] if form == "docs" else {ids[row]: score for row, score in by_pylance.items()}
        for row, score in zip(found.row_ids.tolist(), found.scores.tolist(), strict=True):
            assert score == pytest.approx(expected[ids[row]], abs=1e-5), query
        best = search.best(query, 10)
        assert len(best) == len(pylance_search(uri, to_pylance(query), limit=10)) == min(10, len(found)), query

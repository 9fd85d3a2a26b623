"""A warm cache: queries read no index file, and say so; a full one evicts, and a damaged segment is left out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import DamagedIndexWarning, IndexNotFound, InvalidArgument
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import SHARED_CACHE, ByteCache, counting_cache
from pennon.index.vector.vectors import to_lists
from pennon.query.catalog import Catalog
from pennon.query.warm import warm

pytestmark = pytest.mark.usefixtures("process_engine")

ROWS = 1200
QUERY = np.ones(8, dtype=np.float32)
Asked = Callable[[pennon.Table], Any]
SCALAR = {
    "number": ("BTREE", "number between 100 and 900"),
    "few": ("BITMAP", "few in (1, 3, 7)"),
    "labels": ("LABEL_LIST", "array_has(labels, 3)"),
    "zone": ("ZONEMAP", "zone < 50"),
    "bloom": ("BLOOMFILTER", "bloom = 7"),
    "short": ("NGRAM", "contains(short, 'needle')"),
}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("warm") / "t.lance")
    ids = np.arange(ROWS)
    vectors = np.random.default_rng(0).standard_normal((ROWS, 8)).astype(np.float32)
    texts = [f"needle number {number} of {number % 17}" for number in ids]
    columns = dict.fromkeys(("few", "zone", "bloom"), ids % 100) | {"number": ids}
    labels = pa.array([[number % 5, number % 7] for number in ids], pa.list_(pa.int64()))
    table = pa.table(columns | {"labels": labels, "short": texts, "text": texts, "v": to_lists(vectors)})
    lance.write_dataset(table, path, max_rows_per_file=ROWS // 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENNON_ENGINE", "local")
        opened = pennon.open(path)
        for column, (kind, _) in SCALAR.items():
            opened.create_index(column, kind)
        opened.create_index("text", pennon.Inverted(with_position=True))
        opened.create_index("v", pennon.IvfHnswSq(num_partitions=4))
    return path


def asked() -> dict[str, tuple[str, Asked]]:
    """Each column, with a query that is explained as it runs."""
    found: dict[str, tuple[str, Asked]] = {
        column: (condition, lambda table, text=condition: table.explain(text, analyze=True))
        for column, (_, condition) in SCALAR.items()
    }
    found["text"] = ("phrase", lambda table: table.explain_search_text("text", '"needle number"', 5, analyze=True))
    found["v"] = ("nearest", lambda table: table.explain_search("v", QUERY, 5, nprobes=4, analyze=True))
    return found


@pytest.mark.parametrize("column", [*asked()])
def test_after_warm_a_query_reads_no_index_file(uri: str, column: str) -> None:
    SHARED_CACHE.clear()
    _, explain = asked()[column]
    cold = explain(pennon.open(uri))
    assert cold.reads > 0
    assert cold.cache.misses > 0
    assert cold.cache.loaded_bytes > 0
    SHARED_CACHE.clear()
    table = pennon.open(uri)
    warmed = table.warm(f"{column}_idx")
    assert [index.name for index in warmed.indices] == [f"{column}_idx"]
    assert warmed.complete
    assert warmed.reads > 0
    assert warmed.entries > 0
    assert table.cache_statistics().bytes >= warmed.bytes > 0
    again = explain(table)
    assert again.reads == 0
    assert again.cache.misses < cold.cache.misses  # which rows are alive is worked out by the first search
    assert "cache    " in str(again)
    assert again.to_dict()["cache"]["hits"] == again.cache.hits
    assert again.rows_returned == cold.rows_returned


def test_all_indices_and_the_figures_of_a_process(uri: str) -> None:
    SHARED_CACHE.clear()
    table = pennon.open(uri)
    before = table.cache_statistics()
    warmed = table.warm()
    after = table.cache_statistics()
    assert {index.name for index in warmed.indices} == {f"{column}_idx" for column in asked()}
    assert sum(index.bytes for index in warmed.indices) == warmed.bytes == after.loaded_bytes - before.loaded_bytes
    assert (after.entries, after.evictions) == (warmed.entries, before.evictions)
    assert table.warm().entries == 0
    assert f"{after.entries:,} entries" in str(after)
    assert "loaded" in str(warmed)


def test_warming_stops_when_the_cache_is_full_of_it(uri: str) -> None:
    for index, capacity in (("number_idx", 10_000), ("v_idx", 60_000), ("short_idx", 60_000)):
        cache = ByteCache(capacity)
        warmed = warm(Catalog.read(Snapshot.open(Location.of(uri)), cache), index)
        assert not warmed.complete
        assert "not all" in str(warmed)
        assert cache.statistics().bytes <= capacity


def test_a_damaged_segment_is_left_out(uri: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.lance"
    shutil.copytree(uri, copy)
    table = pennon.open(copy)
    segment = next(index for index in table.indices() if index.name == "number_idx").segments[0]
    for file in (copy / "_indices" / segment.uuid).glob("*page_data*"):
        content = bytearray(file.read_bytes())
        content[: len(content) // 2] = bytes(len(content) // 2)
        file.write_bytes(content)
    with pytest.warns(DamagedIndexWarning):
        warmed = table.warm("number_idx")
    assert not warmed.complete
    assert table.count("number < 10") == 10


def test_names_that_are_none(uri: str) -> None:
    table = pennon.open(uri)
    with pytest.raises(IndexNotFound, match="'nowhere'"):
        table.warm("nowhere")
    with pytest.raises(InvalidArgument, match="index must be text"):
        table.warm(3)  # type: ignore[arg-type]


def test_what_a_cache_counts() -> None:
    cache = ByteCache(100)
    with counting_cache() as use:
        assert cache.get("a") is None
        cache.put("a", 1, 60)
        cache.put("too large", 2, 101)
        assert cache.get_all(["a", "b"]) == [1, None]
        cache.put("c", 3, 60)
        assert ("a" in cache, "c" in cache) == (False, True)
    assert (use.hits, use.misses, use.loaded, use.loaded_bytes, use.evictions) == (1, 2, 2, 120, 1)
    found = cache.statistics()
    assert (found.bytes, found.entries, found.hits, found.misses, found.evictions) == (60, 1, 1, 2, 1)
    cache.get("c")
    assert use.hits == 1

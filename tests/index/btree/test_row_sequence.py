"""A segment cut at any borders gives back its rows: each once, in order, on the right side of each border."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lance.file import LanceFileReader, LanceFileWriter

from pennon.errors import DamagedFile
from pennon.format.index_metadata import IndexFile, IndexSegment
from pennon.format.lance_file import ReadCounter, counting_reads
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location, Store
from pennon.index.btree import row_sequence as sequencing
from pennon.index.btree.guard_rows import SENTINEL_ID, guard
from pennon.index.btree.lookup import PLAIN_PAGE_FILE, PageLookup, PageStats, page_file_name, write_lookup
from pennon.index.btree.pages import Run, sort_run, take, write_pages
from pennon.index.btree.row_sequence import Border, Cut, Sequence, Stretch
from pennon.index.value_order import argsort, exchange_type, fixed_keys
from tests.support.tables import every_type


def write_tree(
    root: Path, values: pa.Array, batch_size: int = 4, ranges: list[int] | None = None, guarded: bool = True
) -> Sequence:
    """A tree of these values, whose ids are their positions; with ranges, cut after so many rows each."""
    store = Store(Location.of(str(root)))
    rows = sort_run([(values, np.arange(len(values), dtype=np.uint64))], values.type)
    parts: list[PageStats] = []
    edges = [0, *np.cumsum(ranges).tolist()] if ranges else [0, rows.rows]
    for number, (start, stop) in enumerate(pairwise(edges)):
        runs = iter([rows.slice(start, stop)] if stop > start else [])
        name = page_file_name(number) if ranges else PLAIN_PAGE_FILE
        runs = guard(runs) if ranges and guarded else runs
        parts.append(write_pages(store, "_indices/x", name, number, runs, values.type, batch_size, "2.1"))
    lookup = write_lookup(store, "_indices/x", values.type, parts, batch_size, "2.1")
    return Sequence(store, segment([*(part.file for part in parts), lookup]), values.type)


def segment(files: list[IndexFile]) -> IndexSegment:
    return IndexSegment("x", "i", (0,), 1, None, "", b"", 0, tuple(files))  # pyright: ignore[reportArgumentType]


def read_all(sequence: Sequence, borders: list[Border]) -> list[list[Run]]:
    """The rows between the borders, read range by range."""
    cuts = sequence.cuts(borders)
    return [list(sequence.read(Stretch(low, high))) for low, high in pairwise(cuts)]


def ids(runs: list[Run]) -> list[int]:
    found = [i for run in runs for i in (*run.null_ids.tolist(), *run.ids.tolist())]
    return [i for i in found if i != int(SENTINEL_ID)]


def values(runs: list[Run], type_: pa.DataType) -> list[Any]:
    joined = pa.concat_arrays([pa.array([], exchange_type(type_)), *(run.values for run in runs)])
    keys = fixed_keys(joined)
    return joined.to_pylist() if keys is None else keys.tolist()


INTS = st.lists(st.one_of(st.none(), st.integers(0, 12)), max_size=80)
FLOATS = st.lists(st.one_of(st.none(), st.sampled_from([0.0, -0.0, float("nan"), -float("nan"), 1.5])), max_size=60)
TEXTS = st.lists(st.one_of(st.none(), st.text("ab\0é", max_size=3)), max_size=60)
FLAGS = st.lists(st.one_of(st.none(), st.booleans()), max_size=60)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_cuts_give_back_all_rows(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    elements, type_ = data.draw(
        st.sampled_from(
            [(INTS, pa.int32()), (FLOATS, pa.float64()), (TEXTS, pa.string()), (FLAGS, pa.bool_()), (INTS, pa.uint64())]
        )
    )
    column = pa.array(data.draw(elements), type_)
    count = data.draw(st.integers(0, 4))
    cuts = sorted({c for c in data.draw(st.lists(st.integers(1, 80), max_size=count)) if c < len(column)})
    ranges = np.diff([0, *cuts, len(column)]).tolist() if cuts else None
    guarded = data.draw(st.booleans())
    tree = write_tree(
        tmp_path_factory.mktemp("tree"), column, data.draw(st.sampled_from([1, 3, 4, 16])), ranges, guarded
    )
    candidates = pa.array(data.draw(elements), type_).drop_null()
    candidates = take(candidates, argsort(candidates)).cast(exchange_type(type_))
    shares = st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0])
    borders = [Border(None, s) for s in sorted(data.draw(st.lists(shares, max_size=2))) if s < 1]
    borders += [Border(candidates.slice(i, 1), 0.0) for i in range(min(6, len(candidates)))]
    pieces = read_all(tree, borders)
    runs = [run for piece in pieces for run in piece]
    assert sorted(ids(runs)) == list(range(len(column)))
    assert values(runs, type_) == sorted(values(runs, type_))
    for border, before, after in zip(borders, pieces, pieces[1:], strict=False):
        if border.value is None:
            # NULLs are cut before the values begin.
            assert not any(len(run.values) for run in before)
            continue
        [limit] = values([Run(np.empty(0, np.uint64), border.value, np.empty(0, np.uint64))], type_)
        assert all(value < limit for value in values(before, type_))
        assert all(value >= limit for value in values(after, type_))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_shares_of_a_value_ascend(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Several borders on one value divide its rows and nothing else."""
    column = pa.array(data.draw(INTS), pa.int64())
    tree = write_tree(tmp_path_factory.mktemp("tree"), column, data.draw(st.sampled_from([1, 2, 5])))
    hot = pa.array([data.draw(st.integers(0, 12))], pa.int64())
    shares = sorted(data.draw(st.lists(st.floats(0, 1), min_size=1, max_size=5)))
    pieces = read_all(tree, [Border(hot, share) for share in shares])
    assert sorted(ids([run for piece in pieces for run in piece])) == list(range(len(column)))
    limit = hot[0].as_py()
    assert all(v <= limit for v in values(pieces[0], pa.int64()))
    assert all(v == limit for piece in pieces[1:-1] for v in values(piece, pa.int64()))
    assert all(v >= limit for v in values(pieces[-1], pa.int64()))


@pytest.mark.parametrize("ranges", [None, [30, 30, 40]])
def test_every_page_has_borders_of_its_own(ranges: list[int] | None, tmp_path: Path) -> None:
    """Cutting a tree at the beginning of one of its pages finds that page, among NULLs and inside a value too."""
    column = pa.array([None] * 20 + [3] * 50 + list(range(30)), pa.int64())
    tree = write_tree(tmp_path, column, 4, ranges)
    for page in range(1, tree.lookup.pages):
        assert tree.cut(tree.border_before(page)).is_at(Cut(page))
        if tree.lookup.maxs[page - 1].is_valid:
            assert tree.cut(tree.border_after(page - 1)).is_at(Cut(page))


def test_a_hot_value_is_dealt_out_by_its_shares(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, pa.array([7] * 1000, pa.int64()), 10)
    hot = pa.array([7], pa.int64())
    pieces = read_all(tree, [Border(hot, 0.25), Border(hot, 0.5), Border(hot, 0.75)])
    assert [sum(run.rows for run in piece) for piece in pieces] == [250] * 4


def test_only_the_pages_of_a_stretch_are_read(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, pa.array(range(1000), pa.int64()), 10)
    low, high = (Border(pa.array([v], pa.int64()), 0.0) for v in (495, 520))
    counter = ReadCounter()
    with counting_reads(counter):
        cuts = tree.cuts([low, high])
        assert (counter.files, counter.reads) == (0, 0)
        runs = list(tree.read(Stretch(cuts[1], cuts[2])))
    assert ids(runs) == list(range(495, 520))
    assert (counter.files, counter.rows) == (1, 30)


def test_long_stretches_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequencing, "READ_BATCH", 64)
    tree = write_tree(tmp_path, pa.array(range(1000), pa.int64()), 10, [250, 750])
    [runs] = read_all(tree, [])
    assert max(run.rows for run in runs) == 60
    assert ids(runs) == list(range(1000))


def test_whole_files_are_recognized(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "ranged", pa.array(range(100), pa.int64()), 4, [30, 30, 40])
    first, second, third = tree.lookup.files
    cuts = tree.cuts([tree.border_before(second.first_page), tree.border_before(third.first_page)])
    assert [tree.whole_file(Stretch(a, b)) for a, b in pairwise(cuts)] == [first, second, third]
    assert tree.whole_file(Stretch(cuts[0], cuts[2])) is None
    assert tree.whole_file(Stretch(Cut(1), cuts[1])) is None
    assert [tree.rows_if_guarded(file) for file in tree.lookup.files] == [30, 30, 40]
    bare = write_tree(tmp_path / "bare", pa.array(range(100), pa.int64()), 4, [30, 70], guarded=False)
    assert [bare.rows_if_guarded(file) for file in bare.lookup.files] == [None, None]
    plain = write_tree(tmp_path / "plain", pa.array(range(100), pa.int64()))
    assert plain.whole_file(Stretch(Cut(0), Cut(plain.lookup.pages))) is None


def test_an_empty_tree_has_no_rows(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, pa.array([], pa.string()))
    assert read_all(tree, [Border(None, 0.5), Border(pa.array(["a"], pa.large_string()), 0.5)]) == [[], [], []]


@pytest.mark.parametrize("column", ["i64", "f64", "text", "flag", "ts_us", "nothing", "wide"])
def test_trees_of_stock_are_sequences(column: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(every_type(9000), uri)
    lance.dataset(uri).create_scalar_index(column, "BTREE")
    snapshot = Snapshot.open(Location.of(uri))
    tree = Sequence(snapshot.store, snapshot.manifest.user_segments[0], snapshot.column(column).type)
    assert tree.lookup.pages == 3
    pieces = read_all(tree, [tree.border_before(page) for page in (1, 2)])
    assert [sum(run.rows for run in piece) for piece in pieces] == [4096, 4096, 808]
    assert sorted(ids([run for piece in pieces for run in piece])) == list(range(9000))


def rewrite(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        path = directory / PLAIN_PAGE_FILE
        table = change(LanceFileReader(str(path)).read_all().to_table().combine_chunks())
        path.unlink()
        with LanceFileWriter(str(path), table.schema) as writer:
            for batch in table.to_batches():
                writer.write_batch(batch)

    return damage


def with_values(change: Callable[[list[Any]], list[Any]]) -> Callable[[Path], None]:
    return rewrite(lambda t: t.set_column(0, "values", pa.array(change(t["values"].to_pylist()), t["values"].type)))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda d: (d / PLAIN_PAGE_FILE).unlink(),
    "truncated": lambda d: (d / PLAIN_PAGE_FILE).write_bytes((d / PLAIN_PAGE_FILE).read_bytes()[:-40]),
    "garbage": lambda d: (d / PLAIN_PAGE_FILE).write_bytes(b"x" * 4096),
    "a lookup": lambda d: (d / PLAIN_PAGE_FILE).write_bytes((d / "page_lookup.lance").read_bytes()),
    "fewer pages": rewrite(lambda t: t.slice(0, 40)),
    "another type": rewrite(lambda t: t.set_column(0, "values", t["values"].cast(pa.int32()))),
    "another id type": rewrite(lambda t: t.set_column(1, "ids", t["ids"].cast(pa.int64()))),
    "out of order": with_values(lambda v: [*v[:21], v[22], v[21], *v[23:]]),
    "NULLs after values": with_values(lambda v: [*v[:50], None, *v[51:]]),
    "fewer NULLs": with_values(lambda v: [*v[:9], 0, *v[10:]]),
    "another first value": with_values(lambda v: [*v[:20], v[20] - 1, *v[21:]]),
    "another last value": with_values(lambda v: [*v[:-1], v[-1] + 1]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_noticed(damage: str, tmp_path: Path) -> None:
    column = pa.array([None] * 10 + list(range(0, 180, 2)), pa.int64())
    tree = write_tree(tmp_path, column)
    files = [IndexFile(file.name, 0) for file in tree.lookup.files]
    assert len(ids(read_all(tree, [])[0])) == 100
    DAMAGES[damage](tmp_path / "_indices" / "x")
    fresh = Sequence(Store(Location.of(str(tmp_path))), segment(files), pa.int64())
    with pytest.raises(DamagedFile, match=PLAIN_PAGE_FILE):
        read_all(fresh, [])


def test_pages_read_apart_must_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one read cannot see: its first value is below the last of the read before."""
    tree = write_tree(tmp_path, pa.array(range(0, 200, 2), pa.int64()))
    monkeypatch.setattr(sequencing, "READ_BATCH", 4)
    monkeypatch.setattr(Sequence, "_matches_lookup", lambda *_: True)
    monkeypatch.setattr(PageLookup, "has_rows", lambda *_: True)
    with_values(lambda v: [*v[:4], 1, *v[5:]])(tmp_path / "_indices" / "x")
    fresh = Sequence(Store(Location.of(str(tmp_path))), segment([]), pa.int64())
    assert tree.lookup.pages == fresh.lookup.pages
    with pytest.raises(DamagedFile, match="not in value order"):
        read_all(fresh, [])


def test_a_recorded_size_is_checked(tmp_path: Path) -> None:
    write_tree(tmp_path, pa.array(range(100), pa.int64()))
    lying = segment([IndexFile(PLAIN_PAGE_FILE, 12)])
    with pytest.raises(DamagedFile, match="recorded 12"):
        read_all(Sequence(Store(Location.of(str(tmp_path))), lying, pa.int64()), [])


@pytest.mark.parametrize("type_", [pa.float16(), pa.float32(), pa.float64()])
def test_rows_between_the_two_zeros_are_not_lost(type_: pa.DataType, tmp_path: Path) -> None:
    """Arrow calls -0.0 and 0.0 equal; in the tree's order there are rows between borders at them."""
    zeros = pa.array(np.array([-0.0, 0.0], type_.to_pandas_dtype()))
    column = pa.array(np.array([-1.0, -0.0, 0.0, 1.0], type_.to_pandas_dtype()))
    tree = write_tree(tmp_path, column, 4)
    low, high = (Border(zeros.slice(i, 1), 0.0) for i in (0, 1))
    start, stop = tree.cut(low), tree.cut(high)
    assert not start.is_at(stop)
    assert not Stretch(start, stop).is_empty
    assert Stretch(start, tree.cut(low)).is_empty
    assert [ids(piece) for piece in read_all(tree, [low, high])] == [[0], [1], [2, 3]]

"""N-gram indices that Pennon builds: files as pylance writes them, used by pylance, with the answers of a scan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from pyroaring import BitMap64

import pennon
from pennon.format.pb import lance_pb2 as pb
from pennon.format.store import Location, open_store
from pennon.index.ngram.files import POSTINGS_FILE, SCHEMA, write_segment
from pennon.index.ngram.tokens import tokens_of
from pennon.testing.oracles import full_scans, pylance_answer
from tests.support.cases import covering
from tests.support.manifests import edit_newest
from tests.support.texts import random_texts, sentences

FILTERS = (
    "contains(s, 'rang')",
    "contains(s, 'ab x9y')",
    "contains(s, 'Ångström')",
    "s LIKE '%partition%Index%'",
    "s ILIKE '%straße%'",
    "contains(s, 'nowhere')",
    "contains(s, 'range') OR contains(s, 'moved')",
    "s IS NULL",
)
TYPES = (pa.string(), pa.large_string(), pa.string_view())

pytestmark = pytest.mark.usefixtures("process_engine")


def rows(start: int, count: int, type_: pa.DataType = TYPES[0]) -> pa.Table:
    return pa.table({"id": range(start, start + count), "s": pa.array(sentences(count, start), type_)})


def write(uri: str, *, stable: bool, type_: pa.DataType = TYPES[0], per_file: int = 100) -> lance.LanceDataset:
    return lance.write_dataset(rows(0, 500, type_), uri, max_rows_per_file=per_file, enable_stable_row_ids=stable)


def append(uri: str, start: int, count: int) -> None:
    lance.write_dataset(rows(start, count, lance.dataset(uri).schema.field("s").type), uri, mode="append")


def check(uri: str) -> None:
    """Pennon, pylance and a scan agree, by the index wherever that serves a filter."""
    opened, dataset = pennon.open(uri), lance.dataset(uri)
    for filter, expected in full_scans(dataset, FILTERS).items():
        assert sorted(opened.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
        answer, used = pylance_answer(dataset, filter)
        assert answer == expected, f"pylance: {filter}"
        assert used == (" LIKE " in filter or "contains" in filter), f"pylance: {filter}"
        assert bool(opened.explain(filter).indices) == ("s IS" not in filter), filter
    assert opened.audit().ok


def lists(uri: str) -> list[pa.Table]:
    """The posting lists of each segment, with everything else that is in its file."""
    found = []
    for path in sorted(Path(uri).glob("_indices/*/ngram_postings.lance")):
        reader = LanceFileReader(str(path))
        assert reader.metadata().schema.metadata in (None, {})
        assert len(reader.metadata().global_buffers) == 1
        found.append(reader.read_all().to_table())
    return found


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
@pytest.mark.parametrize("options", [{}, {"rows_per_task": 90}], ids=["one task", "exchange"])
def test_files_are_those_of_pylance(
    tmp_path: Path, type_: pa.DataType, stable: bool, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    uris = [str(tmp_path / name) for name in ("ours.lance", "theirs.lance")]
    for uri in uris:
        write(uri, stable=stable, type_=type_).delete("id % 7 = 2")
    monkeypatch.setattr("pennon.jobs.ngram.plan.LISTS_PER_TASK", 4096)
    pennon.open(uris[0]).create_index("s", "NGRAM", **options)
    lance.dataset(uris[1]).create_scalar_index("s", "NGRAM")
    [[ours], [theirs]] = map(lists, uris)
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert ours.equals(theirs)
    check(uris[0])


@pytest.mark.parametrize(
    ("type_", "stable", "builder"), covering(TYPES, [False, True], ["pennon", "pylance"], strength=2)
)
def test_a_life_of_deletions_appends_and_merges(tmp_path: Path, type_: pa.DataType, stable: bool, builder: str) -> None:
    uri = str(tmp_path / "t.lance")
    write(uri, stable=stable, type_=type_)
    build(uri, builder)
    check(uri)
    lance.dataset(uri).delete("id % 7 = 2")
    append(uri, 500, 150)
    check(uri)
    pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    [index] = pennon.open(uri).indices()
    assert (len(index.segments), index.coverage) == (2, 1.0)
    check(uri)
    lance.dataset(uri).update({"s": "'moved range'"}, "id % 19 = 4")
    check(uri)
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    [index] = pennon.open(uri).indices()
    assert (len(index.segments), index.coverage) == (1, 1.0)
    check(uri)


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
@pytest.mark.parametrize("builder", ["pennon", "pylance"])
@pytest.mark.parametrize("compactor", ["pennon", "pylance"])
def test_compactions_that_remap_at_once(tmp_path: Path, stable: bool, builder: str, compactor: str) -> None:
    uri = str(tmp_path / "t.lance")
    write(uri, stable=stable)
    build(uri, builder, segments=2)
    lance.dataset(uri).delete("id % 7 = 2 or id < 30")
    append(uri, 500, 50)
    if compactor == "pennon":
        pennon.open(uri).compact(target_rows_per_fragment=1000)
        [index] = pennon.open(uri).indices()
        assert index.segments
    else:
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=1000)
    check(uri)


@pytest.mark.parametrize("builder", ["pennon", "pylance"])
@pytest.mark.parametrize("follow", ["optimize", "catch up", "pylance"])
def test_compactions_that_leave_the_remapping(tmp_path: Path, builder: str, follow: str) -> None:
    uri = str(tmp_path / "t.lance")
    write(uri, stable=False)
    build(uri, builder, segments=2)
    for start, where in ((500, "id % 7 = 2"), (550, "id % 5 = 1")):
        lance.dataset(uri).delete(where)
        append(uri, start, 50)
        pennon.open(uri).compact(remap="deferred", target_rows_per_fragment=150 + start)
        check(uri)
    if follow == "optimize":
        pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    elif follow == "catch up":
        pennon.open(uri).catch_up_indices()
        pennon.open(uri).trim_fragment_reuse()
        assert pennon.open(uri).fragment_reuse() is None
    else:
        lance.dataset(uri).optimize.optimize_indices()
    check(uri)


@pytest.mark.parametrize("texts", [[], [None] * 40, ["ab", "", "日本語"] * 20], ids=["no rows", "NULL", "short"])
def test_tables_without_a_trigram(tmp_path: Path, texts: list[str | None]) -> None:
    uri = str(tmp_path / "t.lance")
    columns = {"id": pa.array(range(len(texts)), pa.int64()), "s": pa.array(texts, pa.string())}
    lance.write_dataset(pa.table(columns), uri)
    table = pennon.open(uri)
    table.create_index("s", "NGRAM")
    assert table.scan("contains(s, 'abc')").num_rows == 0
    append(uri, 0, 100)
    pennon.open(uri).optimize_indices(num_indices_to_merge=1)
    check(uri)


def test_random_texts_in_merged_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, theirs = str(tmp_path / "t.lance"), str(tmp_path / "theirs.lance")
    texts = random_texts(2000, seed=8)
    for each in (uri, theirs):
        lance.write_dataset(pa.table({"id": range(2000), "s": texts}), each, max_rows_per_file=300)
    lance.dataset(theirs).create_scalar_index("s", "NGRAM")
    for fragments in ([0, 1, 2], [3, 4], [5, 6]):
        pennon.open(uri).create_index("s", "NGRAM", fragment_ids=fragments)
    monkeypatch.setattr("pennon.jobs.ngram.plan.LISTS_PER_TASK", 1 << 16)
    pennon.open(uri).optimize_indices(num_indices_to_merge=9)
    [segment] = pennon.open(uri).indices()[0].segments
    written = LanceFileReader(f"{uri}/_indices/{segment.uuid}/ngram_postings.lance").read_all().to_table()
    assert written.equals(lists(theirs)[0])


def build(uri: str, builder: str, segments: int = 1) -> None:
    fragments = sorted(fragment.fragment_id for fragment in lance.dataset(uri).get_fragments())
    if segments > 1 and builder == "pennon":
        for some in (fragments[:2], fragments[2:]):
            pennon.open(uri).create_index("s", "NGRAM", fragment_ids=some)
    elif builder == "pennon":
        pennon.open(uri).create_index("s", "NGRAM")
    else:
        lance.dataset(uri).create_scalar_index("s", "NGRAM")


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_an_audit_finds_and_repairs_what_is_wrong(tmp_path: Path, stable: bool) -> None:
    """Posting lists without some of their rows, with checksums that fit."""
    uri = str(tmp_path / "t.lance")
    write(uri, stable=stable)
    pennon.open(uri).create_index("s", "NGRAM")
    [directory] = Path(uri).glob("_indices/*")
    written = LanceFileReader(str(directory / POSTINGS_FILE)).read_all().to_table()
    found = [BitMap64.deserialize(content) for content in written["posting_list"].to_pylist()]
    row = written["tokens"].to_pylist().index(*tokens_of(["ran"]))
    lost = list(found[row])[:3]
    found[row] -= BitMap64(lost)
    lists = pa.array([bitmap.serialize() for bitmap in found], pa.binary())
    batch = pa.record_batch([written["tokens"].combine_chunks(), lists], schema=SCHEMA)
    files = write_segment(
        open_store(Location.of(uri)), f"_indices/{directory.name}", [batch], lance.dataset(uri).data_storage_version
    )
    edit_newest(Path(uri), lambda _, indices: _set_sizes(indices, {file.path: file.size_bytes for file in files}))
    report = pennon.open(uri).audit()
    assert [finding.problem for finding in report.errors]
    assert "3 rows with another value" in report.errors[0].problem
    assert pennon.open(uri).audit(repair=True).ok
    check(uri)


def _set_sizes(indices: pb.IndexSection, sizes: dict[str, int]) -> None:
    for file in (file for index in indices.indices for file in index.files if file.path in sizes):
        file.size_bytes = sizes[file.path]

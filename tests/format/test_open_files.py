"""An index may have more files than a process may open."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.format import lance_file
from pennon.format.lance_file import LanceFile
from pennon.format.open_files import OpenFiles
from pennon.format.store import Location, open_store

ROWS, RANGES = 120_000, 24
OPEN = Path("/proc/self/fd")


def open_page_files() -> int:
    """Page files of B-trees that this process has open."""
    count = 0
    for each in OPEN.iterdir():
        with suppress(OSError):  # the list itself, which is closed again
            count += "page_data.lance" in str(each.readlink())
    return count


@pytest.mark.skipif(not OPEN.is_dir(), reason="open files are listed in another way")
@pytest.mark.parametrize("column", ["number", "text"])
def test_more_files_than_may_be_open(column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(5).permutation(ROWS)
    texts = pa.array([f"{number:06d}" for number in numbers])
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"number": numbers, "text": texts}), uri)
    pennon.open(uri, engine="local").create_index(column, ranges=RANGES)

    monkeypatch.setattr(lance_file, "OPEN_FILES", OpenFiles(4))
    before = open_page_files()
    table = pennon.open(uri, engine="local")
    for value in 2 * list(range(100, ROWS, ROWS // RANGES)):
        condition = f"{column} = {value if column == 'number' else repr(f'{value:06d}')}"
        assert table.scan(condition, ["number"])["number"].to_pylist() == [value]
        assert not table.explain(condition).scanned_fragments
    assert 0 < open_page_files() - before <= 2 * 4
    assert table.audit().ok


def test_a_closed_file_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = OpenFiles(1)
    monkeypatch.setattr(lance_file, "OPEN_FILES", opened)
    store = open_store(Location.of(str(tmp_path)))
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])
    contents = [pa.table({"n": [n, n + 1], "s": [f"a{n}", f"b{n}"]}, schema=schema) for n in range(3)]
    for n, content in enumerate(contents):
        lance_file.write_lance_file(store, "d", f"{n}.lance", schema, content.to_batches(), "2.1")
    columns = [["n"], ["s"], ["n", "s"]]
    files = [LanceFile(store, f"d/{n}.lance", columns=names) for n, names in enumerate(columns)]
    begun = files[0].begin_read(0, 2)
    for _ in range(2):
        for file, content, names in zip(files, contents, columns, strict=True):
            assert file.read().to_pylist() == content.select(names).to_pylist()
            assert file.take([1]).to_pylist() == content.select(names).slice(1).to_pylist()
            assert len(opened) == 1
    assert begun().to_pylist() == contents[0].select(["n"]).to_pylist()
    del file, files
    assert len(opened) == 0

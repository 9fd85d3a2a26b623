"""Damaged files of an index: its rows are scanned with a warning, and the answer is the same."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import DamagedFile, DamagedIndexWarning
from pennon.index.cache import SHARED_CACHE
from pennon.text import Match
from tests.index.inverted.corpus import COLUMN, documents, segments, vocabulary

pytestmark = pytest.mark.usefixtures("process_engine")

WORDS = [word for word in vocabulary(3, 250) if word.isascii()]
QUERIES = (f"{WORDS[0]} {WORDS[3]}", f'"{WORDS[0]} {WORDS[1]}"', Match(WORDS[9], fuzziness=1))


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    rows = pa.table({"id": range(300), COLUMN: pa.array(documents(300, 3, 250), pa.string())})
    lance.write_dataset(rows, path, max_rows_per_file=100)
    for fragments in ([0], [1, 2]):
        pennon.open(path).create_index(
            COLUMN, "INVERTED", with_position=True, custom_stop_words=[WORDS[3]], fragment_ids=fragments
        )
    return path


def answers(uri: str) -> list[list[int]]:
    SHARED_CACHE.clear()
    table = pennon.open(uri)
    return [sorted(table.search_text(COLUMN, query, 1000)["id"].to_pylist()) for query in QUERIES]


@pytest.mark.parametrize("name", ["metadata", "*_docs", "*_tokens", "*_invert"])
@pytest.mark.parametrize("missing", [True, False], ids=["missing", "overwritten"])
def test_a_damaged_segment_is_scanned(uri: str, name: str, missing: bool) -> None:
    expected = answers(uri)
    assert all(expected)
    [file] = (Path(uri) / segments(uri)[1].directory).glob(f"{name}.lance")
    if missing:
        file.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes(b"\xff" * (len(content) - 40) + content[-40:])
    with pytest.warns(DamagedIndexWarning, match="text_idx"):
        assert answers(uri) == expected


def test_an_index_whose_analysis_is_unknown_is_not_guessed(uri: str) -> None:
    for segment in segments(uri):
        (Path(uri) / segment.directory / "metadata.lance").unlink()
    SHARED_CACHE.clear()
    with pytest.warns(DamagedIndexWarning), pytest.raises(DamagedFile, match=r"analyzes column 'text'.*create_index"):
        pennon.open(uri).search_text(COLUMN, WORDS[0])


def test_all_segments_damaged_but_their_parameters(uri: str) -> None:
    expected = answers(uri)
    for segment in segments(uri):
        [file] = (Path(uri) / segment.directory).glob("*_docs.lance")
        file.unlink()
    with pytest.warns(DamagedIndexWarning):
        assert answers(uri) == expected

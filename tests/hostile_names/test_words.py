"""Inverted indices over columns, indices and words that mean something elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import pennon
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import ByteCache
from pennon.index.inverted.kind import INVERTED
from tests.hostile_names.names import NAMES, ROWS, STEERING, VALUES, write
from tests.support.html import Reader

FEW = ("quote", "newline", "html", "sql", "escape", "right to left", "long", "spaces")


@pytest.mark.usefixtures("process_engine")
def test_names_and_words_are_data(tmp_path: Path) -> None:
    columns = {NAMES[kind]: [VALUES[(i + at) % len(VALUES)] for i in range(ROWS)] for at, kind in enumerate(FEW)}
    table = pennon.open(write(tmp_path / "t.lance", columns))
    raw = pennon.Inverted(base_tokenizer="raw", max_token_length=None, stem=False, lower_case=False)
    for name in columns:
        planned = table.plan_index(name, raw, name=name)
        assert not [sign for sign in STEERING if sign in str(planned)], name
        table.create_index(name, raw, name=name)
    assert sorted(index.name for index in table.indices()) == sorted(columns)
    assert table.audit().ok
    snapshot = Snapshot.open(Location.of(table.uri))
    for segment in snapshot.manifest.segments:
        held = INVERTED.open(snapshot, segment, snapshot.column(segment.name), None, ByteCache()).describe()
        assert held.measures["terms"] == len({value for value in columns[segment.name] if value})
    tags = [tag for tag, _ in Reader(table.report()).tags]
    assert tags.count("img") == 0
    assert tags.count("script") <= 1

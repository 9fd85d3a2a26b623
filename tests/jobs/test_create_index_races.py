"""What `create_index` checked before the build still holds when it commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.errors import IndexExists
from pennon.jobs import create_index as job

pytestmark = pytest.mark.usefixtures("process_engine")


@pytest.mark.parametrize("replace", [False, True])
def test_another_writer_builds_the_index_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"k": range(200)}), uri, max_rows_per_file=100)
    commit = job.commit_change

    def after_another(*arguments: Any) -> Any:
        monkeypatch.setattr(job, "commit_change", commit)
        pennon.open(uri).create_index("k", name="one")
        return commit(*arguments)

    monkeypatch.setattr(job, "commit_change", after_another)
    table = pennon.open(uri)
    if replace:
        mine = table.create_index("k", name="one").index
        [index] = pennon.open(uri).indices()
        assert index.segments[0].uuid == mine.segments[0].uuid
        return
    with pytest.raises(IndexExists, match="has an index 'one' already"):
        table.create_index("k", name="one", replace=False)
    [index] = pennon.open(uri).indices()
    assert [path.name for path in (tmp_path / "t.lance" / "_indices").iterdir()] == [index.segments[0].uuid]

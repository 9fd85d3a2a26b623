"""Small files of this machine are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from pennon.format import local_file
from pennon.format.local_file import write_whole
from pennon.format.store import Location, open_store


def test_a_file_and_its_directories_are_written(tmp_path: Path) -> None:
    store = open_store(Location(str(tmp_path)))
    store.write("_deletions/old/1-2-3.bin", b"content")
    assert store.read("_deletions/old/1-2-3.bin") == b"content"
    assert store.list("_deletions") == ["_deletions/old/1-2-3.bin"]


def test_a_failure_leaves_nothing_and_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match=r"taken'$"):
        write_whole(str(tmp_path / "taken"), b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_what_a_killed_writer_leaves_is_no_file_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException): ...

    def killed(_unfinished: str, _path: str) -> None:
        raise Killed

    monkeypatch.setattr(local_file.os, "replace", killed)
    monkeypatch.setattr(local_file.os, "unlink", lambda _path: None)
    with pytest.raises(Killed):
        write_whole(str(tmp_path / "_deletions/1-2-3.bin"), b"content")
    [left] = (tmp_path / "_deletions").iterdir()
    assert left.name.startswith("1-2-3.bin#")
    assert open_store(Location(str(tmp_path))).list("_deletions") == []

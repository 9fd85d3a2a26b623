"""Files of an index, damaged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from pennon.errors import PennonError
from pennon.format.commit import commit_segments
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location, open_store
from pennon.index.vector.files.storage import AUXILIARY_FILE, INDEX_FILE, VectorFiles


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


Change = Callable[[pa.Table, dict[str, str], list[bytes]], pa.Table | None]


def damaged(uri: str, tmp_path: Path, file: str, change: Change) -> VectorFiles:
    """The segment with one file written again: a valid container with what a faulty writer would put in it."""
    (source,) = Path(uri).glob("_indices/*")
    (tmp_path / "segment").mkdir()
    for name in (INDEX_FILE, AUXILIARY_FILE):
        reader = LanceFileReader(str(source / name))
        schema = reader.metadata().schema
        metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
        buffers = [reader.read_global_buffer(number) for number in range(1, 4) if number_exists(reader, number)]
        table = reader.read_all().to_table() if reader.num_rows() else schema.empty_table()
        table = table.replace_schema_metadata(None)
        if name == file:
            table = change(table, metadata, buffers) or table
        with LanceFileWriter(str(tmp_path / "segment" / name), table.schema) as writer:
            for batch in table.to_batches():
                writer.write_batch(batch)
            for buffer in buffers:
                writer.add_global_buffer(buffer)
            for key, value in metadata.items():
                writer.add_schema_metadata(key, value)
    return reopened(tmp_path)


def reopened(tmp_path: Path, **sizes: int) -> VectorFiles:
    return VectorFiles(open_store(Location.of(str(tmp_path))), "segment", {f"{k}.idx": v for k, v in sizes.items()})


def rewrite(uri: str, name: str, change: Change) -> None:
    """Write a file of the only segment again, as a valid container, as a faulty writer would."""
    (directory,) = Path(uri).glob("_indices/*")
    scratch = Path(uri).parent / "scratch"
    scratch.mkdir()
    with suppress(PennonError):
        damaged(uri, scratch, name, change)
    (directory / name).write_bytes((scratch / "segment" / name).read_bytes())
    snapshot = Snapshot.open(Location.of(uri))
    [segment] = snapshot.manifest.user_segments
    commit_segments(snapshot, [replace(segment, files=())], [])


def number_exists(reader: LanceFileReader, number: int) -> bool:
    try:
        reader.read_global_buffer(number)
    except Exception:  # noqa: BLE001 - pylance has no count of buffers
        return False
    return True


def set_metadata(key: str, value: str | None) -> Change:
    def change(_: pa.Table, metadata: dict[str, str], __: list[bytes]) -> None:
        metadata.pop(key)
        if value is not None:
            metadata[key] = value

    return change


def with_nulls(table: pa.Table, *_: Any) -> pa.Table:
    ids = pa.array([None, *table["_rowid"].to_pylist()[1:]], pa.uint64())
    return table.set_column(0, "_rowid", ids)

"""The floor of a build or a merge: the time to read its input and to write its output, and to do nothing else.

A thread for each core does both, as in a build in this process: fragments are scanned with the addresses of their rows,
or index files are read; and the contents of the index files, held in memory, are written to files like them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.format.index_metadata import IndexSegment
from pennon.format.lance_file import READ_BATCH, LanceFile, write_lance_file
from pennon.format.rows import ScanSlice
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location

DIRECTORY = "_indices/floor"
# Contents held in memory. Of a larger index some files are written several times.
HELD_BYTES = 3 << 30
BATCH_BYTES = 8 << 20


@dataclass(frozen=True)
class _Contents:
    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]

    @property
    def bytes(self) -> int:
        return sum(batch.nbytes for batch in self.batches)


def floor_of_build(uri: str, column: str, index: str) -> Callable[[], None]:
    """Work to be timed: read a column, write what is now the content of an index."""
    snapshot = _open(uri)
    write = _writing(snapshot, _segments(snapshot, index))
    return lambda: _do([*_scans(snapshot, column), *write])


def floor_of_merge(uri: str, index: str, merged: str) -> Callable[[], None]:
    """Work to be timed: read the segments of an index, write what another table has as the merged index."""
    snapshot, other = _open(uri), _open(merged)
    reads = [partial(_read, file) for segment in _segments(snapshot, index) for file in _lance_files(snapshot, segment)]
    write = _writing(other, _segments(other, index))
    return lambda: _do([*reads, *write])


def _open(uri: str) -> Snapshot:
    return Snapshot.open(Location.of(uri))


def _segments(snapshot: Snapshot, index: str) -> list[IndexSegment]:
    return [segment for segment in snapshot.manifest.segments if segment.name == index]


def _scans(snapshot: Snapshot, column: str) -> list[Callable[[], None]]:
    found = snapshot.column(column)

    def scan(fragment: int) -> None:
        for _ in snapshot.scan_column(found, ScanSlice((fragment,)), batch_bytes=BATCH_BYTES):
            pass

    return [partial(scan, fragment) for fragment in snapshot.manifest.fragments]


def _lance_files(snapshot: Snapshot, segment: IndexSegment) -> list[LanceFile]:
    files: list[LanceFile] = []
    for listed in segment.files:
        with suppress(DamagedFile):  # the list of contents is no Lance file
            files.append(LanceFile(snapshot.store, f"{segment.directory}/{listed.path}", listed.size_bytes))
    return files


def _read(file: LanceFile) -> None:
    for _ in file.batches(0, file.num_rows):
        pass


def _writing(snapshot: Snapshot, segments: Sequence[IndexSegment]) -> list[Callable[[], None]]:
    contents: list[_Contents] = []
    held = 0
    files = [file for segment in segments for file in _lance_files(snapshot, segment) if file.num_rows]
    for file in files:
        if held < HELD_BYTES:
            contents.append(_Contents(file.schema, list(file.batches(0, file.num_rows, READ_BATCH))))
            held += contents[-1].bytes

    def write(number: int) -> None:
        content = contents[number % len(contents)]
        name = f"{number}.lance"
        write_lance_file(
            snapshot.store, DIRECTORY, name, content.schema, iter(content.batches), snapshot.storage_version
        )

    return [partial(write, number) for number in range(len(files))]


def _do(work: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for done in [threads.submit(each) for each in work]:
            done.result()


def clear(uri: str) -> None:
    """Delete what was written."""
    shutil.rmtree(Path(uri) / DIRECTORY, ignore_errors=True)

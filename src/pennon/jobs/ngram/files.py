"""The files of a new n-gram segment: written by one task, or joined from the parts of several. File names are fixed, so
every attempt of a task that writes them has its own directory.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

import pyarrow as pa

from pennon.engine import Engine
from pennon.format.index_metadata import IndexFile, IndexSegment
from pennon.format.lance_file import LanceFile
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.ngram.files import READ_ROWS, joined_lists, write_postings, write_segment
from pennon.index.ngram.kind import NGRAM
from pennon.index.ngram.postings import Postings
from pennon.jobs.shared.cleanup import delete_on_failure
from pennon.jobs.shared.new_segment import describe_new_segment


@dataclass(frozen=True)
class Written:
    """Files of a segment, by its uuid."""

    uuid: str
    files: tuple[IndexFile, ...]


@dataclass(frozen=True)
class Part:
    """A temporary file with the posting lists of a range of tokens."""

    directory: str
    file: IndexFile


def write_whole(pin: Pin, parts: Iterable[Postings], storage_version: str) -> Written:
    """In a task: write the files of a segment."""
    return _write(pin, joined_lists(parts), storage_version)


def write_part(pin: Pin, scratch: str, parts: Iterable[Postings], storage_version: str) -> Part:
    """In a task: write some of the lists of a segment, in a file unique to this attempt."""
    name = f"{secrets.token_hex(8)}.lance"
    return Part(scratch, write_postings(pin.open().store, scratch, name, parts, storage_version))


def join_parts(engine: Engine, pin: Pin, parts: Sequence[Part], storage_version: str) -> Written:
    """Write the files of a segment from parts in the order of their tokens."""
    [written] = engine.map("join", partial(_join, pin, storage_version), [tuple(parts)])
    return written


def describe_segment(
    snapshot: Snapshot, written: Written, name: str, field_id: int, fragments: Iterable[int]
) -> IndexSegment:
    """Describe a segment whose files are written, for the commit."""
    return describe_new_segment(
        snapshot,
        written.uuid,
        written.files,
        name=name,
        field_id=field_id,
        fragments=fragments,
        type_url=NGRAM.type_url,
        index_version=NGRAM.index_version,
    )


def _join(pin: Pin, storage_version: str, parts: tuple[Part, ...]) -> Written:
    """Task: the lists of all parts, one file after another."""
    store = pin.open().store

    def batches() -> Iterator[pa.RecordBatch]:
        for part in parts:
            file = LanceFile(store, f"{part.directory}/{part.file.path}", part.file.size_bytes)
            yield from file.batches(0, file.num_rows, READ_ROWS)

    return _write(pin, batches(), storage_version)


def _write(pin: Pin, batches: Iterable[pa.RecordBatch], storage_version: str) -> Written:
    store, uuid = pin.open().store, str(uuid4())
    with delete_on_failure(store, uuid):
        return Written(uuid, write_segment(store, f"_indices/{uuid}", batches, storage_version))

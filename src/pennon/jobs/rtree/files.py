"""The files of a new R-tree segment: written by one task, or joined from the parts of several. File names are fixed, so
every attempt of a task that writes them has its own directory.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from pennon.engine import Engine
from pennon.format.index_metadata import IndexFile, IndexSegment, segment_directory
from pennon.format.lance_file import LanceFile, write_lance_file
from pennon.format.row_set import RowSet
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.row_map import read_row_map, write_row_map
from pennon.index.rtree.files import READ_ROWS, SCHEMA, leaf_batch, leaves_of_batch, write_tree
from pennon.index.rtree.geometries import Leaves
from pennon.index.rtree.kind import RTREE
from pennon.jobs.rtree.exchange import Nulls
from pennon.jobs.shared.cleanup import delete_on_failure
from pennon.jobs.shared.new_segment import describe_new_segment


@dataclass(frozen=True)
class Layout:
    """What the files of a segment are written with."""

    pin: Pin
    page_size: int
    storage_version: str


@dataclass(frozen=True)
class Written:
    """Files of a segment, by its uuid, and the boxes in them."""

    uuid: str
    files: tuple[IndexFile, ...]
    items: int


@dataclass(frozen=True)
class Part:
    """Temporary files with the boxes of a range of the curve, and with rows without a geometry."""

    directory: str
    file: IndexFile
    nulls: str


def write_whole(layout: Layout, leaves: Iterable[Leaves], nulls: Callable[[], RowSet]) -> Written:
    """In a task: write the files of a segment. `nulls` is called after the last of the leaves."""
    store, uuid = layout.pin.open().store, str(uuid4())
    counted = _Counted(leaves)
    with delete_on_failure(store, uuid):
        files = write_tree(store, segment_directory(uuid), counted, nulls, layout.page_size, layout.storage_version)
    return Written(uuid, files, counted.items)


def write_part(layout: Layout, scratch: str, leaves: Iterable[Leaves], nulls: Callable[[], RowSet]) -> Part:
    """In a task: write some of the boxes of a segment, in files unique to this attempt."""
    store, name = layout.pin.open().store, secrets.token_hex(8)
    batches = (leaf_batch(some) for some in leaves)
    file = write_lance_file(store, scratch, f"{name}.lance", SCHEMA, batches, layout.storage_version)
    store.write(f"{scratch}/{name}.nulls", write_row_map(nulls()))
    return Part(scratch, file, f"{scratch}/{name}.nulls")


def join_parts(engine: Engine, layout: Layout, parts: Sequence[Part]) -> Written:
    """Write the files of a segment from parts in the order of the curve: one task, which streams them."""
    [written] = engine.map("join", partial(_join, layout), [tuple(parts)])
    return written


def describe_segment(
    snapshot: Snapshot, written: Written, name: str, field_id: int, fragments: Iterable[int], *, recorded: bool = True
) -> IndexSegment:
    """Describe a segment whose files are written, for the commit. `recorded`: every row in them is as it is in the
    table."""
    return describe_new_segment(
        snapshot,
        written.uuid,
        written.files,
        name=name,
        field_id=field_id,
        fragments=fragments,
        type_url=RTREE.type_url,
        index_version=RTREE.index_version,
        recorded=recorded,
    )


def _join(layout: Layout, parts: tuple[Part, ...]) -> Written:
    """Task: the boxes of all parts, one file after another."""
    store, nulls = layout.pin.open().store, Nulls()

    def leaves() -> Iterator[Leaves]:
        for part in parts:
            file = LanceFile(store, f"{part.directory}/{part.file.path}", part.file.size_bytes)
            yield from map(leaves_of_batch, file.batches(0, file.num_rows, READ_ROWS))
            nulls.join(read_row_map(store.read(part.nulls), store.describe(part.nulls)))

    return write_whole(layout, leaves(), nulls.rows)


class _Counted:
    """The same leaves, and their number."""

    def __init__(self, leaves: Iterable[Leaves]) -> None:
        self._leaves = leaves
        self.items = 0

    def __iter__(self) -> Iterator[Leaves]:
        for some in self._leaves:
            self.items += len(some)
            yield some

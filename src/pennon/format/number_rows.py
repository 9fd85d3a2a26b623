"""Rows of a table by address, where all columns that are wanted hold numbers: read from the data files. To open a
handle of pylance on the table, or to plan a scan of it, takes longer than to read few of them; and of many rows here
and there pylance decodes also what is between them.

A column is found in a file by its field id: columns may have been renamed since the file was written.

Of an object store, few rows of a few fragments are read so, all fragments at once: pylance needs three requests or more
for the first rows of a file, and a small file whose size the manifest records is read in one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses, split_by_fragment
from pennon.format.column_file import DATA
from pennon.format.footer import check_footer
from pennon.format.fragments import Fragment
from pennon.format.index_metadata import is_plain_path
from pennon.format.manifest import Manifest
from pennon.format.number_file import MOST_TAKEN, NumberFile, columns_by_id, number_type
from pennon.format.range_reader import WHOLE_BYTES, RangeReader
from pennon.format.requests import AT_ONCE, request_all
from pennon.format.row_set import Offsets
from pennon.format.scattered_values import ReadAt, Scratch
from pennon.format.store import Store

# Files whose description is kept. Rows of more fragments are left to pylance, which keeps those of all.
KEPT_FILES, MOST_FRAGMENTS = 512, 128
# More rows are read by pylance, in several threads.
MOST_ROWS = 1 << 20
# Up to this many are returned as one chunk.
COMBINED_ROWS = 1 << 12
# Up to this many rows of a file are read one by one.
FEW_OF_FILE = 8
# Up to this many values of a file in an object store are read by a request each; pylance makes them at once.
FEW_REQUESTS = 4


@dataclass(frozen=True)
class _HeldColumns:
    """Columns of a fragment that are in one file, and what reads a file of an object store."""

    path: str
    ids: tuple[int, ...]
    file: NumberFile
    remote: ReadAt | None


class NumberRows:
    """The rows of one version of a table."""

    def __init__(self, store: Store, manifest: Manifest, schema: pa.Schema) -> None:
        self._store, self._manifest, self._schema = store, manifest, schema
        self._ids = {proto.name: proto.id for proto in manifest.fields if proto.parent_id < 0}
        self._types = {proto.id: proto.logical_type for proto in manifest.fields}
        self._chosen: dict[tuple[str, ...], tuple[tuple[int, ...], pa.Schema] | None] = {}
        self._files: dict[tuple[str, tuple[int, ...]], NumberFile | None] = {}

    def take(self, addresses: Addresses, columns: Sequence[str] | None) -> pa.Table | None:
        """Rows at ascending live addresses; None if only pylance can read them."""
        chosen = self._choose(tuple(self._schema.names if columns is None else columns))
        if chosen is None or not 0 < len(addresses) <= MOST_ROWS:
            return None
        ids, schema = chosen
        rows = split_by_fragment(addresses)
        if len(rows) > MOST_FRAGMENTS or not (self._store.is_local or self._few(rows, ids)):
            return None
        tables: list[pa.Table] = []
        scratch = Scratch()
        try:
            # All files are looked at before the first is read.
            fragments = [self._manifest.fragments[number] for number in rows]
            files = request_all(self._store, lambda fragment: self._files_of(fragment, ids), fragments)
            if None in files:
                return None
            parts = zip(files, rows.values(), strict=True)
            for found in request_all(self._store, lambda part: self._take(*part, ids, schema, scratch), parts):
                if found is None:
                    return None
                tables.append(found)
        except DamagedFile:
            return None  # pylance reports what is wrong with it
        if len(tables) == 1:
            return tables[0]
        table = pa.concat_tables(tables)
        return table.combine_chunks() if len(addresses) <= COMBINED_ROWS else table

    def reads(self, columns: Sequence[str] | None) -> bool:
        """Whether all columns are numbers."""
        return self._choose(tuple(self._schema.names if columns is None else columns)) is not None

    def _choose(self, names: tuple[str, ...]) -> tuple[tuple[int, ...], pa.Schema] | None:
        """Ids and fields of columns, if all are numbers."""
        if names not in self._chosen:
            ids = tuple(self._ids.get(name, -1) for name in names)
            plain = len(set(names)) == len(names) > 0 and min(ids) >= 0
            if plain and all(self._is_number(name, field_id) for name, field_id in zip(names, ids, strict=True)):
                fields = [self._schema.field(name) for name in names]
                self._chosen[names] = ids, pa.schema(fields, self._schema.metadata)
            else:
                self._chosen[names] = None
        return self._chosen[names]

    def _is_number(self, name: str, field_id: int) -> bool:
        kind = number_type(self._types[field_id])
        return kind is not None and kind == self._schema.field(name).type

    def _few(self, rows: Mapping[int, Offsets], ids: tuple[int, ...]) -> bool:
        """Whether rows of an object store are read in fewer requests than by pylance, and none waits for many others:
        those of one file are made one after another, unless it is read as a whole."""
        if len(rows) > AT_ONCE:
            return False
        for number, offsets in rows.items():
            fragment = self._manifest.fragments[number]
            size, path = _only_file(fragment)
            first = (path, ids) not in self._files
            most = MOST_TAKEN if first and size <= WHOLE_BYTES else FEW_REQUESTS // len(ids)
            if not size or len(offsets) > most:
                return False
        return True

    def _files_of(self, fragment: Fragment, ids: tuple[int, ...]) -> list[_HeldColumns] | None:
        """The files with some columns of a fragment; None if one of them can only be read by pylance."""
        by_path: dict[str | None, list[int]] = {}
        for field_id in ids:
            by_path.setdefault(fragment.field_files.get(field_id), []).append(field_id)
        files: list[_HeldColumns] = []
        for path, held in by_path.items():
            if path is None or not is_plain_path(path):
                return None
            name, size, read = f"{DATA}/{path}", _only_file(fragment)[0], None
            if not self._store.is_local:
                read = self._store.reader(name)
                # What is known of a file is not read again, and then nothing but the rows.
                read = read if (path, tuple(held)) in self._files else RangeReader(read, size).read
            file = self._file(path, tuple(held), fragment.physical_rows, size, read)
            if file is None:
                return None
            files.append(_HeldColumns(path, tuple(held), file, read))
        return files

    def _take(
        self,
        files: list[_HeldColumns] | None,
        offsets: Offsets,
        ids: tuple[int, ...],
        schema: pa.Schema,
        scratch: Scratch,
    ) -> pa.Table | None:
        arrays: dict[int, pa.Array] = {}
        for held in files or ():
            if held.remote is not None:
                found = held.file.take(held.remote, offsets.tolist())
            elif len(offsets) <= FEW_OF_FILE:
                content = self._store.local_file(f"{DATA}/{held.path}")
                found = held.file.take(content.read, offsets.tolist())
            else:
                content = self._store.local_file(f"{DATA}/{held.path}")
                found = held.file.gather(content, offsets.astype(np.int64), scratch)
            if found is None:
                self._files[held.path, held.ids] = None
                return None
            arrays |= zip(held.ids, found.columns, strict=True)
        return pa.Table.from_arrays([arrays[field_id] for field_id in ids], schema=schema)

    def _file(self, path: str, ids: tuple[int, ...], rows: int, size: int, remote: ReadAt | None) -> NumberFile | None:
        files, key = self._files, (path, ids)
        if key in files:
            return files[key]
        name = f"{DATA}/{path}"
        if remote is None:
            end = self._store.check_container(name, self._store.size(name))
        else:
            end = check_footer(remote, size, self._store.describe(name))
        found = None if end is None else columns_by_id(end, {each: self._types[each] for each in ids})
        if found is not None and found.num_rows != rows:
            found = None
        while len(files) >= KEPT_FILES:
            files.pop(next(iter(list(files))), None)  # other threads may add some
        files[key] = found
        return found


def _only_file(fragment: Fragment) -> tuple[int, str]:
    """The recorded size and the path of the data file, if a fragment has one; 0 otherwise."""
    paths = set(fragment.field_files.values())
    return (fragment.file_bytes, next(iter(paths))) if len(paths) == 1 and not fragment.was_replaced else (0, "")

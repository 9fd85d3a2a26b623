"""Few rows of a table by address, where all columns that are wanted hold numbers: read from the data files, without a
handle of pylance on the table, which takes longer than to read them.

A column is found in a file by its field id: columns may have been renamed since the file was written.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pennon.errors import DamagedFile
from pennon.format.addresses import Addresses, split_by_fragment
from pennon.format.column_file import DATA
from pennon.format.fragments import Fragment
from pennon.format.manifest import Manifest
from pennon.format.number_file import MOST_TAKEN, NumberFile, columns_by_id, number_type
from pennon.format.store import Store

# Files whose description is kept.
KEPT_FILES = 128


class NumberRows:
    """The rows of one version of a table on this machine."""

    def __init__(self, store: Store, manifest: Manifest, schema: pa.Schema) -> None:
        self._store, self._manifest, self._schema = store, manifest, schema
        self._ids = {proto.name: proto.id for proto in manifest.fields if proto.parent_id < 0}
        self._types = {proto.id: proto.logical_type for proto in manifest.fields}
        self._chosen: dict[tuple[str, ...], tuple[tuple[int, ...], pa.Schema] | None] = {}
        self._files: dict[tuple[str, tuple[int, ...]], NumberFile | None] = {}

    def take(self, addresses: Addresses, columns: Sequence[str] | None) -> pa.Table | None:
        """Rows at ascending live addresses; None if only pylance can read them."""
        if not 0 < len(addresses) <= MOST_TAKEN:
            return None
        chosen = self._choose(tuple(self._schema.names if columns is None else columns))
        if chosen is None:
            return None
        ids, schema = chosen
        tables: list[pa.Table] = []
        try:
            for number, offsets in split_by_fragment(addresses).items():
                found = self._take(self._manifest.fragments[number], offsets.tolist(), ids, schema)
                if found is None:
                    return None
                tables.append(found)
        except DamagedFile:
            return None  # pylance reports what is wrong with it
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()

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

    def _take(self, fragment: Fragment, offsets: list[int], ids: tuple[int, ...], schema: pa.Schema) -> pa.Table | None:
        by_path: dict[str | None, list[int]] = {}
        for field_id in ids:
            by_path.setdefault(fragment.field_files.get(field_id), []).append(field_id)
        arrays: dict[int, pa.Array] = {}
        for path, held in by_path.items():
            file = None if path is None else self._file(path, tuple(held), fragment.physical_rows)
            if file is None:
                return None
            found = file.take(self._store.reader(f"{DATA}/{path}"), offsets)
            if found is None:
                return None
            arrays |= zip(held, found.columns, strict=True)
        return pa.Table.from_arrays([arrays[field_id] for field_id in ids], schema=schema)

    def _file(self, path: str, ids: tuple[int, ...], rows: int) -> NumberFile | None:
        files, key = self._files, (path, ids)
        if key in files:
            return files[key]
        name = f"{DATA}/{path}"
        end = self._store.check_container(name, self._store.size(name))
        found = None if end is None else columns_by_id(end, {each: self._types[each] for each in ids})
        if found is not None and found.num_rows != rows:
            found = None
        while len(files) >= KEPT_FILES:
            files.pop(next(iter(files)), None)
        files[key] = found
        return found

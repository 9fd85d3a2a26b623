"""Append rows to a table: tasks write fragments, and one commit adds them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments

from pennon.errors import CommitConflict, PennonError, TableNotFound
from pennon.format.commit import commit_operation
from pennon.format.failures import answering
from pennon.format.named_files import DATA, delete_unless_named
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location, open_store


@dataclass(frozen=True)
class Target:
    """The destination of rows: appended to a version of a table, replacing its rows, or, without a version, a new
    table."""

    location: Location
    schema: pa.Schema
    version: int | None
    overwrite: bool
    max_rows_per_file: int
    stable_row_ids: bool = False

    @property
    def mode(self) -> str:
        return "create" if self.version is None else "overwrite" if self.overwrite else "append"


def create_table(uri: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows_per_fragment: int) -> None:
    """Write a new table from this process."""
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    lance.write_dataset(reader, uri, max_rows_per_file=rows_per_fragment)


def find_table(location: Location) -> Snapshot | None:
    """The newest version, or None if there is no table; other errors are raised."""
    try:
        return Snapshot.open(location)
    except TableNotFound:
        return None


def write_rows(target: Target, batches: Iterable[pa.RecordBatch], version: Snapshot | None = None) -> list[str]:
    """Write fragments without committing them, and return their metadata. The names of their files are unique.
    `version` is that of the target, where it is open."""
    rows = iter(batches)
    first = next(rows, None)
    if first is None:
        return []
    place: str | lance.LanceDataset = target.location.uri
    if target.version is not None:
        # Fields keep the ids they have in that version.
        place = (version or Snapshot.open(target.location, target.version)).dataset
    with answering(f"data files of {target.location.shown}"):
        written = write_fragments(
            pa.RecordBatchReader.from_batches(target.schema, chain([first], rows)),
            place,
            schema=target.schema,
            mode=target.mode,
            max_rows_per_file=target.max_rows_per_file,
            storage_options=target.location.storage_options,
            enable_stable_row_ids=target.stable_row_ids,
        )
    return [json.dumps(fragment.to_json()) for fragment in written]


def commit_rows(target: Target, fragments: Sequence[str]) -> int:
    """Commit fragments in one transaction and return the new version. Concurrent appends do not conflict."""
    found = [FragmentMetadata.from_json(text) for text in fragments]
    if target.version is None:
        return _create(target, found).version
    if target.overwrite:
        operation = lance.LanceOperation.Overwrite(target.schema, found)
    elif found:
        operation = lance.LanceOperation.Append(found)
    else:
        return target.version
    return commit_operation(Snapshot.open(target.location, target.version), operation).version


def create_empty(target: Target) -> None:
    """Create a table without rows, unless there is one by now."""
    try:
        _create(target, [])
    except CommitConflict:
        return


def _create(target: Target, fragments: list[FragmentMetadata]) -> lance.LanceDataset:
    try:
        with answering(f"a commit to {target.location.shown}"):
            return lance.LanceDataset.commit(
                target.location.uri,
                lance.LanceOperation.Overwrite(target.schema, fragments),
                storage_options=target.location.storage_options,
                enable_stable_row_ids=target.stable_row_ids,
                max_retries=0,  # a retry would overwrite the rows of another writer
            )
    except PennonError:
        raise
    except OSError as error:
        if find_table(target.location) is None:
            raise
        raise CommitConflict(
            f"another writer created a table at {target.location.shown} in the meantime",
            "Nothing was written; try again",
        ) from error


def delete_rows(target: Target, fragments: Sequence[str]) -> None:
    """Delete the files of fragments that were never committed."""
    written = {f"{DATA}/{file.path}" for text in fragments for file in FragmentMetadata.from_json(text).files}
    delete_unless_named(open_store(target.location), written, target.version or 0)

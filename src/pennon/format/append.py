"""New rows of a table: fragments that tasks write on their own, and the one commit that makes them part of it."""

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
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location, open_store

DATA = "data"


@dataclass(frozen=True)
class Target:
    """Where rows go: appended to a version of a table, put in its place, or, without a version, a new table."""

    location: Location
    schema: pa.Schema
    version: int | None
    overwrite: bool
    max_rows_per_file: int
    stable_row_ids: bool = False

    @property
    def mode(self) -> str:
        return "create" if self.version is None else "overwrite" if self.overwrite else "append"


def find_table(location: Location) -> Snapshot | None:
    """The newest version, or None where there is no table; other errors are raised."""
    try:
        return Snapshot.open(location)
    except TableNotFound:
        return None


def write_rows(target: Target, batches: Iterable[pa.RecordBatch]) -> list[str]:
    """Write fragments that belong to no table yet; returns their metadata. Their files have names of their own."""
    rows = iter(batches)
    first = next(rows, None)
    if first is None:
        return []
    place: str | lance.LanceDataset = target.location.uri
    if target.version is not None:
        # Fields keep the ids they have in that version.
        place = Snapshot.open(target.location, target.version).dataset
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
    """One transaction; appends by others in between do no harm. Returns the new version."""
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


def _create(target: Target, fragments: list[FragmentMetadata]) -> lance.LanceDataset:
    try:
        with answering(f"a commit to {target.location.shown}"):
            return lance.LanceDataset.commit(
                target.location.uri,
                lance.LanceOperation.Overwrite(target.schema, fragments),
                storage_options=target.location.storage_options,
                enable_stable_row_ids=target.stable_row_ids,
                max_retries=0,  # which would put these rows in the place of another writer's
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
    """Remove the files of fragments that were never committed. A commit that failed may have succeeded all the same, so
    what any version since refers to stays."""
    written = {file.path for text in fragments for file in FragmentMetadata.from_json(text).files}
    newest = find_table(target.location)
    if newest is not None:
        for version in range((target.version or 0) + 1, newest.version + 1):
            try:
                snapshot = Snapshot.open(target.location, version)
            except PennonError:
                return  # cleaned up meanwhile, so it cannot be told
            held = (file.path for fragment in snapshot.dataset.get_fragments() for file in fragment.data_files())
            written.difference_update(held)
    store = open_store(target.location)
    for path in written:
        store.delete(f"{DATA}/{path}")

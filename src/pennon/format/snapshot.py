"""One version of a table, pinned: its address, manifest, schema and columns. `rows` reads its rows."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa

from pennon.format.failures import answering
from pennon.format.manifest import manifest_paths, read_manifest
from pennon.format.opening import find_version, newest_version, open_dataset, read_local_manifest
from pennon.format.rows import RowReader
from pennon.format.schema import Column, Columns
from pennon.format.store import Location, open_store

if TYPE_CHECKING:
    import lance


class Snapshot(RowReader):
    """A table at one version. Everything read through it is read at that version."""

    @classmethod
    def open(cls, location: Location, version: int | None = None) -> Snapshot:
        """Raises TableNotFound only if the store answered that there is no table."""
        manifest = read_local_manifest(location, version)
        if manifest is not None:
            return cls(location, manifest)
        found = find_version(location, version)
        if found is not None:
            return cls(location, read_manifest(open_store(location), found))
        return cls.of(location, open_dataset(location, version))

    @classmethod
    def of(cls, location: Location, dataset: lance.LanceDataset) -> Snapshot:
        """The version that pylance has opened."""
        return cls(location, read_manifest(open_store(location), dataset.version), dataset)

    def pin(self) -> Pin:
        """For the tasks of a job. Those that run in this process use this snapshot."""
        pin = Pin(self.location, self.version, secrets.token_hex(8))
        _opened_pins.keep(pin, self)
        return pin

    def latest(self) -> Snapshot:
        """The newest version of the same table; this object if it is the newest. Raises TableNotFound if it is gone."""
        with answering(f"the newest version of {self.uri}"):
            newest = max(manifest_paths(self.store), default=0) if self.store.is_local else 0
            if newest < self.version:  # not listed, or listed in part
                newest = newest_version(self.location, self.dataset)
        return self if newest == self.version else Snapshot.open(self.location, newest)

    @property
    def version(self) -> int:
        return self.manifest.version

    @cached_property
    def columns(self) -> Columns:
        return Columns(self.manifest.fields, self.schema)

    @cached_property
    def column_types(self) -> dict[str, pa.DataType]:
        """Path -> type of every leaf that filters may name."""
        return {column.path: column.type for column in self.columns if column.is_leaf}

    @cached_property
    def config(self) -> dict[str, str]:
        """The configuration of the table: texts by key, of any writer."""
        return dict(self.manifest.outline.config)

    @cached_property
    def storage_version(self) -> str:
        """The Lance file version of new index files: that of the table, or 2.0 for older tables."""
        version = self.dataset.data_storage_version
        return "2.0" if version in ("0.1", "legacy") else version

    def column(self, path: str) -> Column:
        return self.columns.get(path, self.uri)


@dataclass(frozen=True)
class Pin:
    """A version of a table in a form to send to the tasks of a job. `job` distinguishes tables that existed at one
    address at different times."""

    location: Location
    version: int
    job: str

    def open(self) -> Snapshot:
        """The snapshot, shared by the job's tasks in one worker process."""
        return _opened_pins.open(self)


class _OpenedPins:
    """The snapshots of the pins that were used last in this process."""

    MOST = 4

    def __init__(self) -> None:
        self._lock = Lock()
        self._snapshots: dict[Pin, Snapshot] = {}

    def keep(self, pin: Pin, snapshot: Snapshot) -> None:
        with self._lock:
            self._snapshots.pop(pin, None)
            self._snapshots[pin] = snapshot
            while len(self._snapshots) > self.MOST:
                del self._snapshots[next(iter(self._snapshots))]

    def open(self, pin: Pin) -> Snapshot:
        with self._lock:
            found = self._snapshots.get(pin)
        if found is None:
            found = Snapshot.open(pin.location, pin.version)
        self.keep(pin, found)
        return found


_opened_pins = _OpenedPins()

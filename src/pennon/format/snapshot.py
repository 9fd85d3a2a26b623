"""One version of a table, pinned: its address, manifest, schema and columns. `rows` reads its rows."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property, lru_cache

import lance
import pyarrow as pa

from pennon.errors import DamagedTable, InvalidArgument, PennonError, TableNotFound
from pennon.format.failures import ARGUMENT, answering, first_line, is_missing, store_failure
from pennon.format.rows import RowReader
from pennon.format.schema import Column, Columns
from pennon.format.store import Location, translate_panics, translate_read_errors


class Snapshot(RowReader):
    """A table at one version. Everything read through it is read at that version."""

    @classmethod
    def open(cls, location: Location, version: int | None = None) -> Snapshot:
        """Raises TableNotFound only if the store answered that there is no table."""
        try:
            with translate_panics(f"the table at {location.shown}"):
                dataset = lance.dataset(location.uri, version=version, storage_options=location.storage_options)
        except PennonError:
            raise
        except (ValueError, OSError, RuntimeError) as error:
            raise _not_opened(location, version, error) from error
        return cls(location, dataset)

    def pin(self) -> Pin:
        return Pin(self.location, self.version, secrets.token_hex(8))

    def latest(self) -> Snapshot:
        """The newest version of the same table; this object if it is the newest."""
        with answering(f"the newest version of {self.uri}"):
            newest = self.dataset.latest_version
        return self if newest == self.version else Snapshot.open(self.location, newest)

    @property
    def version(self) -> int:
        return self.manifest.version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        with translate_read_errors(f"the schema of {self.uri}"):
            return self.dataset.schema

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
        with translate_read_errors(f"the configuration of {self.uri}"):
            return dict(self.dataset.config())

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
        return _open_pin(self)


@lru_cache(maxsize=4)
def _open_pin(pin: Pin) -> Snapshot:
    return Snapshot.open(pin.location, pin.version)


def _not_opened(location: Location, version: int | None, error: Exception) -> PennonError:
    """The error for a failed attempt to open a table."""
    what = f"{f'version {version} of the table' if version else 'a Lance table'} at {location.shown}"
    problem = f"cannot open {what}: {first_line(error)}"
    if is_missing(error):
        return TableNotFound(problem, "Check the address and the version")
    failure = store_failure(error, what)
    if failure is not None:
        return failure
    if str(error).startswith(ARGUMENT):
        return InvalidArgument(problem, "Check the address")
    return DamagedTable(problem, "Restore the manifest, or open an older version")

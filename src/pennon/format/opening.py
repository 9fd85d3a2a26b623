"""Opens a version of a table: by its manifest alone where that is on this machine, else by pylance.

pylance reads and keeps the manifest as well, and lists the versions. Counting rows by an index needs none of that, so a
handle of pylance is opened when rows are read.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pennon.deferred import deferred
from pennon.errors import DamagedTable, InvalidArgument, PennonError, TableNotFound
from pennon.format.compiled_lance import number_of_version
from pennon.format.failures import ARGUMENT, first_line, is_missing, store_failure
from pennon.format.manifest import VERSIONS, Manifest, read_manifest
from pennon.format.store import Location, open_store, translate_panics

if TYPE_CHECKING:
    import lance
else:
    lance = deferred("lance")


def read_local_manifest(location: Location, version: int | None = None) -> Manifest | None:
    """The manifest of a version, by default the newest; None if the table is in an object store, where pylance finds
    the newest in fewer requests, and where anything is wrong, which pylance reports."""
    root = location.local_root
    if root is None or not os.path.isdir(os.path.join(root, VERSIONS)):  # noqa: PTH112, PTH118
        return None
    try:
        manifest = read_manifest(open_store(location), version)
    except (PennonError, OSError):
        return None
    return None if manifest.is_doubtful else manifest


def open_dataset(location: Location, version: int | None = None, manifest: bytes | None = None) -> lance.LanceDataset:
    """pylance's handle on a version, by default the newest. With the manifest of the version, that is not read again.

    Raises TableNotFound only if the store answered that there is no table.
    """
    with _opening(location, version):
        return lance.LanceDataset(
            location.uri, version, storage_options=location.storage_options, serialized_manifest=manifest
        )


def find_version(location: Location, version: int | None = None) -> int | None:
    """The number of a version that is there, by default the newest, without a handle of pylance; None in a process that
    has imported pylance, where a handle costs no more. Errors are those of `open_dataset`."""
    with _opening(location, version):
        return number_of_version(location.uri, version, location.storage_options)


def newest_version(location: Location, dataset: lance.LanceDataset) -> int:
    """The number of the newest version of a table that was open.

    Raises TableNotFound only if the store answered that the table is gone.
    """
    try:
        return dataset.latest_version
    except (ValueError, OSError) as error:
        if is_missing(error):
            raise _not_opened(location, None, error) from error
        raise


@contextmanager
def _opening(location: Location, version: int | None) -> Generator[None]:
    try:
        with translate_panics(f"the table at {location.shown}"):
            yield
    except PennonError:
        raise
    except (ValueError, OSError, RuntimeError) as error:
        raise _not_opened(location, version, error) from error


def _not_opened(location: Location, version: int | None, error: Exception) -> PennonError:
    """The error for a failed attempt to open a table."""
    what = f"{f'version {version} of the table' if version else 'a Lance table'} at {location.shown}"
    problem = f"cannot open {what}: {first_line(error)}"
    if is_missing(error):
        if version:
            return TableNotFound(f"there is no {what}", "Check the address and the version")
        return TableNotFound(f"there is no Lance table at {location.shown}", "Check the address")
    failure = store_failure(error, what)
    if failure is not None:
        return failure
    if str(error).startswith(ARGUMENT):
        return InvalidArgument(problem, "Check the address")
    return DamagedTable(problem, "Restore the manifest, or open an older version")

"""The facade: one short method a verb."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pennon.engine import ProgressListener, choose_engine, choose_listener
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.threads import one_core
from pennon.table.arguments import address_of, check_whole_numbers, storage_of
from pennon.table.building import BuildVerbs
from pennon.table.caches import CacheVerbs
from pennon.table.checks import CheckVerbs
from pennon.table.duplicates import DuplicateVerbs
from pennon.table.frames import FrameVerbs
from pennon.table.lookups import LookupVerbs
from pennon.table.maintenance import MaintenanceVerbs
from pennon.table.merging import MergeVerbs
from pennon.table.tuning import TuneVerbs

if TYPE_CHECKING:
    from pennon.engine import SparkSession

__all__ = ["Table", "open_table"]


class Table(
    BuildVerbs,
    MaintenanceVerbs,
    CheckVerbs,
    MergeVerbs,
    FrameVerbs,
    LookupVerbs,
    DuplicateVerbs,
    TuneVerbs,
    CacheVerbs,
):
    """A Lance table at one version: its indices are built, maintained and queried through it.

    Verbs that commit move the handle to what they committed; `refresh()` moves it to the newest version. Every verb
    that changes the table takes `dry_run=True`, which returns the plan that its `plan_...` method returns, and
    otherwise returns a result with counts, seconds and the versions before and after.
    """


def open_table(
    uri: str | os.PathLike[str],
    version: int | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    engine: str | None = None,
    progress: ProgressListener | bool | None = None,
    disk_cache: str | os.PathLike[str] | None = None,
) -> Table:
    """Open a Lance table. Starts nothing: a Spark session is looked for when a verb needs one.

    Args:
        uri: a path, or the address in an object store.
        version: the version to open. Default: the newest.
        storage_options: credentials and settings of the store, as pylance takes them.
        spark: the session that runs jobs. Default: the active one, else an embedded local one.
        engine: `"spark"` or `"local"`, which runs tasks in threads of this process, without Spark. Default:
            PENNON_ENGINE of the environment, else Spark.
        progress: receives the progress of jobs; True shows it on the error stream, False does not. Default: shown in
            notebooks and at a Python prompt, not in scripts.
        disk_cache: a directory on this machine for copies of index files, which all its processes share. Default:
            PENNON_DISK_CACHE of the environment for tables in an object store, else none.

    Returns:
        A handle on that version.

    Raises:
        TableNotFound: there is no table, or not that version.
        StoreUnavailable: the store does not answer; try again later.
        DamagedTable: the table cannot be read.
        InvalidArgument: an argument of another type.
    """
    check_whole_numbers(1, version=version)
    cached = None if disk_cache is None else str(Path(address_of(disk_cache)).absolute())
    location = Location.of(address_of(uri), storage_of(storage_options), cached)
    chosen = choose_engine(engine, spark, progress=choose_listener(progress), around=one_core)
    return Table(Snapshot.open(location, version), chosen)

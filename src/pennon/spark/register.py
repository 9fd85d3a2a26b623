"""Registers the data source and the SQL functions with a session in one call."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pennon.engine.session import check_running, check_version, is_connect
from pennon.engine.worker_python import drivers_python
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import SHARED_CACHE
from pennon.query.catalog import Catalog
from pennon.query.filter.reading import FilterLike, filter_text
from pennon.query.scan.explain import Explanation
from pennon.query.scan.explain import explain as explain_scan
from pennon.query.scan.request import ScanRequest, column_names
from pennon.query.scan.tasks import Part, plan_parts
from pennon.spark.options import SECRET_STORAGE
from pennon.spark.source import PennonSource
from pennon.spark.sql.registry import table_functions
from pennon.table.arguments import address_of, check_flags, check_whole_numbers, storage_of
from pennon.wording import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def register(spark: SparkSession, *, storage_options: Mapping[str, str] | None = None) -> None:
    """Register `format("pennon")` and the SQL functions with a session, and change nothing else of it.

    Args:
        spark: the session, classic or Connect.
        storage_options: those of the SQL functions: as arguments they would show in plans.

    Raises:
        InvalidArgument: `spark` is not a Spark session.
        SparkUnavailable: the session was stopped, or its version is too old.
    """
    check_running(spark)
    check_version(spark.version)
    _register_source(spark)
    for name, function in table_functions(dict(storage_options or {})).items():
        with drivers_python(spark):
            spark.udtf.register(name, _table_function(spark, function))


# Sessions whose data source is registered: Spark warns of a second time.
_registered: WeakSet[SparkSession] = WeakSet()


def _register_source(spark: SparkSession) -> None:
    if spark not in _registered:
        with drivers_python(spark):
            spark.dataSource.register(PennonSource)
        _registered.add(spark)


def _table_function(spark: SparkSession, function: type) -> Any:
    if is_connect(spark):
        from pyspark.sql.connect.functions import udtf  # noqa: PLC0415  needs packages that a classic installation lacks
    else:
        from pyspark.sql.functions import udtf  # noqa: PLC0415  takes the session to be there
    return udtf(function)  # pyright: ignore[reportArgumentType]


def read(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    filter: FilterLike | None = None,
    *,
    version: int | None = None,
    with_row_id: bool = False,
    with_row_address: bool = False,
    batch_size: int | None = None,
    rows_per_partition: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A table as a DataFrame: `spark.read.format("pennon")` with its options as arguments. The data source is
    registered where it is not yet.

    Args:
        spark: the session, classic or Connect.
        uri: a path, or the address in an object store.
        columns: names of the columns. Default: all.
        filter: SQL text, or a pyarrow expression. Default: every row.
        version: the version to read. Default: the newest.
        with_row_id: add the column `_rowid`.
        with_row_address: add the column `_rowaddr`.
        batch_size: rows that a task reads at a time.
        rows_per_partition: rows that a partition of the DataFrame has. Default: at most 262,144, and about 128 MiB.
        storage_options: credentials and settings of the store, as pylance takes them.

    Returns:
        A lazy DataFrame, fixed to one version of the table.

    Raises:
        InvalidArgument: an argument of another type.
        SparkUnavailable: the session was stopped, or its version is too old.
    """
    check_running(spark)
    check_version(spark.version)
    location = Location.of(address_of(uri), storage_of(storage_options))
    check_flags(with_row_id=with_row_id, with_row_address=with_row_address)
    check_whole_numbers(1, version=version, batch_size=batch_size, rows_per_partition=rows_per_partition)
    if filter is not None and not isinstance(filter, str):
        filter = filter_text(filter, Snapshot.open(location, version).schema)
    _register_source(spark)
    options = {
        "columns": None if columns is None else json.dumps(column_names(columns)),
        "filter": filter,
        "version": version,
        "with_row_id": with_row_id,
        "with_row_address": with_row_address,
        "batch_size": batch_size,
        "rows_per_partition": rows_per_partition,
        **{f"{SECRET_STORAGE}{key}": value for key, value in (storage_options or {}).items()},
    }
    given = {key: value for key, value in options.items() if value is not None}
    return spark.read.format(PennonSource.name()).options(**given).load(address_of(uri))


@dataclass(frozen=True)
class ReadExplanation:
    """The reads of a DataFrame with a filter."""

    scan: Explanation
    partitions: tuple[Part, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.partitions)

    @property
    def fragments(self) -> int:
        return len({fragment for part in self.partitions for fragment in part.fragments})

    def __str__(self) -> str:
        total = f"{self.rows:,} of {self.scan.total_rows:,} rows in {plural(self.fragments, 'fragment')}"
        lines = [str(self.scan), f"  read     {total}, by {plural(len(self.partitions), 'partition')}"]
        lines += [f"           {part}" for part in self.partitions[:8]]
        return "\n".join([*lines, "           ..."] if len(self.partitions) > 8 else lines)


def explain(
    uri: str | os.PathLike[str],
    filter: str | None = None,
    *,
    version: int | None = None,
    rows_per_partition: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ReadExplanation:
    """How the data source would read the rows of a filter: by which indices, how many fragments and rows, in which
    partitions. Needs no session.

    Args:
        uri: a path, or the address in an object store.
        filter: SQL text. Default: every row.
        version: the version to read. Default: the newest.
        rows_per_partition: rows that a partition of the DataFrame has. Default: at most 262,144, and about 128 MiB.
        storage_options: credentials and settings of the store, as pylance takes them.

    Returns:
        An explanation to print.

    Raises:
        TableNotFound: there is no table, or not that version.
        InvalidFilter: the filter does not parse, or has no meaning over this table.
    """
    snapshot = Snapshot.open(Location.of(os.fspath(uri), storage_options), version)
    catalog = Catalog.read(snapshot, SHARED_CACHE)
    request = ScanRequest(filter)
    return ReadExplanation(explain_scan(catalog, request), tuple(plan_parts(catalog, request, rows_per_partition)))

"""A table at one version, and what runs its jobs."""

from __future__ import annotations

import os
from typing import Self

import pyarrow as pa

from pennon.display import fields_table, rows_table, section
from pennon.engine import Engine
from pennon.format.snapshot import Snapshot
from pennon.index.cache import SHARED_CACHE
from pennon.query.catalog import Catalog
from pennon.query.inventory import IndexList, ReuseInfo, describe_reuse, list_indices


class TableHandle:
    """Verbs that commit move the handle to what they committed; `refresh()` moves it to the newest version."""

    def __init__(self, snapshot: Snapshot, engine: Engine) -> None:
        self._snapshot = snapshot
        self._engine = engine
        self._catalog: Catalog | None = None

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._snapshot.uri

    @property
    def version(self) -> int:
        """The version that the handle is at."""
        return self._snapshot.version

    @property
    def engine(self) -> Engine:
        """What runs the tasks of its jobs."""
        return self._engine

    @property
    def schema(self) -> pa.Schema:
        """The columns of this version."""
        return self._snapshot.schema

    def refresh(self) -> Self:
        """Move to the newest version.

        Returns:
            The same handle.

        Raises:
            TableNotFound: the table is gone.
            StoreUnavailable: the store does not answer; try again later.
        """
        self._move_to(self._snapshot.latest())
        return self

    def indices(self) -> IndexList:
        """Every index: type, columns, segments, coverage, sizes.

        Returns:
            A list, which prints as a table.

        Raises:
            StoreUnavailable: the store does not answer; try again later.
        """
        return list_indices(self._snapshot)

    def fragment_reuse(self) -> ReuseInfo | None:
        """The Fragment Reuse Index: how many compactions index files have yet to follow, and its size.

        Returns:
            What it records, or None where the table has none.

        Raises:
            StoreUnavailable: the store does not answer; try again later.
        """
        return describe_reuse(self._snapshot)

    def _indices(self) -> Catalog:
        if self._catalog is None:
            self._catalog = Catalog.read(self._snapshot, SHARED_CACHE)
        return self._catalog

    def _move_to(self, snapshot: Snapshot) -> None:
        if snapshot is not self._snapshot:
            self._snapshot, self._catalog = snapshot, None

    @property
    def _parallelism(self) -> int:
        """Of the cluster, or of this machine while no session is there."""
        return self._engine.parallelism if self._engine.attached else os.cpu_count() or 1

    def _learns_parallelism(self) -> bool:
        """Attach to the cluster; whether that changes what a plan assumed."""
        return not self._engine.attached and self._engine.parallelism != os.cpu_count()

    def __repr__(self) -> str:
        return f"Table({self.uri!r}, version={self.version})"

    def _repr_html_(self) -> str:
        manifest = self._snapshot.manifest
        facts = {
            "version": self.version,
            "rows": manifest.rows_in(manifest.live),
            "fragments": len(manifest.fragments),
        }
        columns = rows_table(("column", "type"), [(field.name, str(field.type)) for field in self.schema])
        return section(self.uri, fields_table(facts), columns, self.indices().to_html())

"""Upkeep of the indices of a table that a stream writes to, in the process that commits its batches."""

from __future__ import annotations

import logging

from pennon.format.store import Location
from pennon.jobs.maintain import MaintenancePolicy
from pennon.table import open_table

LOG = logging.getLogger("pennon.spark")
# Listing orphans and versions takes long on a store, and is not urgent: `maintain` from a scheduler does it.
POLICY = MaintenancePolicy(orphan_age_seconds=None, min_fragments_to_compact=16)


def keep_up(location: Location) -> None:
    """Compact small fragments and cover new rows, without Spark. The batch is committed: a failure is logged, and
    upkeep is due again later."""
    try:
        table = open_table(location.uri, storage_options=location.storage_options, engine="local", progress=False)
        LOG.info("upkeep of a stream: %s", table.maintain(POLICY))
    except Exception as error:  # noqa: BLE001  an error would fail a batch that is committed
        LOG.warning("upkeep of %s failed, and is due again later: %s", location.shown, error)

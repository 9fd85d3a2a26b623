"""Entries in the configuration of a table, which other writers leave alone."""

from __future__ import annotations

from collections.abc import Mapping

import lance

from pennon.format.commit import commit_operation
from pennon.format.snapshot import Snapshot


def commit_config(base: Snapshot, entries: Mapping[str, str | None]) -> Snapshot:
    """Set entries, or with None delete them, in one transaction on top of `base`."""
    updates = lance.LanceOperation.UpdateMap(dict(entries))
    return commit_operation(base, lance.LanceOperation.UpdateConfig(config_updates=updates))
